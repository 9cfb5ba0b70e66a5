"""Workloads may want somebody to be told of what happens to them."""

from __future__ import annotations

from alembic import op

revision = "0049"
down_revision = "0048"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Nobody wants it yet, so that the event log need not be read from its beginning."""
    op.execute("""
        CREATE TABLE notified_workloads (
            workload TEXT COLLATE "C" PRIMARY KEY,
            url TEXT NOT NULL,
            host TEXT COLLATE "C" NOT NULL,
            events TEXT[] NOT NULL,
            delivered INTEGER NOT NULL DEFAULT 0,
            given_up INTEGER NOT NULL DEFAULT 0,
            error TEXT NOT NULL DEFAULT ''
        ) WITH (fillfactor = 80)""")
    op.execute("""
        CREATE TABLE notification_deliveries (
            workload TEXT COLLATE "C" NOT NULL,
            sequence BIGINT NOT NULL,
            host TEXT COLLATE "C" NOT NULL,
            body TEXT NOT NULL,
            made_real_s DOUBLE PRECISION NOT NULL,
            tries INTEGER NOT NULL DEFAULT 0,
            due_real_s DOUBLE PRECISION NOT NULL,
            failing_since_real_s DOUBLE PRECISION,
            PRIMARY KEY (workload, sequence)
        ) WITH (fillfactor = 80)""")
    op.execute("CREATE INDEX notification_deliveries_due ON notification_deliveries (due_real_s)")
    op.execute("""
        CREATE TABLE notification_progress (
            one BOOLEAN PRIMARY KEY,
            through_sequence BIGINT NOT NULL
        )""")
    op.execute("INSERT INTO notification_progress SELECT true, coalesce(max(sequence), 0) FROM events")


def downgrade() -> None:
    """Drops the tables: what was not sent yet is not sent any more."""
    op.execute("DROP TABLE notification_progress, notification_deliveries, notified_workloads")
