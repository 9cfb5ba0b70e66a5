"""Workloads and their jobs."""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Float,
    Identity,
    Index,
    Integer,
    LargeBinary,
    Sequence,
    SmallInteger,
    Table,
    Text,
    text,
)

from domain.life_cycle import ENDED, State
from services.database.state_guards import quoted
from services.database.tables.definition import METADATA, NAME, REWRITTEN, key, optional, required

WORKLOAD_REVISIONS: Final = Sequence("workload_revisions", metadata=METADATA)
"""Counts changes of what was submitted."""

WORKLOADS: Final = Table(
    "workloads",
    METADATA,
    key("workload", NAME),
    required("tenant", NAME),
    required("name", Text),
    # A serialised topmast.v1.WorkloadSpecification.
    required("specification", LargeBinary),
    required("gpus", Integer),
    required("emulated", Boolean),
    # domain.life_cycle.State; in the queue it is always PENDING here, queue_entries knows better.
    required("state", NAME),
    required("submitted_s", Float),
    optional("ended_s", Float),
    optional("idempotency_key", NAME),
    optional("body_digest", LargeBinary),
    # The number of the newest attempt: the fence.
    required("attempts", Integer, server_default=text("0")),
    required("failures", Integer, server_default=text("0")),
    optional("region", NAME),
    # Of both, what ended attempts have left; what a live one has come to stands in its row.
    required("progress", Float, server_default=text("0")),
    required("checkpoint_progress", Float, server_default=text("0")),
    required("reason", Text, server_default=text("''")),
    required("cancel_requested", Boolean, server_default=text("false")),
    # Who holds it: while it is queued it has no entry in the queue; while it is live it gets none. Null: nobody.
    optional("held_by", Text),
    # Who sends it back to the queue, until its attempt has stopped. Null: nobody.
    optional("requeue_by", Text),
    # Of an element of an array: that. Its index is in its name (domain.workload_array). Null: it is none.
    optional("array_id", NAME),
    # An element that is not the first of its array: in lists, the first one stands for all.
    required("beside_first", Boolean, server_default=text("false")),
    # It waits, without an entry in the queue, until others of its array have ended.
    required("awaits_turn", Boolean, server_default=text("false")),
    # Of the last change of what was submitted, from the sequence workload_revisions. Null: it was not changed.
    optional("revision", BigInteger),
    # How long its ended attempts worked.
    required("attained_s", Float, server_default=text("0")),
    # GPU-seconds that they received: from their start until they were asked to leave, or ended.
    required("attained_gpu_s", Float, server_default=text("0")),
    # Of both, what was before its last promotion: for levels that counts no more.
    required("before_promotion_s", Float, server_default=text("0")),
    required("before_promotion_gpu_s", Float, server_default=text("0")),
    # When the first of its ended attempts started; null: none did.
    optional("first_started_s", Float),
    # The priority that it asks for; null: that of its tenant.
    optional("asked_priority", SmallInteger),
    # How long it says that it runs; only emulated ones do.
    optional("declared_s", Float),
    # regional_scheduler.refusals.kinds.kind_of; null: not known, for those of before it was stored.
    optional("kind", NAME),
    # Whether it is among the run times and samples below; only completed ones ever are.
    required("run_counted", Boolean, server_default=text("false")),
    Index(
        "workloads_idempotency",
        "tenant",
        "idempotency_key",
        unique=True,
        postgresql_where=text("idempotency_key IS NOT NULL"),
    ),
    Index("workloads_newest", text("submitted_s DESC"), text("workload DESC")),
    Index("workloads_newest_of_tenant", "tenant", text("submitted_s DESC"), text("workload DESC")),
    Index("workloads_unended", "tenant", postgresql_where=text(f"state NOT IN ({quoted(ENDED)})")),
    Index("workloads_ended", "state", postgresql_where=text(f"state IN ({quoted(ENDED)})")),
    Index("workloads_newest_of_state", "state", text("submitted_s DESC"), text("workload DESC")),
    Index("workloads_held", "workload", postgresql_where=text("held_by IS NOT NULL")),
    Index("workloads_of_array", "array_id", "state", "workload", postgresql_where=text("array_id IS NOT NULL")),
    Index("workloads_awaiting_turn", "array_id", "workload", postgresql_where=text("awaits_turn")),
    Index(
        "workloads_active_of_array",
        "array_id",
        postgresql_where=text(f"array_id IS NOT NULL AND NOT awaits_turn AND state NOT IN ({quoted(ENDED)})"),
    ),
    Index(
        "workloads_newest_rows",
        text("submitted_s DESC"),
        text("workload DESC"),
        postgresql_where=text("NOT beside_first"),
    ),
    Index(
        "workloads_newest_rows_of_tenant",
        "tenant",
        text("submitted_s DESC"),
        text("workload DESC"),
        postgresql_where=text("NOT beside_first"),
    ),
    Index("workloads_changed", "revision", postgresql_where=text("revision IS NOT NULL")),
    Index(
        "workloads_uncounted",
        "ended_s",
        "workload",
        postgresql_where=text(f"state = {quoted({State.COMPLETED})} AND NOT run_counted"),
    ),
    postgresql_with=REWRITTEN,
)

WORKLOAD_ARRAYS: Final = Table(
    # The arrays of which not all elements may be active at once. Whoever gives elements their turn locks the row.
    "workload_arrays",
    METADATA,
    key("array_id", NAME),
    required("at_most", Integer),
    # Whether elements may wait for their turn that nobody holds.
    required("waiting", Boolean),
    Index("workload_arrays_waiting", "array_id", postgresql_where=text("waiting")),
)

WORKLOAD_TABLES: Final = Table(
    # Which tables a workload reads. No foreign keys: what is read may be dropped; retention takes this out with the workload.
    "workload_tables",
    METADATA,
    key("workload", NAME),
    key("data_table", NAME),
)

WORKLOAD_LABELS: Final = Table(
    # What the specification says of them, to be searched. No foreign keys: retention takes this out with the workload.
    "workload_labels",
    METADATA,
    key("workload", NAME),
    key("key", NAME),
    required("value", Text),
    Index("workload_labels_value", "key", "value", "workload"),
)

WORKLOAD_DEPENDENCIES: Final = Table(
    # For which others workloads wait, or waited. No foreign keys: retention takes this out with the workload.
    "workload_dependencies",
    METADATA,
    key("workload", NAME),
    key("needs", NAME),
    # domain.dependencies.
    key("condition", NAME),
    required("position", SmallInteger),
    # It is so, or the workload does not wait any more.
    required("settled", Boolean),
    Index("workload_dependencies_needs", "needs"),
    Index("workload_dependencies_open", "needs", postgresql_where=text("NOT settled")),
)

RUN_TIMES_OF_NAMES: Final = Table(
    # How long completed workloads of a tenant and a name ran: what estimates go by.
    "run_times_of_names",
    METADATA,
    key("tenant", NAME),
    key("name", Text),
    required("runs", BigInteger),
    required("total_s", Float),
    postgresql_with=REWRITTEN,
)

RUN_TIMES_OF_TENANTS: Final = Table(
    # The same over all names.
    "run_times_of_tenants",
    METADATA,
    key("tenant", NAME),
    required("runs", BigInteger),
    required("total_s", Float),
    postgresql_with=REWRITTEN,
)

SERVICE_SAMPLES: Final = Table(
    # The GPU-seconds that completed workloads received, in the order in which they were counted: what the Gittins index
    # goes by.
    "service_samples",
    METADATA,
    key("sample", BigInteger, Identity()),
    required("tenant", NAME),
    required("gpu_s", Float),
)

JOBS: Final = Table(
    # No foreign key: written with its workload, by one function, and checking each row would double the cost of a
    # submission. The same holds for queue entries.
    "jobs",
    METADATA,
    key("workload", NAME),
    key("job", NAME),
    required("position", SmallInteger),
    required("tasks", Integer),
    required("max_tasks", Integer),
    required("gpus", SmallInteger),
    required("gpu_model", NAME),
    optional("cpus", Float),
    optional("memory_gib", Float),
)
