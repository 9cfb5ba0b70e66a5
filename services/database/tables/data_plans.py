"""Plans of where tables should be: how far the planning is, what it found, and which moves it proposes."""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Float, ForeignKey, Identity, Index, Integer, SmallInteger, Table, Text, text

from services.database.tables.definition import DOCUMENT, METADATA, NAME, REWRITTEN, key, optional, required

DATA_PLANS: Final = Table(
    "data_plans",
    METADATA,
    key("plan", BigInteger, Identity()),
    # services.database.plan_store.PlanState.
    required("state", NAME),
    # As formats.placement_settings has them.
    required("settings", DOCUMENT),
    required("asked_s", Float),
    optional("ended_s", Float),
    optional("applied_s", Float),
    # While it is being made: what is done at the moment, and the share of that which is done.
    required("stage", Text, server_default=text("''")),
    required("done", Float, server_default=text("0")),
    # Of the catalog that it was made for.
    optional("catalog_revision", BigInteger),
    # What `topmast data plan --json` prints. Null: there is none yet.
    optional("figures", DOCUMENT),
    # How many moves and bytes were handed to the migrations when it was applied, and how many passed over. Null: it was not.
    optional("applied", DOCUMENT),
    # Why there is none.
    required("problem", Text, server_default=text("''")),
    # At most one is being made at a time.
    Index("data_plans_running", "state", unique=True, postgresql_where=text("state = 'running'")),
    postgresql_with=REWRITTEN,
)

DATA_PLAN_MOVES: Final = Table(
    # What a plan proposes, in the order in which it should happen.
    "data_plan_moves",
    METADATA,
    key("plan", BigInteger, ForeignKey("data_plans.plan", ondelete="CASCADE")),
    key("position", Integer),
    required("data_table", NAME, index=True),
    # The home when the plan was made.
    required("source", NAME),
    required("target", NAME),
    # `home`: the target becomes the home and the source gives up its copy; `home_keeping_copy`: the source keeps it;
    # `copy`: the target gets one more.
    required("kind", NAME),
    required("size_bytes", BigInteger),
    # The copy holds the newest partitions, which are this part of the table's bytes; null: it holds all.
    optional("newest_share", Float),
    # The highest of the priorities of its readers; null: nobody reads it.
    optional("priority", SmallInteger),
    # Why: which terms become better by how much.
    required("reason", Text),
)

DATA_COMMUNITIES: Final = Table(
    # Tables that the same jobs read, as the newest plan found them.
    "data_communities",
    METADATA,
    key("plan", BigInteger, ForeignKey("data_plans.plan", ondelete="CASCADE")),
    key("community", Integer),
    # As data_placement.community_explanation.Community.
    required("described", DOCUMENT),
)

DATA_TABLE_COMMUNITIES: Final = Table(
    # The community of each table that has one.
    "data_table_communities",
    METADATA,
    key("plan", BigInteger, ForeignKey("data_plans.plan", ondelete="CASCADE")),
    key("data_table", NAME),
    required("community", Integer),
)

DATA_HINTS: Final = Table(
    # The region that the last plan gave to a recurring workload.
    "data_hints",
    METADATA,
    key("fingerprint", NAME),
    required("region", NAME),
    required("plan", BigInteger),
)
