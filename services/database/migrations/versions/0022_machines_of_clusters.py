"""Machines may change their cluster: racks have power domains, regions have requests, machines are on their way."""

from __future__ import annotations

from alembic import op

revision = "0022"
down_revision = "0020"
branch_labels = None
depends_on = None

_TABLES = """
CREATE TABLE machine_requests (
    region TEXT COLLATE "C" NOT NULL,
    requests JSONB NOT NULL,
    revision BIGINT NOT NULL,
    applied_s FLOAT NOT NULL,
    decided_s FLOAT,
    decision JSONB,
    PRIMARY KEY (region),
    FOREIGN KEY (region) REFERENCES regions (region) ON DELETE CASCADE
);
CREATE TABLE machine_moves (
    machine TEXT COLLATE "C" NOT NULL,
    region TEXT COLLATE "C" NOT NULL,
    from_cluster TEXT COLLATE "C" NOT NULL,
    to_cluster TEXT COLLATE "C" NOT NULL,
    state TEXT COLLATE "C" NOT NULL,
    decided_s FLOAT NOT NULL,
    deadline_s FLOAT,
    PRIMARY KEY (machine),
    FOREIGN KEY (machine) REFERENCES machines (machine) ON DELETE CASCADE,
    CONSTRAINT machine_moves_state CHECK (state IN ('waiting', 'draining', 'returning'))
);
CREATE INDEX ix_machine_moves_region ON machine_moves (region)"""


def upgrade() -> None:
    """Adds the column and the tables."""
    op.execute("""ALTER TABLE machines ADD COLUMN power_domain TEXT COLLATE "C" DEFAULT '' NOT NULL""")
    op.execute(_TABLES)


def downgrade() -> None:
    """Drops them: machines stay in the clusters where they are; one that was on its way stays drained."""
    op.execute("DROP TABLE machine_moves, machine_requests")
    op.execute("ALTER TABLE machines DROP COLUMN power_domain")
