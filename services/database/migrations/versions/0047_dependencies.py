"""Workloads that wait for others."""

from __future__ import annotations

from alembic import op

revision = "0047"
down_revision = "0045"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Nothing waits for anything yet."""
    op.execute("""CREATE TABLE workload_dependencies (
        workload TEXT COLLATE "C" NOT NULL, needs TEXT COLLATE "C" NOT NULL, condition TEXT COLLATE "C" NOT NULL,
        position SMALLINT NOT NULL, settled BOOLEAN NOT NULL,
        PRIMARY KEY (workload, needs, condition))""")
    op.execute("CREATE INDEX workload_dependencies_needs ON workload_dependencies (needs)")
    op.execute("CREATE INDEX workload_dependencies_open ON workload_dependencies (needs) WHERE NOT settled")


def downgrade() -> None:
    """Drops the table: what waits would never be ranked, so that there must be nothing that does."""
    op.execute("""DO $$ BEGIN
        IF EXISTS (SELECT FROM workload_dependencies WHERE NOT settled) THEN
            RAISE EXCEPTION 'workloads wait for others; cancel them before this database is taken back';
        END IF; END $$""")
    op.execute("DROP TABLE workload_dependencies")
