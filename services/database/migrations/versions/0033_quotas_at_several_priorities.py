"""Tenants may have quotas at several priorities, and workloads ask for one of them."""

from __future__ import annotations

from alembic import op

revision = "0033"
down_revision = "0034"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds the columns: each tenant has the one quota that it had, and nothing asks for another priority."""
    op.execute("""ALTER TABLE tenants ADD COLUMN further_quotas JSONB NOT NULL DEFAULT '{"quotas": {}}'""")
    op.execute("ALTER TABLE workloads ADD COLUMN asked_priority SMALLINT")
    op.execute("ALTER TABLE queue_entries ADD COLUMN asked_priority SMALLINT")


def downgrade() -> None:
    """Drops them: what asked for another priority than its tenant's has that one from then on, in the old quota's buckets."""
    op.execute("ALTER TABLE queue_entries DROP COLUMN asked_priority")
    op.execute("ALTER TABLE workloads DROP COLUMN asked_priority")
    op.execute("ALTER TABLE tenants DROP COLUMN further_quotas")
