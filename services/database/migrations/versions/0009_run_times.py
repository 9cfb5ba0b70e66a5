"""Run times of completed workloads, summed up by name and by tenant."""

from __future__ import annotations

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_TABLES = """
CREATE TABLE run_times_of_names (
    tenant TEXT COLLATE "C" NOT NULL,
    name TEXT NOT NULL,
    runs BIGINT NOT NULL,
    total_s FLOAT NOT NULL,
    PRIMARY KEY (tenant, name)
) WITH (fillfactor = 80);
CREATE TABLE run_times_of_tenants (
    tenant TEXT COLLATE "C" NOT NULL,
    runs BIGINT NOT NULL,
    total_s FLOAT NOT NULL,
    PRIMARY KEY (tenant)
) WITH (fillfactor = 80)"""

_INDEX = """
CREATE INDEX workloads_uncounted ON workloads (workload) WHERE state = 'COMPLETED' AND NOT run_counted"""


def upgrade() -> None:
    """Adds tables, column and index; what has completed before is counted by the first passes that want estimates."""
    op.execute(_TABLES)
    op.execute("ALTER TABLE workloads ADD COLUMN run_counted BOOLEAN DEFAULT false NOT NULL")
    op.execute(_INDEX)


def downgrade() -> None:
    """Drops them."""
    op.execute("DROP INDEX workloads_uncounted")
    op.execute("ALTER TABLE workloads DROP COLUMN run_counted")
    op.execute("DROP TABLE run_times_of_names, run_times_of_tenants")
