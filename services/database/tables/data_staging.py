"""Where the files of an import lie before they are merged into the catalog, set by set. Empty but for the time of an import.

They are unlogged: what a crash leaves of an import is nothing.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Boolean, Float, Integer, SmallInteger, Table

from services.database.tables.definition import METADATA, NAME, optional, required

STAGED_TABLES: Final = Table(
    "data_staged_tables",
    METADATA,
    # In the file, from 0 on.
    required("position", Integer),
    required("data_table", NAME),
    required("size_bytes", BigInteger),
    required("home", NAME),
    optional("last_partition_s", Float),
    prefixes=["UNLOGGED"],
)

STAGED_COPIES: Final = Table(
    "data_staged_copies",
    METADATA,
    required("data_table", NAME),
    required("region", NAME),
    optional("complete_until_s", Float),
    prefixes=["UNLOGGED"],
)

STAGED_PARTITIONS: Final = Table(
    "data_staged_partitions",
    METADATA,
    required("data_table", NAME),
    required("partition", NAME),
    required("size_bytes", BigInteger),
    required("checksum", NAME),
    required("created_s", Float),
    prefixes=["UNLOGGED"],
)

STAGED_READERS: Final = Table(
    "data_staged_readers",
    METADATA,
    required("position", Integer),
    required("name", NAME),
    required("training", Boolean),
    required("application", NAME),
    required("gpu_model", NAME),
    required("priority", SmallInteger),
    required("weight", Float),
    required("gpu_hours", Float),
    required("cpu_hours", Float),
    prefixes=["UNLOGGED"],
)

STAGED_READS: Final = Table(
    "data_staged_reads",
    METADATA,
    required("table_position", Integer),
    required("reader_position", Integer),
    required("newest_share", Float),
    prefixes=["UNLOGGED"],
)
