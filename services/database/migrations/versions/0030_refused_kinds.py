"""Which kinds of workloads no region has room for, and how far the auctions have walked along the queue."""

from __future__ import annotations

from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None

_COLUMNS = """
ALTER TABLE workloads ADD COLUMN kind TEXT COLLATE "C";
ALTER TABLE queue_entries ADD COLUMN kind TEXT COLLATE "C", ADD COLUMN asked_in_walk BIGINT"""

_KINDS = "CREATE INDEX queue_kinds ON queue_entries (kind, within_quota, state, priority, level)"

_REFUSALS = """
CREATE TABLE auction_refusals (
    kind TEXT COLLATE "C" NOT NULL,
    tenant TEXT COLLATE "C" NOT NULL,
    within_quota BOOLEAN NOT NULL,
    priority SMALLINT NOT NULL,
    level SMALLINT NOT NULL,
    holds BOOLEAN NOT NULL,
    has_room BOOLEAN NOT NULL,
    walk BIGINT NOT NULL,
    round BIGINT NOT NULL,
    workload TEXT COLLATE "C" NOT NULL,
    state TEXT COLLATE "C" NOT NULL,
    reason TEXT NOT NULL,
    diagnosis JSONB NOT NULL,
    PRIMARY KEY (kind, tenant, within_quota)
)"""

_WALK = """
CREATE TABLE auction_walks (
    name TEXT COLLATE "C" NOT NULL,
    walk BIGINT NOT NULL,
    scan_pass BIGINT NOT NULL,
    ended BOOLEAN NOT NULL,
    at_head BOOLEAN NOT NULL,
    PRIMARY KEY (name)
)"""


def upgrade() -> None:
    """Adds them. What is queued already has no kind, and is asked again and again, as before."""
    op.execute(_COLUMNS)
    op.execute(_KINDS)
    op.execute(_REFUSALS)
    op.execute(_WALK)


def downgrade() -> None:
    """Drops them."""
    op.execute("DROP TABLE auction_walks")
    op.execute("DROP TABLE auction_refusals")
    op.execute("DROP INDEX queue_kinds")
    op.execute("ALTER TABLE queue_entries DROP COLUMN asked_in_walk, DROP COLUMN kind")
    op.execute("ALTER TABLE workloads DROP COLUMN kind")
