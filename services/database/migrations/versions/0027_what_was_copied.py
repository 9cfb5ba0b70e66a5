"""A copy counts only while the catalog says of the table what it said when the copy began."""

from __future__ import annotations

from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds the column: of copies under way nobody knows it, and they are compared by their size alone, as before."""
    op.execute("ALTER TABLE data_migrations ADD COLUMN table_revision BIGINT")


def downgrade() -> None:
    """Drops it: copies are compared by the size of their table alone."""
    op.execute("ALTER TABLE data_migrations DROP COLUMN table_revision")
