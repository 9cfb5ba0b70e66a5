"""Machines that operators have drained: why, since when, and for how long what is on them may stay."""

from __future__ import annotations

from alembic import op

revision = "0041"
down_revision = "0040"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Of machines that are drained already the log alone knows why: they stay drained, and nothing more is said of them."""
    op.execute("""
        CREATE TABLE machine_drains (
            machine TEXT COLLATE "C" NOT NULL PRIMARY KEY REFERENCES machines (machine) ON DELETE CASCADE,
            reason TEXT NOT NULL,
            drained_s FLOAT NOT NULL,
            deadline_s FLOAT
        )""")


def downgrade() -> None:
    """Drops it: drained machines stay drained, and what may stay on one until a deadline ends by itself."""
    op.execute("DROP TABLE machine_drains")
