"""The event log: one record per thing that happened, one schema for the live service and the simulator.

docs/events.md documents every field. Common fields are attributes; what only some kinds have is in `details`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from domain.identifiers import ClusterId, RegionId, TenantId, WorkloadId

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"


class EventKind(StrEnum):
    SUBMITTED = "submitted"
    RANKED = "ranked"
    """Priority, level or within-quota of a queued workload changed in a scan pass."""
    PROMOTED = "promoted"
    """A workload that waited for too long is at the best level again, and what it attained counts from zero."""
    RECLASSIFIED = "reclassified"
    """A running over-quota workload became within-quota (or the reverse)."""
    WAITING = "waiting"
    AWAITING_DATA = "awaiting_data"
    HELD = "held"
    """A queued workload waits outside the queue until it is released."""
    RELEASED = "released"
    CHANGED = "changed"
    """A workload asks for something else from now on."""
    DISPATCHED = "dispatched"
    STARTED = "started"
    CHECKPOINTED = "checkpointed"
    RESIZED = "resized"
    TUNED = "tuned"
    DOWNGRADED = "downgraded"
    """A running attempt has lost cells of its virtual cluster and goes on opportunistically."""
    RESTORED = "restored"
    """It has cells again."""
    CHANGE_REFUSED = "change_refused"
    """A cluster says that it cannot resize or retune its part of an attempt: that is to hold again what it held before,
    or to leave."""
    EVICTING = "evicting"
    """The attempt was asked to stop; `evicted` follows when it has."""
    EVICTED = "evicted"
    COMPLETED = "completed"
    FAILED = "failed"
    """`final` false: the attempt failed and the workload is queued again; true: the workload has ended."""
    CANCELLED = "cancelled"
    MACHINE_DOWN = "machine_down"
    MACHINE_UP = "machine_up"
    MACHINE_DRAINING = "machine_draining"
    MACHINE_MOVED = "machine_moved"
    CLUSTER_LOST = "cluster_lost"
    """Its manager has held no lease for too long, or an operator knows: all that ran there ends, and runs elsewhere."""
    CLUSTER_BACK = "cluster_back"
    """A cluster that was lost takes work again."""
    CLUSTER_RECONCILED = "cluster_reconciled"
    """A region has reached the cluster's manager, and says what it found there of what was running when it was last there."""
    RESERVED = "reserved"
    """Machines are kept for a gang that has waited for too long."""
    RESERVATION_ENDED = "reservation_ended"
    """They are not any more."""
    LOANED = "loaned"
    RECLAIMED = "reclaimed"
    LOAN_SHORT = "loan_short"
    """Inference wants more machines back than are on loan."""
    TABLE_MOVED = "table_moved"
    MECHANISM_FAILED = "mechanism_failed"
    """A placement mechanism of a package raised, or gave what is no answer: its cluster had no place for the job."""
    RUN_ENDED = "run_ended"
    """A simulation is over though workloads have not ended: it was stopped, or nothing more can happen."""
    INVARIANT_BROKEN = "invariant_broken"
    """What must always hold did not: a defect of the program that writes the log."""


class EvictionCause(StrEnum):
    PREEMPTED = "preempted"
    RECLAIMED = "reclaimed"
    MACHINE_LOST = "machine_lost"
    DRAINED = "drained"
    CANCELLED = "cancelled"
    MIGRATED = "migrated"
    """It goes on elsewhere, as the next attempt, without going through the queue."""
    CHANGE_REFUSED = "change_refused"
    """A cluster refused to resize or retune it, and that cannot be undone: what it was to give up is another attempt's
    already, or the cluster refused that too."""
    REQUEUED = "requeued"
    """Its user sends it back to the queue."""
    TIME_LIMIT = "time_limit"
    """It has run for as long as its workload allows: the workload fails."""


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the event log. `t` is seconds since the epoch on the clock of the run."""

    t: float
    event: EventKind
    workload: WorkloadId | None = None
    attempt: int | None = None
    tenant: TenantId | None = None
    priority: int | None = None
    level: int | None = None
    region: RegionId | None = None
    cluster: ClusterId | None = None
    details: Mapping[str, JsonValue] = field(default_factory=dict)

    def as_json(self) -> dict[str, JsonValue]:
        """The record as it stands in the log: fields that do not apply are left out."""
        record: dict[str, JsonValue] = {"t": self.t, "event": self.event.value}
        for name in ("workload", "attempt", "tenant", "priority", "level", "region", "cluster"):
            value = getattr(self, name)
            if value is not None:
                record[name] = value
        record.update(self.details)
        return record
