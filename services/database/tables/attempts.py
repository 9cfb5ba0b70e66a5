"""Attempts: their placements, changes of these, places kept for successors, checkpoints."""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    SmallInteger,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY

from services.database.tables.definition import DOCUMENT, METADATA, NAME, REWRITTEN, key, optional, required

ATTEMPTS: Final = Table(
    "attempts",
    METADATA,
    key("workload", NAME, ForeignKey("workloads.workload", ondelete="CASCADE")),
    key("attempt", Integer),
    required("tenant", NAME),
    required("region", NAME),
    # DISPATCHED, RUNNING, PREEMPTING, or ENDED.
    required("state", NAME),
    required("priority", SmallInteger),
    required("level", SmallInteger),
    required("within_quota", Boolean),
    # Whether it was within quota when it was dispatched.
    required("guaranteed", Boolean, server_default=text("false")),
    # What the placements hold together: for usage windows.
    required("gpus", Integer),
    required("cpus", Float),
    # By quota bucket (and `cpus`, in thousandths): what quota_use holds for it when within quota.
    required("charges", DOCUMENT),
    required("dispatched_s", Float),
    optional("started_s", Float),
    optional("ended_s", Float),
    # Until when its use is in usage_windows; null: not at all yet.
    optional("counted_s", Float),
    # completed, failed, cancelled, or the cause of the eviction.
    optional("end", NAME),
    required("end_reason", Text, server_default=text("''")),
    # Of the task that is to blame where it failed, 128 and the signal if one killed it; null: there is none.
    optional("exit_code", Integer),
    # While it is being evicted: cause, by, by_attempt, by_priority, by_level.
    optional("eviction", DOCUMENT),
    required("progress_at_start", Float),
    required("progress", Float),
    required("checkpoint_progress", Float),
    # Progress per second as last reported.
    required("throughput", Float, server_default=text("0")),
    # When it was asked to leave: from then on it receives no service.
    optional("leaving_s", Float),
    # GPU-seconds received up to `received_to_s`, with the GPUs that it held then.
    required("received_gpu_s", Float, server_default=text("0")),
    # When its GPUs changed last; null: never.
    optional("received_to_s", Float),
    # When it was asked to leave for another one; stays when it then leaves for another cause.
    optional("preempted_s", Float),
    # Of the sensitivity profiles, when it was dispatched.
    required("profiles_revision", BigInteger, server_default=text("0")),
    Index("attempts_live", "region", postgresql_where=text("ended_s IS NULL")),
    Index(
        "attempts_uncounted",
        "workload",
        "attempt",
        postgresql_where=text("ended_s IS NULL OR counted_s IS DISTINCT FROM ended_s"),
    ),
    postgresql_with=REWRITTEN,
)

PLACEMENTS: Final = Table(
    "placements",
    METADATA,
    key("workload", NAME),
    key("attempt", Integer),
    key("job", NAME),
    key("task", Integer),
    required("cluster", NAME),
    required("machine", NAME),
    required("gpu_indices", ARRAY(SmallInteger)),
    required("millicpus", BigInteger),
    required("mebibytes", BigInteger),
    ForeignKeyConstraint(["workload", "attempt"], ["attempts.workload", "attempts.attempt"], ondelete="CASCADE"),
)

ATTEMPT_CELLS: Final = Table(
    # Of the jobs that use cells of a virtual cluster (`formats.cell_use`), for as long as their placements.
    "attempt_cells",
    METADATA,
    key("workload", NAME),
    key("attempt", Integer),
    key("job", NAME),
    required("cells", DOCUMENT),
    ForeignKeyConstraint(["workload", "attempt"], ["attempts.workload", "attempts.attempt"], ondelete="CASCADE"),
)

PLACEMENT_REVISIONS: Final = Table(
    # An attempt whose placements have changed since it was dispatched; the last change and how far it is.
    "placement_revisions",
    METADATA,
    key("workload", NAME),
    key("attempt", Integer),
    # Counts the changes from 1 on.
    required("revision", Integer),
    # The last one while it is being carried out: kind, released, waits_for. Null: it is carried out.
    optional("change", DOCUMENT),
    # By cluster: since when the placements are as they are there, and the attempt's progress then.
    required("changed", DOCUMENT, server_default=text("'{}'")),
    ForeignKeyConstraint(["workload", "attempt"], ["attempts.workload", "attempts.attempt"], ondelete="CASCADE"),
)

RESERVED_PLACES: Final = Table(
    # Where the successor of a migrating attempt will start, in the region that keeps the place for it.
    # Written by that region; deleted by it when it cannot keep the place, or by the region of the attempt that
    # migrates, in the transaction that records its end.
    "reserved_places",
    METADATA,
    key("workload", NAME, ForeignKey("workloads.workload", ondelete="CASCADE")),
    # The successor's number.
    required("attempt", Integer),
    required("region", NAME, index=True),
    required("reserved_s", Float),
    required("placements", DOCUMENT),
    # The workload that the attempt makes room for where it leaves; null: it goes on elsewhere for another reason.
    optional("room_for", NAME),
)

CHECKPOINTS: Final = Table(
    "checkpoints",
    METADATA,
    key("workload", NAME, ForeignKey("workloads.workload", ondelete="CASCADE")),
    key("attempt", Integer),
    key("progress", Float),
    required("saved_s", Float),
)
