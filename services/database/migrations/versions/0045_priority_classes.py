"""Queued workloads have a priority class among those of their tenant."""

from __future__ import annotations

from alembic import op

revision = "0045"
down_revision = "0044"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """What is queued already is of the normal class."""
    op.execute("ALTER TABLE queue_entries ADD COLUMN importance SMALLINT")


def downgrade() -> None:
    """Drops it: credit alone orders the workloads of a tenant again."""
    op.execute("ALTER TABLE queue_entries DROP COLUMN importance")
