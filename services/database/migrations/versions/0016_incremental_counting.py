"""What is counted now and then is found by an index: completed workloads by their ends, iteration times by their change."""

from __future__ import annotations

from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds the indexes, and to iteration times the transaction that changed them last."""
    op.execute("DROP INDEX workloads_uncounted")
    op.execute(
        "CREATE INDEX workloads_uncounted ON workloads (ended_s, workload)"
        " WHERE state = 'COMPLETED' AND NOT run_counted"
    )
    op.execute("ALTER TABLE iteration_times ADD COLUMN changed_by BIGINT DEFAULT 0 NOT NULL")
    op.execute("CREATE INDEX iteration_times_changed ON iteration_times (changed_by)")
    op.execute("ALTER TABLE packlimits DROP COLUMN attempts")


def downgrade() -> None:
    """Drops them."""
    op.execute("ALTER TABLE packlimits ADD COLUMN attempts BIGINT DEFAULT 0 NOT NULL")
    op.execute("ALTER TABLE packlimits ALTER COLUMN attempts DROP DEFAULT")
    op.execute("ALTER TABLE iteration_times DROP COLUMN changed_by")
    op.execute("DROP INDEX workloads_uncounted")
    op.execute("CREATE INDEX workloads_uncounted ON workloads (workload) WHERE state = 'COMPLETED' AND NOT run_counted")
