"""Changes of the placements of running attempts, and places reserved for attempts that migrate."""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Makes the two tables."""
    op.execute(
        """CREATE TABLE placement_revisions (
               workload TEXT COLLATE "C" NOT NULL,
               attempt INTEGER NOT NULL,
               revision INTEGER NOT NULL,
               change JSONB,
               changed JSONB DEFAULT '{}' NOT NULL,
               PRIMARY KEY (workload, attempt),
               FOREIGN KEY (workload, attempt) REFERENCES attempts (workload, attempt) ON DELETE CASCADE
           )"""
    )
    op.execute(
        """CREATE TABLE reserved_places (
               workload TEXT COLLATE "C" NOT NULL,
               attempt INTEGER NOT NULL,
               region TEXT COLLATE "C" NOT NULL,
               reserved_s FLOAT NOT NULL,
               placements JSONB NOT NULL,
               PRIMARY KEY (workload),
               FOREIGN KEY (workload) REFERENCES workloads (workload) ON DELETE CASCADE
           )"""
    )
    op.execute("CREATE INDEX ix_reserved_places_region ON reserved_places (region)")


def downgrade() -> None:
    """Drops them."""
    op.execute("DROP TABLE reserved_places")
    op.execute("DROP TABLE placement_revisions")
