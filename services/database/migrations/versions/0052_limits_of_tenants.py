"""Tenants may have limits of what waits, what runs and how fast they submit."""

from __future__ import annotations

from alembic import op

revision = "0052"
down_revision = "0049"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Nobody has any yet."""
    op.execute("""ALTER TABLE tenants ADD COLUMN limits JSONB NOT NULL DEFAULT '{"limits": {}}'""")
    op.execute("ALTER TABLE queue_entries ADD COLUMN at_limit BOOLEAN NOT NULL DEFAULT FALSE")


def downgrade() -> None:
    """Drops them: nothing is limited from then on."""
    op.execute("ALTER TABLE queue_entries DROP COLUMN at_limit")
    op.execute("ALTER TABLE tenants DROP COLUMN limits")
