"""The catalog of the tables that workloads read: namespaces, tables, partitions, homes, copies; and what regions can store.

The namespace of a table is the part of its name before the first dot, so it stands in no column: the tables of a namespace
are a range of the primary key.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Boolean, Float, ForeignKey, ForeignKeyConstraint, Identity, SmallInteger, Table, text

from services.database.tables.definition import METADATA, NAME, key, optional, required

DATA_NAMESPACES: Final = Table(
    # What holds for all tables of a namespace. One without a row has no owner, and the defaults.
    "data_namespaces",
    METADATA,
    key("namespace", NAME),
    # Null: nobody's.
    optional("tenant", NAME),
    # How many regions besides the home are to hold a copy against disasters.
    required("disaster_copies", SmallInteger, server_default=text("1")),
)

DATA_TABLES: Final = Table(
    "data_tables",
    METADATA,
    key("data_table", NAME),
    # Of its partitions together, where it has any.
    required("size_bytes", BigInteger),
    required("home", NAME),
    # Of the catalog, in which it last changed.
    required("revision", BigInteger, server_default=text("0"), index=True),
    # Stands for the name where there are millions of references.
    required("number", BigInteger, Identity(), unique=True),
    required("created_s", Float, server_default=text("0")),
    # When the home got its newest partition. Null: the table has no partitions, and never changes.
    optional("last_partition_s", Float),
    # Whether a fleet file says what it is and where. Others were imported, or moved, and no fleet file changes them.
    required("from_fleet", Boolean, server_default=text("true")),
)

DROPPED_DATA_TABLES: Final = Table(
    # A table that is gone, remembered so that those that know the catalog of an earlier revision can forget it.
    "dropped_data_tables",
    METADATA,
    key("data_table", NAME),
    required("revision", BigInteger, index=True),
)

DATA_PARTITIONS: Final = Table(
    # Immutable: a partition comes and goes, and never changes in between. The home has all of them.
    "data_partitions",
    METADATA,
    key("data_table", NAME, ForeignKey("data_tables.data_table", ondelete="CASCADE")),
    key("partition", NAME),
    required("size_bytes", BigInteger),
    # `algorithm:hexadecimal digits`; empty: not known.
    required("checksum", NAME, server_default=text("''")),
    required("created_s", Float),
)

DATA_TABLE_REPLICAS: Final = Table(
    # Where a complete copy is, besides the home region.
    "data_table_replicas",
    METADATA,
    key("data_table", NAME, ForeignKey("data_tables.data_table", ondelete="CASCADE")),
    key("region", NAME),
    # It has every partition that was created up to then. Null: nobody knows what it has.
    optional("complete_until_s", Float),
)

DATA_PARTITION_COPIES: Final = Table(
    # Partitions that a region holds of a table of which it has neither the home nor a complete copy.
    "data_partition_copies",
    METADATA,
    key("data_table", NAME),
    key("region", NAME),
    key("partition", NAME),
    required("copied_s", Float),
    ForeignKeyConstraint(
        ["data_table", "partition"], ["data_partitions.data_table", "data_partitions.partition"], ondelete="CASCADE"
    ),
)

DATA_REGIONS: Final = Table(
    # What a region can store. One without a row has no limit that anybody knows of.
    "data_regions",
    METADATA,
    key("region", NAME),
    required("storage_bytes", BigInteger),
)

DATA_LINKS: Final = Table(
    # What can be copied from one region to another in a day. Where any pair has a row, one without carries nothing.
    "data_links",
    METADATA,
    key("source", NAME),
    key("target", NAME),
    required("bytes_per_day", Float),
)
