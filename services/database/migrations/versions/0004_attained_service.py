"""The service that workloads have attained, and what estimates of run times go by."""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_UP = """
ALTER TABLE workloads ADD COLUMN attained_s FLOAT DEFAULT 0 NOT NULL,
                      ADD COLUMN attained_gpu_s FLOAT DEFAULT 0 NOT NULL,
                      ADD COLUMN declared_s FLOAT;
ALTER TABLE queue_entries ADD COLUMN queued_since_s FLOAT,
                          ADD COLUMN attained_gpu_s FLOAT DEFAULT 0 NOT NULL;
ALTER TABLE attempts ADD COLUMN leaving_s FLOAT,
                     ADD COLUMN received_gpu_s FLOAT DEFAULT 0 NOT NULL,
                     ADD COLUMN received_to_s FLOAT;
UPDATE workloads w SET attained_s = past.run_s, attained_gpu_s = past.gpu_s
  FROM (SELECT workload, sum(ended_s - started_s) AS run_s, sum(gpus * (ended_s - started_s)) AS gpu_s
          FROM attempts WHERE ended_s > started_s GROUP BY workload) AS past
 WHERE w.workload = past.workload;
UPDATE queue_entries q SET attained_gpu_s = w.attained_gpu_s FROM workloads w WHERE w.workload = q.workload;
"""

_DOWN = """
ALTER TABLE attempts DROP COLUMN leaving_s, DROP COLUMN received_gpu_s, DROP COLUMN received_to_s;
ALTER TABLE queue_entries DROP COLUMN queued_since_s, DROP COLUMN attained_gpu_s;
ALTER TABLE workloads DROP COLUMN attained_s, DROP COLUMN attained_gpu_s, DROP COLUMN declared_s;
"""


def upgrade() -> None:
    """Adds the columns; what earlier attempts received is counted from them."""
    op.execute(_UP)


def downgrade() -> None:
    """Forgets it."""
    op.execute(_DOWN)
