"""Clusters have a placement mechanism."""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Clusters that are there are packed, as before."""
    op.execute("""ALTER TABLE clusters ADD COLUMN mechanism TEXT COLLATE "C" DEFAULT 'packing' NOT NULL""")


def downgrade() -> None:
    """Forgets which mechanism a cluster has."""
    op.execute("ALTER TABLE clusters DROP COLUMN mechanism")
