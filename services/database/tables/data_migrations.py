"""Migrations of tables between regions: what is to be moved, and how far it is."""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Boolean, Float, Identity, Index, Integer, SmallInteger, Table, Text, text

from services.database.tables.definition import DOCUMENT, METADATA, NAME, REWRITTEN, key, optional, required

_ACTIVE: Final = text("ended_s IS NULL")

DATA_MIGRATIONS: Final = Table(
    "data_migrations",
    METADATA,
    key("number", BigInteger, Identity()),
    required("data_table", NAME, index=True),
    # The home when it was asked for.
    required("source", NAME),
    required("target", NAME),
    # Whether the target becomes the home; else it gets one copy more.
    required("moves_home", Boolean),
    # Whether the old home keeps a copy; else it gives it up.
    required("keeps_old_copy", Boolean, server_default=text("false")),
    # Of the table when it was asked for, or when its copy last began.
    required("size_bytes", BigInteger),
    # Among those with a deadline; 0 is the highest.
    required("priority", SmallInteger, server_default=text("0")),
    # Null: in the background.
    optional("deadline_s", Float),
    # Workloads wait for it, and when none does any more it is given up.
    required("on_demand", Boolean, server_default=text("false")),
    # data_placement.migrations.life_cycle.MigrationState.
    required("state", NAME),
    # A copy of so many of the newest partitions alone; null: of the whole table.
    optional("newest_partitions", Integer),
    # Which partitions those were when the copy last began: a list of names. Null: all, or it has not begun.
    optional("partitions", DOCUMENT),
    # Whether what movers wrote only to make the copy is gone from all regions. False from the switch on until it is.
    required("settled", Boolean, server_default=text("true")),
    # Of the table in the catalog when the copy last began: what is copied is what it was then. Null: it has not begun.
    optional("table_revision", BigInteger),
    # How it is copied: [[[region, ...], bytes], ...]; null: it has not begun, or nothing has to be copied.
    optional("parts", DOCUMENT),
    # What the target needs room for.
    required("copy_bytes", BigInteger, server_default=text("0")),
    required("copied_bytes", BigInteger, server_default=text("0")),
    required("failures", Integer, server_default=text("0")),
    # After a failure it is tried again, after the switch the old copy is deleted: not before then.
    required("retry_s", Float, server_default=text("0")),
    # Why it failed, waits or was given up.
    required("reason", Text, server_default=text("''")),
    required("planned_s", Float),
    # When its copy last began: the quota of a day counts from that.
    optional("begun_s", Float),
    optional("ended_s", Float),
    # The plan that it comes from; null: none.
    optional("plan", BigInteger),
    # Of the lease under which it is carried out at present; 0: nobody does.
    required("token", BigInteger, server_default=text("0")),
    Index("ix_data_migrations_begun_s", "begun_s"),
    Index("data_migrations_active", "data_table", "target", unique=True, postgresql_where=_ACTIVE),
    Index("data_migrations_unsettled", "number", postgresql_where=text("NOT settled")),
    # A table moves to one new home at a time.
    Index("data_migrations_home", "data_table", unique=True, postgresql_where=text("ended_s IS NULL AND moves_home")),
    postgresql_with=REWRITTEN,
)
