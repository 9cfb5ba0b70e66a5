"""Leases say since when they are held and for how long tasks outlive them; clusters that were declared lost are known."""

from __future__ import annotations

from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None

_LOST_CLUSTERS = """
CREATE TABLE lost_clusters (
    cluster TEXT COLLATE "C" NOT NULL,
    declared_s DOUBLE PRECISION NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (cluster),
    FOREIGN KEY (cluster) REFERENCES clusters (cluster) ON DELETE CASCADE
)"""


def upgrade() -> None:
    """Adds the columns and the table: leases that are held count as held since now."""
    op.execute("ALTER TABLE leases ADD COLUMN held_since TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT clock_timestamp()")
    op.execute("ALTER TABLE leases ALTER COLUMN held_since DROP DEFAULT")
    op.execute("ALTER TABLE leases ADD COLUMN tasks_stop_after_s DOUBLE PRECISION")
    op.execute(_LOST_CLUSTERS)


def downgrade() -> None:
    """Drops them: a cluster that was declared lost gets work again as soon as its manager can be reached."""
    op.execute("DROP TABLE lost_clusters")
    op.execute("ALTER TABLE leases DROP COLUMN tasks_stop_after_s")
    op.execute("ALTER TABLE leases DROP COLUMN held_since")
