"""Leases have a secret beside their number, and a service has secrets that its processes share."""

from __future__ import annotations

from alembic import op

revision = "0057"
down_revision = "0056"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Leases that are held now were given without one: until they are acquired anew, their number alone counts."""
    op.execute("ALTER TABLE leases ADD COLUMN secret_hash TEXT, ADD COLUMN secret_token BIGINT")
    op.execute("""
        CREATE TABLE service_secrets (
            name TEXT COLLATE "C" PRIMARY KEY,
            secret TEXT NOT NULL
        )""")


def downgrade() -> None:
    """Numbers alone count again; running tasks cannot report to managers that come later."""
    op.execute("DROP TABLE service_secrets")
    op.execute("ALTER TABLE leases DROP COLUMN secret_hash, DROP COLUMN secret_token")
