"""Packages of files with which working directories begin, and which workloads name them."""

from __future__ import annotations

from alembic import op

revision = "0038"
down_revision = "0037"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds the tables, empty: workloads of before name no package."""
    op.execute("""
        CREATE TABLE packages (
            package TEXT COLLATE "C" NOT NULL PRIMARY KEY,
            size_bytes BIGINT NOT NULL,
            used_at TIMESTAMP WITH TIME ZONE NOT NULL
        )""")
    op.execute("""
        CREATE TABLE workload_packages (
            workload TEXT COLLATE "C" NOT NULL PRIMARY KEY,
            package TEXT COLLATE "C" NOT NULL REFERENCES packages (package)
        )""")
    op.execute("CREATE INDEX workload_packages_of_package ON workload_packages (package)")


def downgrade() -> None:
    """Drops them: what is in the store stays there."""
    op.execute("DROP TABLE workload_packages, packages")
