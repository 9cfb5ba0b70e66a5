"""Processes that stand by for a lease are known."""

from __future__ import annotations

from alembic import op

revision = "0058"
down_revision = "0057"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Programs of before stand by without saying so."""
    op.execute("""
        CREATE TABLE standbys (
            name TEXT COLLATE "C" NOT NULL,
            holder TEXT COLLATE "C" NOT NULL,
            address TEXT NOT NULL,
            process_id INTEGER NOT NULL,
            since TIMESTAMPTZ NOT NULL,
            seen_until TIMESTAMPTZ NOT NULL,
            PRIMARY KEY (name, holder)
        )""")


def downgrade() -> None:
    """Who stands by goes on doing so."""
    op.execute("DROP TABLE standbys")
