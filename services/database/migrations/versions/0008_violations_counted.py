"""Violations of invariants can be counted without reading the whole event log."""

from __future__ import annotations

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds the index."""
    op.execute("CREATE INDEX events_invariant_broken ON events (region) WHERE event = 'invariant_broken'")


def downgrade() -> None:
    """Drops the index."""
    op.execute("DROP INDEX events_invariant_broken")
