"""The catalog of the tables that workloads read: sizes, homes, replicas."""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, ForeignKey, Table, text

from services.database.tables.definition import METADATA, NAME, key, required

DATA_TABLES: Final = Table(
    "data_tables",
    METADATA,
    key("data_table", NAME),
    required("size_bytes", BigInteger),
    required("home", NAME),
    # Of the catalog, in which it last changed.
    required("revision", BigInteger, server_default=text("0"), index=True),
)

DROPPED_DATA_TABLES: Final = Table(
    # A table that is gone, remembered so that those that know the catalog of an earlier revision can forget it.
    "dropped_data_tables",
    METADATA,
    key("data_table", NAME),
    required("revision", BigInteger, index=True),
)

DATA_TABLE_REPLICAS: Final = Table(
    # Where a complete copy is, besides the home region.
    "data_table_replicas",
    METADATA,
    key("data_table", NAME, ForeignKey("data_tables.data_table", ondelete="CASCADE")),
    key("region", NAME),
)
