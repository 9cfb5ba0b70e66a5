"""What training reports of models and iterations, and the limit that is learnt from it."""

from __future__ import annotations

from alembic import op

revision = "0014"
down_revision = "0011"
branch_labels = None
depends_on = None

_TABLES = """
CREATE TABLE reported_profiles (
    workload TEXT COLLATE "C" NOT NULL REFERENCES workloads (workload) ON DELETE CASCADE,
    job TEXT COLLATE "C" NOT NULL,
    largest_tensor_mib FLOAT NOT NULL,
    model_mib FLOAT NOT NULL,
    reported_s FLOAT NOT NULL,
    PRIMARY KEY (workload, job)
);
CREATE TABLE profiles_of_names (
    tenant TEXT COLLATE "C" NOT NULL,
    name TEXT NOT NULL,
    job TEXT COLLATE "C" NOT NULL,
    largest_tensor_mib FLOAT NOT NULL,
    model_mib FLOAT NOT NULL,
    reported_s FLOAT NOT NULL,
    PRIMARY KEY (tenant, name, job)
) WITH (fillfactor = 80);
CREATE TABLE iteration_times (
    tenant TEXT COLLATE "C" NOT NULL,
    name TEXT NOT NULL,
    job TEXT COLLATE "C" NOT NULL,
    tasks INTEGER NOT NULL,
    gpus SMALLINT NOT NULL,
    gpu_model TEXT COLLATE "C" NOT NULL,
    spread BOOLEAN NOT NULL,
    skew FLOAT NOT NULL,
    attempts BIGINT NOT NULL,
    total_s FLOAT NOT NULL,
    PRIMARY KEY (tenant, name, job, tasks, gpus, gpu_model, spread)
) WITH (fillfactor = 80);
CREATE TABLE packlimits (
    subject TEXT COLLATE "C" NOT NULL,
    packlimit FLOAT NOT NULL,
    learnt_from INTEGER NOT NULL,
    misplaced INTEGER NOT NULL,
    fitted_s FLOAT NOT NULL,
    attempts BIGINT NOT NULL,
    PRIMARY KEY (subject)
) WITH (fillfactor = 80)"""


def upgrade() -> None:
    """Adds the tables, empty: until something is learnt the limit is the paper's."""
    op.execute(_TABLES)


def downgrade() -> None:
    """Drops them."""
    op.execute("DROP TABLE reported_profiles, profiles_of_names, iteration_times, packlimits")
