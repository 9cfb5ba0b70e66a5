"""Bids stand in the answers of the regions, and what came of them in the outcome of the round: they have no table."""

from __future__ import annotations

from alembic import op

revision = "0034"
down_revision = "0031"
branch_labels = None
depends_on = None

_BIDS = """
CREATE TABLE bids (
    round BIGINT NOT NULL,
    workload TEXT COLLATE "C" NOT NULL,
    region TEXT COLLATE "C" NOT NULL,
    score JSONB NOT NULL,
    outcome TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (round, workload, region),
    FOREIGN KEY (round) REFERENCES auction_rounds (round) ON DELETE CASCADE
)"""


def upgrade() -> None:
    """Drops the table: nothing reads it."""
    op.execute("DROP TABLE bids")


def downgrade() -> None:
    """Makes it again, empty: it is filled by the rounds that follow."""
    op.execute(_BIDS)
    op.execute("CREATE INDEX bids_workload ON bids (workload, round)")
