"""Tables say which programs may still work with them, so that tiers are replaced one by one."""

from __future__ import annotations

from alembic import op

revision = "0054"
down_revision = "0052"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Nothing of what programs of 0049 need has gone."""
    op.execute("""
        CREATE TABLE fitting_programs (
            one BOOLEAN PRIMARY KEY,
            oldest_revision TEXT COLLATE "C" NOT NULL
        )""")
    op.execute("INSERT INTO fitting_programs VALUES (true, '0049')")


def downgrade() -> None:
    """Programs of before do not ask."""
    op.execute("DROP TABLE fitting_programs")
