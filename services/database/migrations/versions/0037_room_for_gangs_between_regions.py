"""A place that is kept says for whom its attempt makes room: the region that it leaves may be another one."""

from __future__ import annotations

from alembic import op

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Of places that are kept already nobody knows: what leaves for these says nothing of it."""
    op.execute('ALTER TABLE reserved_places ADD COLUMN room_for TEXT COLLATE "C"')


def downgrade() -> None:
    """Drops it: what leaves says nothing of it again."""
    op.execute("ALTER TABLE reserved_places DROP COLUMN room_for")
