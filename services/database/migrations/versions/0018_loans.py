"""Clusters may serve inference, and lend their machines to training."""

from __future__ import annotations

from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

_TABLES = """
CREATE TABLE loans (
    cluster TEXT COLLATE "C" NOT NULL,
    asked_s FLOAT NOT NULL,
    answered_s FLOAT,
    needed_machines INTEGER DEFAULT 0 NOT NULL,
    reclaim_within_s FLOAT,
    forecast FLOAT DEFAULT 0 NOT NULL,
    wanted_on_loan INTEGER DEFAULT 0 NOT NULL,
    shortfall INTEGER DEFAULT 0 NOT NULL,
    problem TEXT DEFAULT '' NOT NULL,
    PRIMARY KEY (cluster),
    FOREIGN KEY (cluster) REFERENCES clusters (cluster) ON DELETE CASCADE
);
CREATE TABLE inference_loads (
    cluster TEXT COLLATE "C" NOT NULL,
    t_s FLOAT NOT NULL,
    load FLOAT NOT NULL,
    PRIMARY KEY (cluster, t_s),
    FOREIGN KEY (cluster) REFERENCES clusters (cluster) ON DELETE CASCADE
);
CREATE TABLE returning_machines (
    machine TEXT COLLATE "C" NOT NULL,
    asked_back_s FLOAT NOT NULL,
    deadline_s FLOAT,
    PRIMARY KEY (machine),
    FOREIGN KEY (machine) REFERENCES machines (machine) ON DELETE CASCADE
)"""


def upgrade() -> None:
    """Adds the column and the tables."""
    op.execute("ALTER TABLE clusters ADD COLUMN inference JSONB")
    op.execute(_TABLES)


def downgrade() -> None:
    """Drops them: all machines are for training then, and begin anew."""
    op.execute("DROP TABLE returning_machines, inference_loads, loans")
    op.execute(
        "UPDATE machines SET state = CASE WHEN state LIKE '%down' THEN 'down' ELSE 'up' END"
        " WHERE state IN ('serving', 'on_loan', 'returning', 'serving_down', 'on_loan_down', 'returning_down')"
    )
    op.execute("ALTER TABLE clusters DROP COLUMN inference")
