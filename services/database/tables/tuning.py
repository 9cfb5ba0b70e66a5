"""Sensitivity profiles: how fast jobs are with which CPUs and memory (Synergy §3.1)."""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Float, Index, Table
from sqlalchemy.dialects.postgresql import ARRAY

from services.database.tables.definition import METADATA, NAME, key, required

SENSITIVITY_PROFILES: Final = Table(
    # A profile is never changed: another one comes in its place, and what runs keeps the one that it began with.
    "sensitivity_profiles",
    METADATA,
    # A model, or the fingerprint of a job.
    key("name", NAME),
    # Of the profiles, in which this one came.
    key("revision", BigInteger),
    required("cpus_per_gpu", ARRAY(Float)),
    required("memory_gib_per_gpu", ARRAY(Float)),
    # Row by row, a row for each amount of CPUs.
    required("throughput", ARRAY(Float)),
    Index("sensitivity_profiles_revision", "revision"),
)
