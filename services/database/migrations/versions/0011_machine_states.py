"""A machine is in one of the states that there are."""

from __future__ import annotations

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds the constraint, as the table's metadata make it of `domain.fleet.MachineState`."""
    op.execute(
        """ALTER TABLE machines ADD CONSTRAINT machines_state CHECK (state IN
               ('up', 'draining', 'down', 'draining_down', 'serving', 'on_loan', 'returning', 'serving_down', 'on_loan_down',
                'returning_down'))"""
    )


def downgrade() -> None:
    """Drops the constraint."""
    op.execute("ALTER TABLE machines DROP CONSTRAINT machines_state")
