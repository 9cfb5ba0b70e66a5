"""Machines that are kept for gangs that have waited for too long."""

from __future__ import annotations

from alembic import op

revision = "0035"
down_revision = "0033"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds the table, empty: regions fill it where the settings have them do so."""
    op.execute("""
        CREATE TABLE gang_reservations (
            workload TEXT COLLATE "C" NOT NULL PRIMARY KEY REFERENCES workloads (workload) ON DELETE CASCADE,
            region TEXT COLLATE "C" NOT NULL,
            clusters TEXT[] COLLATE "C" NOT NULL,
            machines TEXT[] COLLATE "C" NOT NULL,
            gpus INTEGER NOT NULL,
            priority SMALLINT NOT NULL,
            level SMALLINT NOT NULL,
            made_s FLOAT NOT NULL,
            expected_start_s FLOAT NOT NULL,
            expires_s FLOAT NOT NULL
        )""")
    op.execute("CREATE INDEX ix_gang_reservations_region ON gang_reservations (region)")


def downgrade() -> None:
    """Drops it: nothing is kept for anybody any more."""
    op.execute("DROP TABLE gang_reservations")
