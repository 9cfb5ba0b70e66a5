"""The queue, and the scan passes over it."""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Boolean, Float, ForeignKey, Identity, Index, Integer, SmallInteger, Table, Text, text
from sqlalchemy.dialects.postgresql import ARRAY

from domain.life_cycle import State
from services.database.state_guards import quoted
from services.database.tables.definition import DOCUMENT, METADATA, NAME, key, optional, required

QUEUE_ENTRIES: Final = Table(
    # One row per queued workload, deleted when it is dispatched or ends; what the scan pass reads and writes.
    "queue_entries",
    METADATA,
    key("workload", NAME),
    required("tenant", NAME),
    required("submitted_s", Float),
    # The workload's, copied for scan passes.
    optional("asked_priority", SmallInteger),
    # What most workloads ask for: GPUs of one model, CPUs. Further models are in more_gpus.
    required("gpu_model", NAME),
    required("gpus", Integer),
    required("cpus", Float),
    optional("more_gpus", DOCUMENT),
    # A failed attempt waits until then.
    required("not_before_s", Float, server_default=text("0")),
    # PENDING, WAITING or AWAITING_DATA.
    required("state", NAME, server_default=text(quoted({State.PENDING}))),
    required("reason", Text, server_default=text("''")),
    # domain.diagnosis.Diagnosis, beside the sentence; null: no auction has refused it.
    optional("diagnosis", DOCUMENT),
    # Null: not seen by a scan pass yet, so not in any auction.
    optional("priority", SmallInteger),
    required("level", SmallInteger, server_default=text("0")),
    required("credit", Float, server_default=text("0")),
    required("within_quota", Boolean, server_default=text("false")),
    # As many of its tenant run as may: it is in no auction.
    required("at_limit", Boolean, server_default=text("false")),
    # When its last attempt ended; null: it had none.
    optional("queued_since_s", Float),
    # The workload's since its last promotion, copied for scan passes: while it is queued only a promotion changes them.
    required("attained_gpu_s", Float, server_default=text("0")),
    required("attained_s", Float, server_default=text("0")),
    # When its first attempt started; null: none did.
    optional("first_started_s", Float),
    # The workload's, copied for the auctions.
    optional("kind", NAME),
    # domain.priority_class.importance_of; null: 0, the normal class.
    optional("importance", SmallInteger),
    # The walk of the auctions in which it alone was refused; null: it was not, or stands better since.
    optional("asked_in_walk", BigInteger),
    # Those that are as hopeless as another one of their kind.
    Index("queue_kinds", "kind", "within_quota", "state", "priority", "level"),
    Index(
        "queue_order",
        "priority",
        "level",
        text("(-credit)"),
        "submitted_s",
        "workload",
        postgresql_where=text("priority IS NOT NULL"),
    ),
    # The queue's dead rows are cleared soon: its head is read all the time.
    postgresql_with={
        "fillfactor": "80",
        "autovacuum_vacuum_scale_factor": "0.02",
        "autovacuum_analyze_scale_factor": "0.02",
    },
)

GANG_RESERVATIONS: Final = Table(
    # Machines that are kept for gangs that wait (domain.reservation). Written by the region of the machines; another region
    # takes a row over when it has machines earlier.
    "gang_reservations",
    METADATA,
    key("workload", NAME, ForeignKey("workloads.workload", ondelete="CASCADE")),
    required("region", NAME, index=True),
    required("clusters", ARRAY(NAME)),
    required("machines", ARRAY(NAME)),
    required("gpus", Integer),
    # Where the gang stood when it was made: while it is queued its entry says where it stands.
    required("priority", SmallInteger),
    required("level", SmallInteger),
    required("made_s", Float),
    required("expected_start_s", Float),
    required("expires_s", Float),
)

SCAN_PASSES: Final = Table(
    "scan_passes",
    METADATA,
    key("scan_pass", BigInteger, Identity()),
    required("now_s", Float),
    required("entries", Integer),
    required("changed", Integer),
    required("reclassified", Integer),
)
