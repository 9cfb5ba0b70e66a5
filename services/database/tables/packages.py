"""Packages: the files with which the working directories of tasks begin. The files are in the store; here is which are."""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, DateTime, ForeignKey, Index, Table

from services.database.tables.definition import METADATA, NAME, key, required

PACKAGES: Final = Table(
    "packages",
    METADATA,
    # The SHA-256 of its bytes.
    key("package", NAME),
    required("size_bytes", BigInteger),
    # In real time: when it was last asked for, or a workload that names it was seen that had not ended.
    required("used_at", DateTime(timezone=True)),
)

WORKLOAD_PACKAGES: Final = Table(
    # Which package a workload names that has not ended (or has not been seen to have).
    "workload_packages",
    METADATA,
    key("workload", NAME),
    required("package", NAME, ForeignKey("packages.package")),
    Index("workload_packages_of_package", "package"),
)
