"""Attempts say with which exit code the task ended that is to blame for their failure."""

from __future__ import annotations

from alembic import op

revision = "0043"
down_revision = "0042"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Of attempts that have ended already nobody knows."""
    op.execute("ALTER TABLE attempts ADD COLUMN exit_code INTEGER")


def downgrade() -> None:
    """Drops it: reasons still say it in words."""
    op.execute("ALTER TABLE attempts DROP COLUMN exit_code")
