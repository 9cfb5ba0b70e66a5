"""How fast a live attempt works stands with its progress, in one row."""

from __future__ import annotations

from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Moves the column: the next report of each live attempt fills it."""
    op.execute("ALTER TABLE attempts ADD COLUMN throughput FLOAT NOT NULL DEFAULT 0")
    op.execute(
        """UPDATE attempts a SET throughput = w.throughput FROM workloads w
            WHERE w.workload = a.workload AND a.ended_s IS NULL AND w.throughput <> 0"""
    )
    op.execute("ALTER TABLE workloads DROP COLUMN throughput")


def downgrade() -> None:
    """Moves it back, and the progress of live attempts to their workloads."""
    op.execute("ALTER TABLE workloads ADD COLUMN throughput FLOAT NOT NULL DEFAULT 0")
    op.execute(
        """UPDATE workloads w SET throughput = a.throughput, progress = greatest(w.progress, a.progress),
                  checkpoint_progress = greatest(w.checkpoint_progress, a.checkpoint_progress)
             FROM attempts a WHERE w.workload = a.workload AND a.ended_s IS NULL"""
    )
    op.execute("ALTER TABLE attempts DROP COLUMN throughput")
