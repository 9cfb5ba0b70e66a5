"""The first tables."""

from __future__ import annotations

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_TENANTS = """
CREATE TABLE tenants (
    tenant TEXT COLLATE "C" NOT NULL,
    priority SMALLINT NOT NULL,
    cpu_quota FLOAT,
    fair_share_weight FLOAT DEFAULT 1 NOT NULL,
    PRIMARY KEY (tenant)
);

CREATE TABLE tenant_quotas (
    tenant TEXT COLLATE "C" NOT NULL,
    gpu_model TEXT COLLATE "C" NOT NULL,
    gpus INTEGER NOT NULL,
    PRIMARY KEY (tenant, gpu_model),
    FOREIGN KEY (tenant) REFERENCES tenants (tenant) ON DELETE CASCADE
);

CREATE TABLE quota_use (
    tenant TEXT COLLATE "C" NOT NULL,
    bucket TEXT COLLATE "C" NOT NULL,
    amount BIGINT NOT NULL,
    PRIMARY KEY (tenant, bucket)
) WITH (fillfactor = 80);

CREATE TABLE usage_windows (
    tenant TEXT COLLATE "C" NOT NULL,
    window_start_s FLOAT NOT NULL,
    window_end_s FLOAT NOT NULL,
    gpu_seconds FLOAT NOT NULL,
    cpu_seconds FLOAT NOT NULL,
    PRIMARY KEY (tenant, window_start_s)
);
CREATE INDEX usage_windows_end ON usage_windows (window_end_s);
"""

_FLEET = """
CREATE TABLE regions (
    region TEXT COLLATE "C" NOT NULL,
    position INTEGER NOT NULL,
    PRIMARY KEY (region)
);

CREATE TABLE clusters (
    cluster TEXT COLLATE "C" NOT NULL,
    region TEXT COLLATE "C" NOT NULL,
    position INTEGER NOT NULL,
    PRIMARY KEY (cluster),
    FOREIGN KEY (region) REFERENCES regions (region) ON DELETE CASCADE
);
CREATE INDEX ix_clusters_region ON clusters (region);

CREATE TABLE machines (
    machine TEXT COLLATE "C" NOT NULL,
    cluster TEXT COLLATE "C" NOT NULL,
    rack TEXT COLLATE "C" NOT NULL,
    position INTEGER NOT NULL,
    gpu_model TEXT COLLATE "C" NOT NULL,
    gpus SMALLINT NOT NULL,
    cpus FLOAT NOT NULL,
    memory_gib FLOAT NOT NULL,
    state TEXT COLLATE "C" DEFAULT 'up' NOT NULL,
    PRIMARY KEY (machine),
    FOREIGN KEY (cluster) REFERENCES clusters (cluster) ON DELETE CASCADE
);
CREATE INDEX ix_machines_cluster ON machines (cluster);

CREATE TABLE data_tables (
    data_table TEXT COLLATE "C" NOT NULL,
    size_bytes BIGINT NOT NULL,
    home TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (data_table)
);

CREATE TABLE data_table_replicas (
    data_table TEXT COLLATE "C" NOT NULL,
    region TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (data_table, region),
    FOREIGN KEY (data_table) REFERENCES data_tables (data_table) ON DELETE CASCADE
);

CREATE TABLE revisions (
    subject TEXT COLLATE "C" NOT NULL,
    revision BIGINT NOT NULL,
    document JSONB,
    PRIMARY KEY (subject)
);
"""

_WORKLOADS = """
CREATE TABLE workloads (
    workload TEXT COLLATE "C" NOT NULL,
    tenant TEXT COLLATE "C" NOT NULL,
    name TEXT NOT NULL,
    specification BYTEA NOT NULL,
    gpus INTEGER NOT NULL,
    emulated BOOLEAN NOT NULL,
    state TEXT COLLATE "C" NOT NULL,
    submitted_s FLOAT NOT NULL,
    ended_s FLOAT,
    idempotency_key TEXT COLLATE "C",
    body_digest BYTEA,
    attempts INTEGER DEFAULT 0 NOT NULL,
    failures INTEGER DEFAULT 0 NOT NULL,
    region TEXT COLLATE "C",
    progress FLOAT DEFAULT 0 NOT NULL,
    checkpoint_progress FLOAT DEFAULT 0 NOT NULL,
    throughput FLOAT DEFAULT 0 NOT NULL,
    reason TEXT DEFAULT '' NOT NULL,
    cancel_requested BOOLEAN DEFAULT false NOT NULL,
    PRIMARY KEY (workload)
) WITH (fillfactor = 80);
CREATE INDEX workloads_ended ON workloads (state) WHERE state IN ('COMPLETED', 'FAILED', 'CANCELLED');
CREATE UNIQUE INDEX workloads_idempotency ON workloads (tenant, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX workloads_newest ON workloads (submitted_s DESC, workload DESC);
CREATE INDEX workloads_newest_of_tenant ON workloads (tenant, submitted_s DESC, workload DESC);
CREATE INDEX workloads_unended ON workloads (tenant) WHERE state NOT IN ('COMPLETED', 'FAILED', 'CANCELLED');

CREATE TABLE jobs (
    workload TEXT COLLATE "C" NOT NULL,
    job TEXT COLLATE "C" NOT NULL,
    position SMALLINT NOT NULL,
    tasks INTEGER NOT NULL,
    max_tasks INTEGER NOT NULL,
    gpus SMALLINT NOT NULL,
    gpu_model TEXT COLLATE "C" NOT NULL,
    cpus FLOAT,
    memory_gib FLOAT,
    PRIMARY KEY (workload, job)
);
"""

_QUEUE = """
CREATE TABLE queue_entries (
    workload TEXT COLLATE "C" NOT NULL,
    tenant TEXT COLLATE "C" NOT NULL,
    submitted_s FLOAT NOT NULL,
    gpu_model TEXT COLLATE "C" NOT NULL,
    gpus INTEGER NOT NULL,
    cpus FLOAT NOT NULL,
    more_gpus JSONB,
    not_before_s FLOAT DEFAULT 0 NOT NULL,
    state TEXT COLLATE "C" DEFAULT 'PENDING' NOT NULL,
    reason TEXT DEFAULT '' NOT NULL,
    priority SMALLINT,
    level SMALLINT DEFAULT 0 NOT NULL,
    credit FLOAT DEFAULT 0 NOT NULL,
    within_quota BOOLEAN DEFAULT false NOT NULL,
    PRIMARY KEY (workload)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
CREATE INDEX queue_order ON queue_entries (priority, level, (-credit), submitted_s, workload)
    WHERE priority IS NOT NULL;

CREATE TABLE scan_passes (
    scan_pass BIGINT GENERATED BY DEFAULT AS IDENTITY,
    now_s FLOAT NOT NULL,
    entries INTEGER NOT NULL,
    changed INTEGER NOT NULL,
    reclassified INTEGER NOT NULL,
    PRIMARY KEY (scan_pass)
);
"""

_AUCTIONS = """
CREATE TABLE auction_rounds (
    round BIGSERIAL NOT NULL,
    scan_pass BIGINT NOT NULL,
    opened_at TIMESTAMP WITH TIME ZONE NOT NULL,
    deadline_at TIMESTAMP WITH TIME ZONE NOT NULL,
    now_s FLOAT NOT NULL,
    participants TEXT[] COLLATE "C" NOT NULL,
    lots JSONB NOT NULL,
    closed_at TIMESTAMP WITH TIME ZONE,
    closed_by TEXT COLLATE "C",
    outcome JSONB,
    PRIMARY KEY (round)
);
CREATE UNIQUE INDEX auction_rounds_open ON auction_rounds ((closed_at IS NULL)) WHERE closed_at IS NULL;

CREATE TABLE auction_responses (
    round BIGINT NOT NULL,
    region TEXT COLLATE "C" NOT NULL,
    response JSONB NOT NULL,
    PRIMARY KEY (round, region),
    FOREIGN KEY (round) REFERENCES auction_rounds (round) ON DELETE CASCADE
);

CREATE TABLE bids (
    round BIGINT NOT NULL,
    workload TEXT COLLATE "C" NOT NULL,
    region TEXT COLLATE "C" NOT NULL,
    score JSONB NOT NULL,
    outcome TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (round, workload, region),
    FOREIGN KEY (round) REFERENCES auction_rounds (round) ON DELETE CASCADE
);
CREATE INDEX bids_workload ON bids (workload, round);

CREATE TABLE awards (
    workload TEXT COLLATE "C" NOT NULL,
    region TEXT COLLATE "C" NOT NULL,
    round BIGINT NOT NULL,
    lot INTEGER NOT NULL,
    PRIMARY KEY (workload),
    FOREIGN KEY (workload) REFERENCES workloads (workload) ON DELETE CASCADE
);
CREATE INDEX ix_awards_region ON awards (region);
"""

_ATTEMPTS = """
CREATE TABLE attempts (
    workload TEXT COLLATE "C" NOT NULL,
    attempt INTEGER NOT NULL,
    tenant TEXT COLLATE "C" NOT NULL,
    region TEXT COLLATE "C" NOT NULL,
    state TEXT COLLATE "C" NOT NULL,
    priority SMALLINT NOT NULL,
    level SMALLINT NOT NULL,
    within_quota BOOLEAN NOT NULL,
    gpus INTEGER NOT NULL,
    cpus FLOAT NOT NULL,
    charges JSONB NOT NULL,
    dispatched_s FLOAT NOT NULL,
    started_s FLOAT,
    ended_s FLOAT,
    counted_s FLOAT,
    "end" TEXT COLLATE "C",
    end_reason TEXT DEFAULT '' NOT NULL,
    eviction JSONB,
    progress_at_start FLOAT NOT NULL,
    progress FLOAT NOT NULL,
    checkpoint_progress FLOAT NOT NULL,
    PRIMARY KEY (workload, attempt),
    FOREIGN KEY (workload) REFERENCES workloads (workload) ON DELETE CASCADE
) WITH (fillfactor = 80);
CREATE INDEX attempts_live ON attempts (region) WHERE ended_s IS NULL;
CREATE INDEX attempts_uncounted ON attempts (workload, attempt)
    WHERE ended_s IS NULL OR counted_s IS DISTINCT FROM ended_s;

CREATE TABLE placements (
    workload TEXT COLLATE "C" NOT NULL,
    attempt INTEGER NOT NULL,
    job TEXT COLLATE "C" NOT NULL,
    task INTEGER NOT NULL,
    cluster TEXT COLLATE "C" NOT NULL,
    machine TEXT COLLATE "C" NOT NULL,
    gpu_indices SMALLINT[] NOT NULL,
    millicpus BIGINT NOT NULL,
    mebibytes BIGINT NOT NULL,
    PRIMARY KEY (workload, attempt, job, task),
    FOREIGN KEY (workload, attempt) REFERENCES attempts (workload, attempt) ON DELETE CASCADE
);

CREATE TABLE checkpoints (
    workload TEXT COLLATE "C" NOT NULL,
    attempt INTEGER NOT NULL,
    progress FLOAT NOT NULL,
    saved_s FLOAT NOT NULL,
    PRIMARY KEY (workload, attempt, progress),
    FOREIGN KEY (workload) REFERENCES workloads (workload) ON DELETE CASCADE
);
"""

_RECORDS = """
CREATE TABLE events (
    sequence BIGINT GENERATED BY DEFAULT AS IDENTITY,
    t FLOAT NOT NULL,
    event TEXT COLLATE "C" NOT NULL,
    workload TEXT COLLATE "C",
    attempt INTEGER,
    tenant TEXT COLLATE "C",
    priority SMALLINT,
    level SMALLINT,
    region TEXT COLLATE "C",
    cluster TEXT COLLATE "C",
    details JSONB NOT NULL,
    PRIMARY KEY (sequence)
);
CREATE INDEX events_workload ON events (workload, sequence);

CREATE TABLE leases (
    name TEXT COLLATE "C" NOT NULL,
    holder TEXT COLLATE "C" NOT NULL,
    address TEXT NOT NULL,
    process_id INTEGER NOT NULL,
    token BIGINT NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
    PRIMARY KEY (name)
);

CREATE TABLE commit_marks (
    slot TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    made_at TIMESTAMP WITH TIME ZONE NOT NULL,
    PRIMARY KEY (slot)
) WITH (fillfactor = 80);
"""

_TABLES = (
    "tenants",
    "tenant_quotas",
    "quota_use",
    "usage_windows",
    "regions",
    "clusters",
    "machines",
    "data_tables",
    "data_table_replicas",
    "revisions",
    "workloads",
    "jobs",
    "queue_entries",
    "scan_passes",
    "auction_rounds",
    "auction_responses",
    "bids",
    "awards",
    "attempts",
    "placements",
    "checkpoints",
    "events",
    "leases",
    "commit_marks",
)
"""In the order of creation."""

_STEPS = (_TENANTS, _FLEET, _WORKLOADS, _QUEUE, _AUCTIONS, _ATTEMPTS, _RECORDS)


def upgrade() -> None:
    """Makes all tables."""
    for step in _STEPS:
        op.execute(step)


def downgrade() -> None:
    """Drops all tables, those that refer to others first."""
    for table in reversed(_TABLES):
        op.execute(f"DROP TABLE {table}")
