"""Clusters have hierarchies of cells, tenants virtual clusters, and attempts cells."""

from __future__ import annotations

from alembic import op

revision = "0012"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds them; what is there has none."""
    op.execute("""ALTER TABLE clusters ADD COLUMN cells JSONB DEFAULT '{"hierarchies": []}' NOT NULL""")
    op.execute("""ALTER TABLE tenants ADD COLUMN cells JSONB DEFAULT '{"virtual_clusters": []}' NOT NULL""")
    op.execute(
        """CREATE TABLE attempt_cells (
               workload TEXT COLLATE "C" NOT NULL,
               attempt INTEGER NOT NULL,
               job TEXT COLLATE "C" NOT NULL,
               cells JSONB NOT NULL,
               PRIMARY KEY (workload, attempt, job),
               FOREIGN KEY (workload, attempt) REFERENCES attempts (workload, attempt) ON DELETE CASCADE
           )"""
    )


def downgrade() -> None:
    """Drops them."""
    op.execute("DROP TABLE attempt_cells")
    op.execute("ALTER TABLE tenants DROP COLUMN cells")
    op.execute("ALTER TABLE clusters DROP COLUMN cells")
