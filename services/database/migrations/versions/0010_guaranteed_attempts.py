"""Attempts are guaranteed, or not, for as long as they live."""

from __future__ import annotations

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds the column; of attempts that were dispatched before, what they are now is the best that is known."""
    op.execute("ALTER TABLE attempts ADD COLUMN guaranteed BOOLEAN DEFAULT false NOT NULL")
    op.execute("UPDATE attempts SET guaranteed = true WHERE within_quota")


def downgrade() -> None:
    """Drops the column."""
    op.execute("ALTER TABLE attempts DROP COLUMN guaranteed")
