"""Why a workload waits, as a diagnosis beside the sentence."""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

# Answers have another form since: regions give them once more.
_FORGET_ANSWERS = """
DELETE FROM auction_responses WHERE round IN (SELECT round FROM auction_rounds WHERE closed_at IS NULL)"""


def upgrade() -> None:
    """Adds the column; what waits already has a sentence only, until an auction says more."""
    op.execute("ALTER TABLE queue_entries ADD COLUMN diagnosis JSONB")
    op.execute(_FORGET_ANSWERS)


def downgrade() -> None:
    """Drops the column."""
    op.execute("ALTER TABLE queue_entries DROP COLUMN diagnosis")
    op.execute(_FORGET_ANSWERS)
