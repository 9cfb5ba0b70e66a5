"""Tables have a revision of their own: what has changed since one can be listed."""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_UP = """
ALTER TABLE data_tables ADD COLUMN revision BIGINT DEFAULT 0 NOT NULL;
CREATE INDEX ix_data_tables_revision ON data_tables (revision);

CREATE TABLE dropped_data_tables (
    data_table TEXT COLLATE "C" NOT NULL,
    revision BIGINT NOT NULL,
    PRIMARY KEY (data_table)
);
CREATE INDEX ix_dropped_data_tables_revision ON dropped_data_tables (revision);
"""

_DOWN = """
DROP TABLE dropped_data_tables;
DROP INDEX ix_data_tables_revision;
ALTER TABLE data_tables DROP COLUMN revision;
DELETE FROM revisions WHERE subject = 'catalog';
"""


def upgrade() -> None:
    """Gives tables the revision of the catalog in which they last changed."""
    op.execute(_UP)


def downgrade() -> None:
    """Forgets the revisions; the tables stay."""
    op.execute(_DOWN)
