"""Workloads can be elements of arrays, of which only so many may be in the queue or running at once."""

from __future__ import annotations

from alembic import op

revision = "0048"
down_revision = "0047"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """There are no arrays yet."""
    op.execute("""ALTER TABLE workloads ADD COLUMN array_id TEXT COLLATE "C",
        ADD COLUMN beside_first BOOLEAN NOT NULL DEFAULT false, ADD COLUMN awaits_turn BOOLEAN NOT NULL DEFAULT false""")
    op.execute("""CREATE TABLE workload_arrays (
        array_id TEXT COLLATE "C" PRIMARY KEY, at_most INTEGER NOT NULL, waiting BOOLEAN NOT NULL)""")
    op.execute("CREATE INDEX workload_arrays_waiting ON workload_arrays (array_id) WHERE waiting")
    op.execute("""CREATE INDEX workloads_of_array ON workloads (array_id, state, workload)
        WHERE array_id IS NOT NULL""")
    op.execute("CREATE INDEX workloads_awaiting_turn ON workloads (array_id, workload) WHERE awaits_turn")
    op.execute("""CREATE INDEX workloads_active_of_array ON workloads (array_id)
        WHERE array_id IS NOT NULL AND NOT awaits_turn AND state NOT IN ('COMPLETED', 'FAILED', 'CANCELLED')""")
    op.execute("""CREATE INDEX workloads_newest_rows ON workloads (submitted_s DESC, workload DESC)
        WHERE NOT beside_first""")
    op.execute("""CREATE INDEX workloads_newest_rows_of_tenant ON workloads (tenant, submitted_s DESC, workload DESC)
        WHERE NOT beside_first""")


def downgrade() -> None:
    """Drops them: what waits for its turn would never be ranked, so that there must be nothing that does."""
    op.execute("""DO $$ BEGIN
        IF EXISTS (SELECT FROM workloads WHERE awaits_turn) THEN
            RAISE EXCEPTION 'elements of arrays wait for their turn; cancel them before this database is taken back';
        END IF; END $$""")
    op.execute("""DROP INDEX workloads_newest_rows_of_tenant, workloads_newest_rows, workloads_active_of_array,
        workloads_awaiting_turn, workloads_of_array""")
    op.execute("DROP TABLE workload_arrays")
    op.execute("ALTER TABLE workloads DROP COLUMN awaits_turn, DROP COLUMN beside_first, DROP COLUMN array_id")
