"""Labels of workloads in a table of their own, by which lists and the event log are filtered."""

from __future__ import annotations

from alembic import op
from sqlalchemy import text

from topmast.v1 import workload_pb2

revision = "0044"
down_revision = "0043"
branch_labels = None
depends_on = None

_AT_ONCE = 10_000


def upgrade() -> None:
    """Reads them from what was submitted, many workloads at a time."""
    op.execute("""
        CREATE TABLE workload_labels (
            workload TEXT COLLATE "C" NOT NULL,
            key TEXT COLLATE "C" NOT NULL,
            value TEXT NOT NULL,
            PRIMARY KEY (workload, key)
        )""")
    connection, after = op.get_bind(), ""
    while True:
        rows = connection.execute(
            text("SELECT workload, specification FROM workloads WHERE workload > :after ORDER BY workload LIMIT :most"),
            {"after": after, "most": _AT_ONCE},
        ).all()
        if not rows:
            break
        after = rows[-1][0]
        labels = [
            {"workload": workload, "key": key, "value": value}
            for workload, specification in rows
            for key, value in workload_pb2.WorkloadSpecification.FromString(bytes(specification)).labels.items()
        ]
        if labels:
            connection.execute(text("INSERT INTO workload_labels VALUES (:workload, :key, :value)"), labels)
    op.execute("CREATE INDEX workload_labels_value ON workload_labels (key, value, workload)")


def downgrade() -> None:
    """Drops the table: what was submitted still says them."""
    op.execute("DROP TABLE workload_labels")
