"""Copies may hold the newest partitions alone; who reads a table is found by its name."""

from __future__ import annotations

from alembic import op
from sqlalchemy import text

from topmast.v1 import workload_pb2

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

_COLUMNS = """
ALTER TABLE data_migrations ADD COLUMN newest_partitions INTEGER;
ALTER TABLE data_migrations ADD COLUMN partitions JSONB;
ALTER TABLE data_migrations ADD COLUMN settled BOOLEAN DEFAULT true NOT NULL;
CREATE INDEX data_migrations_unsettled ON data_migrations (number) WHERE NOT settled;
ALTER TABLE data_plan_moves ADD COLUMN newest_share FLOAT;
ALTER TABLE data_reads ADD COLUMN newest_share FLOAT DEFAULT 1 NOT NULL;
DROP TABLE data_staged_reads;
CREATE UNLOGGED TABLE data_staged_reads (
    table_position INTEGER NOT NULL,
    reader_position INTEGER NOT NULL,
    newest_share FLOAT NOT NULL
);
CREATE TABLE workload_tables (
    workload TEXT COLLATE "C" NOT NULL,
    data_table TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (workload, data_table)
)"""

_DROPPED = """
DROP TABLE workload_tables;
DELETE FROM data_migrations WHERE newest_partitions IS NOT NULL;
DELETE FROM data_partition_copies;
ALTER TABLE data_staged_reads DROP COLUMN newest_share;
ALTER TABLE data_reads DROP COLUMN newest_share;
ALTER TABLE data_plan_moves DROP COLUMN newest_share;
DROP INDEX data_migrations_unsettled;
ALTER TABLE data_migrations DROP COLUMN settled;
ALTER TABLE data_migrations DROP COLUMN partitions;
ALTER TABLE data_migrations DROP COLUMN newest_partitions"""

_UNENDED = "SELECT workload, specification FROM workloads WHERE state NOT IN ('COMPLETED', 'FAILED', 'CANCELLED')"


def upgrade() -> None:
    """Adds columns and table, and notes what the workloads read that have not ended."""
    op.execute(_COLUMNS)
    connection = op.get_bind()
    for workload, content in connection.execute(text(_UNENDED)).fetchall():
        message = workload_pb2.WorkloadSpecification.FromString(bytes(content))
        for table in sorted({each.table for each in message.tables}):
            connection.execute(
                text("INSERT INTO workload_tables (workload, data_table) VALUES (:workload, :data_table)"),
                {"workload": workload, "data_table": table},
            )


def downgrade() -> None:
    """Drops them: copies of partitions stay behind as files that nobody knows of."""
    op.execute(_DROPPED)
