"""Every table of the database, in one place; migrations/ brings a database to this shape.

Times are seconds since the epoch on the clock of the service (`*_s`), except leases and deadlines, which are
real time of the database server, so that they mean the same to everyone however fast the service's clock runs.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    DateTime,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    LargeBinary,
    SmallInteger,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.orm import Mapped, mapped_column

from domain.life_cycle import ENDED, State
from services.database.fleet_models import REWRITTEN, Base, Name
from services.database.state_guards import quoted


class WorkloadRow(Base):
    __tablename__ = "workloads"
    __table_args__ = (
        Index(
            "workloads_idempotency",
            "tenant",
            "idempotency_key",
            unique=True,
            postgresql_where=text("idempotency_key IS NOT NULL"),
        ),
        Index("workloads_newest", text("submitted_s DESC"), text("workload DESC")),
        Index("workloads_newest_of_tenant", "tenant", text("submitted_s DESC"), text("workload DESC")),
        Index(
            "workloads_unended",
            "tenant",
            postgresql_where=text(f"state NOT IN ({quoted(ENDED)})"),
        ),
        Index("workloads_ended", "state", postgresql_where=text(f"state IN ({quoted(ENDED)})")),
        REWRITTEN,
    )

    workload: Mapped[str] = mapped_column(Name, primary_key=True)
    tenant: Mapped[str] = mapped_column(Name)
    name: Mapped[str] = mapped_column(Text)
    specification: Mapped[bytes] = mapped_column(LargeBinary)
    """A serialised topmast.v1.WorkloadSpecification."""
    gpus: Mapped[int] = mapped_column(Integer)
    emulated: Mapped[bool] = mapped_column(Boolean)
    state: Mapped[str] = mapped_column(Name)
    """domain.life_cycle.State; in the queue it is always PENDING here, queue_entries knows better."""
    submitted_s: Mapped[float] = mapped_column(Float)
    ended_s: Mapped[float | None] = mapped_column(Float)
    idempotency_key: Mapped[str | None] = mapped_column(Name)
    body_digest: Mapped[bytes | None] = mapped_column(LargeBinary)
    attempts: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    """The number of the newest attempt: the fence."""
    failures: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    region: Mapped[str | None] = mapped_column(Name)
    progress: Mapped[float] = mapped_column(Float, server_default=text("0"))
    checkpoint_progress: Mapped[float] = mapped_column(Float, server_default=text("0"))
    throughput: Mapped[float] = mapped_column(Float, server_default=text("0"))
    reason: Mapped[str] = mapped_column(Text, server_default=text("''"))
    cancel_requested: Mapped[bool] = mapped_column(Boolean, server_default=text("false"))
    attained_s: Mapped[float] = mapped_column(Float, server_default=text("0"))
    """How long its ended attempts worked."""
    attained_gpu_s: Mapped[float] = mapped_column(Float, server_default=text("0"))
    """GPU-seconds that they received: from their start until they were asked to leave, or ended."""
    declared_s: Mapped[float | None] = mapped_column(Float)
    """How long it says that it runs; only emulated ones do."""


class JobRow(Base):
    """No foreign key: written with its workload, by one function, and checking each row would double the cost of a
    submission. The same holds for queue entries."""

    __tablename__ = "jobs"

    workload: Mapped[str] = mapped_column(Name, primary_key=True)
    job: Mapped[str] = mapped_column(Name, primary_key=True)
    position: Mapped[int] = mapped_column(SmallInteger)
    tasks: Mapped[int] = mapped_column(Integer)
    max_tasks: Mapped[int] = mapped_column(Integer)
    gpus: Mapped[int] = mapped_column(SmallInteger)
    gpu_model: Mapped[str] = mapped_column(Name)
    cpus: Mapped[float | None] = mapped_column(Float)
    memory_gib: Mapped[float | None] = mapped_column(Float)


class QueueEntryRow(Base):
    """One row per queued workload, deleted when it is dispatched or ends; what the scan pass reads and writes.

    `priority` None: not seen by a scan pass yet, so not in any auction.
    """

    __tablename__ = "queue_entries"
    __table_args__ = (
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
        {
            "postgresql_with": {
                "fillfactor": "80",
                "autovacuum_vacuum_scale_factor": "0.02",
                "autovacuum_analyze_scale_factor": "0.02",
            }
        },
    )

    workload: Mapped[str] = mapped_column(Name, primary_key=True)
    tenant: Mapped[str] = mapped_column(Name)
    submitted_s: Mapped[float] = mapped_column(Float)
    gpu_model: Mapped[str] = mapped_column(Name)
    """What most workloads ask for: GPUs of one model, CPUs. Further models are in more_gpus."""
    gpus: Mapped[int] = mapped_column(Integer)
    cpus: Mapped[float] = mapped_column(Float)
    more_gpus: Mapped[dict[str, int] | None] = mapped_column(JSONB)
    not_before_s: Mapped[float] = mapped_column(Float, server_default=text("0"))
    """A failed attempt waits until then."""
    state: Mapped[str] = mapped_column(Name, server_default=text(quoted({State.PENDING})))
    """PENDING, WAITING or AWAITING_DATA."""
    reason: Mapped[str] = mapped_column(Text, server_default=text("''"))
    priority: Mapped[int | None] = mapped_column(SmallInteger)
    level: Mapped[int] = mapped_column(SmallInteger, server_default=text("0"))
    credit: Mapped[float] = mapped_column(Float, server_default=text("0"))
    within_quota: Mapped[bool] = mapped_column(Boolean, server_default=text("false"))
    queued_since_s: Mapped[float | None] = mapped_column(Float)
    """When its last attempt ended; None: it had none."""
    attained_gpu_s: Mapped[float] = mapped_column(Float, server_default=text("0"))
    """The workload's, copied for scan passes: it does not change while it is queued."""


class ScanPassRow(Base):
    __tablename__ = "scan_passes"

    scan_pass: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    now_s: Mapped[float] = mapped_column(Float)
    entries: Mapped[int] = mapped_column(Integer)
    changed: Mapped[int] = mapped_column(Integer)
    reclassified: Mapped[int] = mapped_column(Integer)


# ---------------------------------------------------------------- auctions


class AuctionRoundRow(Base):
    """At most one is open. Any region closes it when every participant has answered or the deadline has passed."""

    __tablename__ = "auction_rounds"
    __table_args__ = (
        Index(
            "auction_rounds_open", text("(closed_at IS NULL)"), unique=True, postgresql_where=text("closed_at IS NULL")
        ),
    )

    round: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    scan_pass: Mapped[int] = mapped_column(BigInteger)
    opened_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    deadline_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    now_s: Mapped[float] = mapped_column(Float)
    """The service's time that every region plans this round with."""
    participants: Mapped[list[str]] = mapped_column(ARRAY(Name))
    lots: Mapped[list[dict[str, Any]]] = mapped_column(JSONB)
    """In queue order: workload, position, expected_winner."""
    closed_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    closed_by: Mapped[str | None] = mapped_column(Name)
    outcome: Mapped[dict[str, Any] | None] = mapped_column(JSONB)


class AuctionResponseRow(Base):
    """A region's answer to a round."""

    __tablename__ = "auction_responses"

    round: Mapped[int] = mapped_column(ForeignKey("auction_rounds.round", ondelete="CASCADE"), primary_key=True)
    region: Mapped[str] = mapped_column(Name, primary_key=True)
    response: Mapped[dict[str, Any]] = mapped_column(JSONB)


class BidRow(Base):
    """One region's bid for one lot, and what came of it: won, lost, or carried into the next round."""

    __tablename__ = "bids"
    __table_args__ = (Index("bids_workload", "workload", "round"),)

    round: Mapped[int] = mapped_column(ForeignKey("auction_rounds.round", ondelete="CASCADE"), primary_key=True)
    workload: Mapped[str] = mapped_column(Name, primary_key=True)
    region: Mapped[str] = mapped_column(Name, primary_key=True)
    score: Mapped[dict[str, Any]] = mapped_column(JSONB)
    outcome: Mapped[str] = mapped_column(Name)


class AwardRow(Base):
    """A lot that a region won and has not dispatched yet. Deleted in the dispatching transaction."""

    __tablename__ = "awards"

    workload: Mapped[str] = mapped_column(ForeignKey("workloads.workload", ondelete="CASCADE"), primary_key=True)
    region: Mapped[str] = mapped_column(Name, index=True)
    round: Mapped[int] = mapped_column(BigInteger)
    lot: Mapped[int] = mapped_column(Integer)
    """Position in the round's window: awards are dispatched in this order."""


# ---------------------------------------------------------------- attempts


class AttemptRow(Base):
    __tablename__ = "attempts"
    __table_args__ = (
        Index("attempts_live", "region", postgresql_where=text("ended_s IS NULL")),
        Index(
            "attempts_uncounted",
            "workload",
            "attempt",
            postgresql_where=text("ended_s IS NULL OR counted_s IS DISTINCT FROM ended_s"),
        ),
        REWRITTEN,
    )

    workload: Mapped[str] = mapped_column(ForeignKey("workloads.workload", ondelete="CASCADE"), primary_key=True)
    attempt: Mapped[int] = mapped_column(Integer, primary_key=True)
    tenant: Mapped[str] = mapped_column(Name)
    region: Mapped[str] = mapped_column(Name)
    state: Mapped[str] = mapped_column(Name)
    """DISPATCHED, RUNNING, PREEMPTING, or ENDED."""
    priority: Mapped[int] = mapped_column(SmallInteger)
    level: Mapped[int] = mapped_column(SmallInteger)
    within_quota: Mapped[bool] = mapped_column(Boolean)
    gpus: Mapped[int] = mapped_column(Integer)
    cpus: Mapped[float] = mapped_column(Float)
    """What the placements hold together: for usage windows."""
    charges: Mapped[dict[str, int]] = mapped_column(JSONB)
    """By quota bucket (and `cpus`, in thousandths): what quota_use holds for it when within quota."""
    dispatched_s: Mapped[float] = mapped_column(Float)
    started_s: Mapped[float | None] = mapped_column(Float)
    ended_s: Mapped[float | None] = mapped_column(Float)
    counted_s: Mapped[float | None] = mapped_column(Float)
    """Until when its use is in usage_windows; None: not at all yet."""
    end: Mapped[str | None] = mapped_column(Name)
    """completed, failed, cancelled, or the cause of the eviction."""
    end_reason: Mapped[str] = mapped_column(Text, server_default=text("''"))
    eviction: Mapped[dict[str, Any] | None] = mapped_column(JSONB)
    """While it is being evicted: cause, by, by_attempt, by_priority, by_level."""
    progress_at_start: Mapped[float] = mapped_column(Float)
    progress: Mapped[float] = mapped_column(Float)
    checkpoint_progress: Mapped[float] = mapped_column(Float)
    leaving_s: Mapped[float | None] = mapped_column(Float)
    """When it was asked to leave: from then on it receives no service."""
    received_gpu_s: Mapped[float] = mapped_column(Float, server_default=text("0"))
    """GPU-seconds received up to `received_to_s`, with the GPUs that it held then."""
    received_to_s: Mapped[float | None] = mapped_column(Float)
    """When its GPUs changed last; None: never."""
    preempted_s: Mapped[float | None] = mapped_column(Float)
    """When it was asked to leave for another one; stays when it then leaves for another cause."""


class PlacementRow(Base):
    __tablename__ = "placements"
    __table_args__ = (
        ForeignKeyConstraint(["workload", "attempt"], ["attempts.workload", "attempts.attempt"], ondelete="CASCADE"),
    )

    workload: Mapped[str] = mapped_column(Name, primary_key=True)
    attempt: Mapped[int] = mapped_column(Integer, primary_key=True)
    job: Mapped[str] = mapped_column(Name, primary_key=True)
    task: Mapped[int] = mapped_column(Integer, primary_key=True)
    cluster: Mapped[str] = mapped_column(Name)
    machine: Mapped[str] = mapped_column(Name)
    gpu_indices: Mapped[list[int]] = mapped_column(ARRAY(SmallInteger))
    millicpus: Mapped[int] = mapped_column(BigInteger)
    mebibytes: Mapped[int] = mapped_column(BigInteger)


class PlacementRevisionRow(Base):
    """An attempt whose placements have changed since it was dispatched; the last change and how far it is."""

    __tablename__ = "placement_revisions"
    __table_args__ = (
        ForeignKeyConstraint(["workload", "attempt"], ["attempts.workload", "attempts.attempt"], ondelete="CASCADE"),
    )

    workload: Mapped[str] = mapped_column(Name, primary_key=True)
    attempt: Mapped[int] = mapped_column(Integer, primary_key=True)
    revision: Mapped[int] = mapped_column(Integer)
    """Counts the changes from 1 on."""
    change: Mapped[dict[str, Any] | None] = mapped_column(JSONB)
    """The last one while it is being carried out: kind, released, waits_for. Null: it is carried out."""
    changed: Mapped[dict[str, Any]] = mapped_column(JSONB, server_default=text("'{}'"))
    """By cluster: since when the placements are as they are there, and the attempt's progress then."""


class ReservedPlaceRow(Base):
    """Where the successor of a migrating attempt will start, in the region that keeps the place for it.

    Written by that region; deleted by it when it cannot keep the place, or by the region of the attempt that migrates,
    in the transaction that records its end.
    """

    __tablename__ = "reserved_places"

    workload: Mapped[str] = mapped_column(ForeignKey("workloads.workload", ondelete="CASCADE"), primary_key=True)
    attempt: Mapped[int] = mapped_column(Integer)
    """The successor's number."""
    region: Mapped[str] = mapped_column(Name, index=True)
    reserved_s: Mapped[float] = mapped_column(Float)
    placements: Mapped[list[dict[str, Any]]] = mapped_column(JSONB)


class CheckpointRow(Base):
    __tablename__ = "checkpoints"

    workload: Mapped[str] = mapped_column(ForeignKey("workloads.workload", ondelete="CASCADE"), primary_key=True)
    attempt: Mapped[int] = mapped_column(Integer, primary_key=True)
    progress: Mapped[float] = mapped_column(Float, primary_key=True)
    saved_s: Mapped[float] = mapped_column(Float)


# ---------------------------------------------------------------- the log


class EventRow(Base):
    """Append-only. `details` is what only some kinds of event have.

    `sequence` is taken when the event is appended, after whatever its transaction waited for: so a cause always
    stands before its effect. How readers avoid to miss an event that commits late is event_store's business.
    """

    __tablename__ = "events"
    __table_args__ = (Index("events_workload", "workload", "sequence"),)

    sequence: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    t: Mapped[float] = mapped_column(Float)
    event: Mapped[str] = mapped_column(Name)
    workload: Mapped[str | None] = mapped_column(Name)
    attempt: Mapped[int | None] = mapped_column(Integer)
    tenant: Mapped[str | None] = mapped_column(Name)
    priority: Mapped[int | None] = mapped_column(SmallInteger)
    level: Mapped[int | None] = mapped_column(SmallInteger)
    region: Mapped[str | None] = mapped_column(Name)
    cluster: Mapped[str | None] = mapped_column(Name)
    details: Mapped[dict[str, Any]] = mapped_column(JSONB)


class LeaseRow(Base):
    """Who is `global`, `regional/<region>` or `cluster/<cluster>`, at which address, until when.

    `token` grows with each new holder: calls and writes with an older one are refused.
    """

    __tablename__ = "leases"

    name: Mapped[str] = mapped_column(Name, primary_key=True)
    holder: Mapped[str] = mapped_column(Name)
    address: Mapped[str] = mapped_column(Text)
    process_id: Mapped[int] = mapped_column(Integer)
    token: Mapped[int] = mapped_column(BigInteger)
    expires_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))


class CommitMarkRow(Base):
    """One slot per transaction in flight: how to tell, after a lost connection, what was committed (commit_marks.py)."""

    __tablename__ = "commit_marks"
    __table_args__ = REWRITTEN

    slot: Mapped[str] = mapped_column(Name, primary_key=True)
    number: Mapped[int] = mapped_column(BigInteger)
    made_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))


METADATA = Base.metadata
"""Of all tables."""
