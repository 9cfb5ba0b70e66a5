"""A plan keeps which tables belong together, and what was answered when it was applied."""

from __future__ import annotations

from alembic import op

revision = "0025"
down_revision = "0023"
branch_labels = None
depends_on = None

_TABLES = """
CREATE TABLE data_communities (
    plan BIGINT NOT NULL,
    community INTEGER NOT NULL,
    described JSONB NOT NULL,
    PRIMARY KEY (plan, community),
    FOREIGN KEY (plan) REFERENCES data_plans (plan) ON DELETE CASCADE
);
CREATE TABLE data_table_communities (
    plan BIGINT NOT NULL,
    data_table TEXT COLLATE "C" NOT NULL,
    community INTEGER NOT NULL,
    PRIMARY KEY (plan, data_table),
    FOREIGN KEY (plan) REFERENCES data_plans (plan) ON DELETE CASCADE
)"""


def upgrade() -> None:
    """Adds the column and the tables."""
    op.execute("ALTER TABLE data_plans ADD COLUMN applied JSONB")
    op.execute(_TABLES)


def downgrade() -> None:
    """Drops them: plans that were applied are refused when they are applied again, and communities are found anew."""
    op.execute("DROP TABLE data_table_communities, data_communities")
    op.execute("ALTER TABLE data_plans DROP COLUMN applied")
