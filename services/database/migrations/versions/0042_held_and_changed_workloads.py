"""Workloads that users hold, send back to the queue, or change while they wait."""

from __future__ import annotations

from alembic import op

revision = "0042"
down_revision = "0041"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Nobody holds anything yet, and nothing has been changed."""
    op.execute("ALTER TABLE workloads ADD COLUMN held_by TEXT, ADD COLUMN requeue_by TEXT, ADD COLUMN revision BIGINT")
    op.execute("CREATE SEQUENCE workload_revisions")
    op.execute("CREATE INDEX workloads_held ON workloads (workload) WHERE held_by IS NOT NULL")
    op.execute("CREATE INDEX workloads_changed ON workloads (revision) WHERE revision IS NOT NULL")


def downgrade() -> None:
    """Drops them: what is held would never be ranked again, so that there must be nothing that is."""
    op.execute("""DO $$ BEGIN
        IF EXISTS (SELECT FROM workloads WHERE held_by IS NOT NULL) THEN
            RAISE EXCEPTION 'workloads are held; release or cancel them before this database is taken back';
        END IF; END $$""")
    op.execute("DROP INDEX workloads_changed, workloads_held")
    op.execute("DROP SEQUENCE workload_revisions")
    op.execute("ALTER TABLE workloads DROP COLUMN held_by, DROP COLUMN requeue_by, DROP COLUMN revision")
