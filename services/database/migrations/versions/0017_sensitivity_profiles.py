"""Sensitivity profiles, and with which of them attempts began."""

from __future__ import annotations

from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

_TABLE = """
CREATE TABLE sensitivity_profiles (
    name TEXT COLLATE "C" NOT NULL,
    revision BIGINT NOT NULL,
    cpus_per_gpu FLOAT[] NOT NULL,
    memory_gib_per_gpu FLOAT[] NOT NULL,
    throughput FLOAT[] NOT NULL,
    PRIMARY KEY (name, revision)
)"""


def upgrade() -> None:
    """Adds the table, empty; attempts that run know no profiles, as before."""
    op.execute(_TABLE)
    op.execute("CREATE INDEX sensitivity_profiles_revision ON sensitivity_profiles (revision)")
    op.execute("ALTER TABLE attempts ADD COLUMN profiles_revision BIGINT DEFAULT 0 NOT NULL")


def downgrade() -> None:
    """Drops them."""
    op.execute("ALTER TABLE attempts DROP COLUMN profiles_revision")
    op.execute("DROP TABLE sensitivity_profiles")
    op.execute("DELETE FROM revisions WHERE subject = 'profiles'")
