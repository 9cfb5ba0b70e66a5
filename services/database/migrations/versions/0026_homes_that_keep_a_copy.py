"""A table may leave a copy behind where its home was."""

from __future__ import annotations

from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds the column: what is under way gives its old copy up, as before."""
    op.execute("ALTER TABLE data_migrations ADD COLUMN keeps_old_copy BOOLEAN NOT NULL DEFAULT false")


def downgrade() -> None:
    """Drops it: what keeps an old copy and is under way gives it up."""
    op.execute("ALTER TABLE data_migrations DROP COLUMN keeps_old_copy")
