"""Indexes for what lists of workloads and the event log are filtered by, and for what is old."""

from __future__ import annotations

from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Makes them."""
    op.execute("CREATE INDEX workloads_newest_of_state ON workloads (state, submitted_s DESC, workload DESC)")
    op.execute("CREATE INDEX events_tenant ON events (tenant, sequence) WHERE tenant IS NOT NULL")
    op.execute("CREATE INDEX events_kind ON events (event, sequence)")
    op.execute("CREATE INDEX events_time ON events USING brin (t)")


def downgrade() -> None:
    """Drops them."""
    op.execute("DROP INDEX events_time")
    op.execute("DROP INDEX events_kind")
    op.execute("DROP INDEX events_tenant")
    op.execute("DROP INDEX workloads_newest_of_state")
