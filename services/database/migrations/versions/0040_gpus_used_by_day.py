"""What workloads held of each GPU model, by day: it outlives their attempts."""

from __future__ import annotations

from alembic import op

revision = "0040"
down_revision = "0038"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Of attempts that are still there: as far as they are counted already, by what they held last."""
    op.execute("""
        CREATE TABLE gpu_use (
            workload TEXT COLLATE "C" NOT NULL,
            gpu_model TEXT COLLATE "C" NOT NULL,
            day_start_s FLOAT NOT NULL,
            tenant TEXT COLLATE "C" NOT NULL,
            gpu_seconds FLOAT NOT NULL,
            PRIMARY KEY (workload, gpu_model, day_start_s)
        ) WITH (fillfactor = 80)""")
    op.execute("CREATE INDEX gpu_use_days ON gpu_use (day_start_s)")
    op.execute("""
        INSERT INTO gpu_use (workload, gpu_model, day_start_s, tenant, gpu_seconds)
        SELECT h.workload, h.gpu_model, d.number * 86400.0, min(h.tenant),
               sum(h.gpus * (least(h.counted_s, (d.number + 1) * 86400.0) - greatest(h.dispatched_s, d.number * 86400.0)))
          FROM (SELECT a.workload, a.attempt, a.tenant, a.dispatched_s, a.counted_s,
                       coalesce(m.gpu_model, j.gpu_model, '') AS gpu_model, sum(cardinality(p.gpu_indices)) AS gpus
                  FROM attempts a JOIN placements p USING (workload, attempt) LEFT JOIN machines m USING (machine)
                  LEFT JOIN jobs j ON j.workload = p.workload AND j.job = p.job
                 WHERE a.counted_s > a.dispatched_s GROUP BY 1, 2, 3, 4, 5, 6) AS h,
               generate_series(floor(h.dispatched_s / 86400.0)::bigint, ceil(h.counted_s / 86400.0)::bigint - 1)
                 AS d (number)
         WHERE h.gpus > 0 GROUP BY h.workload, h.gpu_model, d.number""")


def downgrade() -> None:
    """Drops it."""
    op.execute("DROP TABLE gpu_use")
