"""Callers prove who they are by tokens, and packages belong to tenants."""

from __future__ import annotations

from alembic import op

revision = "0055"
down_revision = "0054"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Nobody has a token yet. Packages of before belong to no tenant: who is limited to tenants uploads them anew."""
    op.execute("""
        CREATE TABLE access_tokens (
            token TEXT COLLATE "C" PRIMARY KEY,
            secret_hash BYTEA NOT NULL,
            name TEXT COLLATE "C" NOT NULL,
            role TEXT COLLATE "C" NOT NULL,
            tenants TEXT[] NOT NULL DEFAULT '{}',
            made_by TEXT COLLATE "C" NOT NULL,
            made_at TIMESTAMPTZ NOT NULL DEFAULT now(),
            expires_at TIMESTAMPTZ,
            revoked_at TIMESTAMPTZ,
            revoked_by TEXT COLLATE "C" NOT NULL DEFAULT '',
            used_at TIMESTAMPTZ
        )""")
    op.execute("""
        CREATE TABLE package_owners (
            package TEXT COLLATE "C" NOT NULL REFERENCES packages (package) ON DELETE CASCADE,
            tenant TEXT COLLATE "C" NOT NULL,
            PRIMARY KEY (package, tenant)
        )""")


def downgrade() -> None:
    """Programs of before ask nobody."""
    op.execute("DROP TABLE package_owners")
    op.execute("DROP TABLE access_tokens")
