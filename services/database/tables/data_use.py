"""Who reads which tables, and what that needs of a region: from workloads that ended, and declared by an import."""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Boolean, Float, Identity, Index, Integer, SmallInteger, Table, text

from services.database.tables.definition import METADATA, NAME, REWRITTEN, key, optional, required

DATA_READERS: Final = Table(
    # Something that reads the same tables again and again: a recurring workload, or a job of an analytics application.
    "data_readers",
    METADATA,
    key("reader", BigInteger, Identity()),
    required("name", NAME, unique=True),
    # Training (its tables must be in one region), or analytics.
    required("training", Boolean),
    # Of the workload (domain.workload_fingerprint). Null: it was declared by an import.
    optional("fingerprint", NAME),
    # Empty: none.
    required("application", NAME, server_default=text("''")),
    required("gpu_model", NAME, server_default=text("''")),
    # 0 is the highest.
    required("priority", SmallInteger, server_default=text("0")),
    # How much its reads count.
    required("weight", Float, server_default=text("1")),
    # What it needs in a day by its declaration; what was observed in the days below counts instead, where there is any.
    required("gpu_hours", Float, server_default=text("0")),
    required("cpu_hours", Float, server_default=text("0")),
    Index("data_readers_fingerprint", "fingerprint", postgresql_where=text("fingerprint IS NOT NULL")),
)

DATA_READER_DAYS: Final = Table(
    # What a reader used on one day; each run read all tables of the reader.
    "data_reader_days",
    METADATA,
    key("reader", BigInteger),
    # Since the epoch, UTC.
    key("day", Integer),
    required("runs", Integer),
    required("gpu_hours", Float),
    required("cpu_hours", Float),
    postgresql_with=REWRITTEN,
)

DATA_READS: Final = Table(
    # Which tables a reader reads. No foreign keys: five million of them are written at once, and checking each would
    # take longer than all the rest.
    "data_reads",
    METADATA,
    key("table_number", BigInteger),
    key("reader", BigInteger),
    # It reads the newest partitions, which are this part of the table's bytes; 1: all of it.
    required("newest_share", Float, server_default=text("1")),
)

DATA_USE_COUNTED: Final = Table(
    # One row: up to which place of the event log the ended workloads are in the tables above.
    "data_use_counted",
    METADATA,
    key("what", NAME),
    required("through_sequence", BigInteger),
)

DATA_GPU_SUPPLY: Final = Table(
    # What was declared instead of what the machines of the fleet give. A region without a row goes by its machines.
    "data_gpu_supply",
    METADATA,
    key("region", NAME),
    key("gpu_model", NAME),
    required("gpu_hours", Float),
)

DATA_QUOTAS: Final = Table(
    # CPU hours that an analytics application may use in a region in a day.
    "data_quotas",
    METADATA,
    key("application", NAME),
    key("region", NAME),
    required("cpu_hours", Float),
)
