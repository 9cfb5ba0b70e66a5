"""When attempts were asked to leave for others."""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds the column; of evictions before nothing is known."""
    op.execute("ALTER TABLE attempts ADD COLUMN preempted_s FLOAT")


def downgrade() -> None:
    """Drops the column."""
    op.execute("ALTER TABLE attempts DROP COLUMN preempted_s")
