"""What happened in a run, as tables: one row per workload, one per attempt, and what each attempt held per machine.

Everything that a report shows is computed from these tables. The simulator fills them while it runs; `record_of_log`
makes the same tables from an event log, of a simulated run or a live one.

Times are seconds on the run's clock; what has not happened is not a number. Positions refer to rows of other tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from domain.events import EvictionCause

Integers = NDArray[np.int64]
Reals = NDArray[np.float64]
Flags = NDArray[np.bool_]

NO_ROW = -1
"""In place of a position: there is none."""


class WorkloadEnd(IntEnum):
    """How a workload stood when the run was over."""

    QUEUED = 0
    RUNNING = 1
    COMPLETED = 2
    FAILED = 3
    CANCELLED = 4
    REFUSED = 5
    """No region could ever host it: it never was in the queue."""


class AttemptEnd(IntEnum):
    """Why an attempt ended."""

    RUNNING = 0
    """It had not when the run was over."""
    COMPLETED = 1
    PREEMPTED = 2
    MACHINE_LOST = 3
    DRAINED = 4
    RECLAIMED = 5
    FAILED = 6
    CANCELLED = 7
    MIGRATED = 8
    """It went on elsewhere, as the next attempt."""
    CHANGE_REFUSED = 9
    """A cluster refused a change of what it holds, and that could not be undone."""
    REQUEUED = 10
    """Its user sent it back to the queue."""


END_OF_CAUSE: Final[Mapping[str, AttemptEnd]] = MappingProxyType(
    {
        EvictionCause.PREEMPTED: AttemptEnd.PREEMPTED,
        EvictionCause.RECLAIMED: AttemptEnd.RECLAIMED,
        EvictionCause.MACHINE_LOST: AttemptEnd.MACHINE_LOST,
        EvictionCause.DRAINED: AttemptEnd.DRAINED,
        EvictionCause.CANCELLED: AttemptEnd.CANCELLED,
        EvictionCause.MIGRATED: AttemptEnd.MIGRATED,
        EvictionCause.CHANGE_REFUSED: AttemptEnd.CHANGE_REFUSED,
        EvictionCause.TIME_LIMIT: AttemptEnd.FAILED,
        EvictionCause.REQUEUED: AttemptEnd.REQUEUED,
    }
)
"""How an attempt ended that was evicted, by the cause."""


@dataclass(frozen=True, slots=True, eq=False)
class WorkloadTable:
    """Workloads, by (submit time, id)."""

    ids: tuple[str, ...]
    tenant: Integers
    """Position in RunRecord.tenants."""
    priority: Integers
    """Of its first attempt; of its tenant when it never had one."""
    within_quota: Flags
    """At its first attempt."""
    gpus: Integers
    """Of all base tasks together."""
    submitted_s: Reals
    work_s: Reals
    """Seconds of work in all, on what it asked for; not a number when it is unknown."""
    first_started_s: Reals
    ended_s: Reals
    """Completed, failed or cancelled."""
    end: Integers
    """WorkloadEnd."""
    done_before: Reals | None = None
    """Seconds of work that were kept when the run began, of attempts that are not part of it. None: nothing."""

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True, eq=False)
class AttemptTable:
    """Attempts, by (dispatch, workload, number): each holds its resources from dispatch to end."""

    workload: Integers
    """Position in the table of workloads."""
    number: Integers
    region: Integers
    """Position in RunRecord.regions."""
    priority: Integers
    level: Integers
    dispatched_s: Reals
    """From here on its capacity is reserved."""
    started_s: Reals
    """From here on it works; not a number if it never did."""
    ended_s: Reals
    """Not a number while it runs."""
    end: Integers
    """AttemptEnd."""
    evicted_by: Integers
    """Position of the workload that it made room for, or NO_ROW."""
    gpus: Integers
    """As it was dispatched."""
    guaranteed: Flags
    """Whether it was sure of its GPUs when it was dispatched: see `guaranteed_use`."""
    progress_at_start: Reals
    progress_at_end: Reals
    """Reached when it ended or the run was over, in the workload's unit (seconds of work when it is emulated)."""
    progress_kept: Reals
    """What of that was kept: the next attempt starts there."""
    first_share: Integers
    """Its rows of the table of shares are those from here to the next attempt's, one element more than attempts."""

    def __len__(self) -> int:
        return len(self.workload)


@dataclass(frozen=True, slots=True, eq=False)
class ShareTable:
    """What attempts held, machine by machine."""

    machine: Integers
    """Position in RunRecord.machines."""
    gpus: Integers
    from_s: Reals | None = None
    """Where attempts were resized, a share has times of its own. None: as long as its attempt holds anything."""
    until_s: Reals | None = None


@dataclass(frozen=True, slots=True, eq=False)
class MachineTable:
    """The machines of the fleet that have GPUs, in its order."""

    names: tuple[str, ...]
    region: Integers
    gpus: Integers


@dataclass(frozen=True, slots=True)
class RunCounts:
    """What the run itself counted; in a record that was made from a log all but the demotions and promotions are 0."""

    events: int = 0
    """Of the event queue."""
    scan_passes: int = 0
    cache_lookups: int = 0
    """How often a region was asked for room for a workload."""
    cache_hits: int = 0
    """How often the answer was known to be no."""
    plans: int = 0
    invariants_broken: int = 0
    """How many violations were found where the run's invariants were computed anew."""
    demotions: int = 0
    """How often a live attempt came to a worse level of its priority."""
    promotions: int = 0
    """How often a workload that waited for too long was put back at the best level."""
    reclaims: int = 0
    """How often inference asked machines back."""
    reclaimed_machines: int = 0
    """How many in all."""
    reclaimed_without_evictions: int = 0
    """Those of them that were idle, or on which nothing but flexible tasks was."""
    reclaimed_gpus: int = 0
    """That the machines have."""
    collateral_gpus: int = 0
    """That attempts evicted for reclaims held on other machines."""
    short_machines: int = 0
    """Machines that inference wanted back beyond those on loan, summed up over its looks."""
    readers_of_tables: int = 0
    """Workloads that read any table."""
    table_moves: int = 0
    """Copies of tables that were completed."""
    moved_table_bytes: int = 0
    """Of these copies."""
    waited_for_data: int = 0
    """Workloads that waited because no region held what they read."""
    waited_for_data_s: float = 0.0
    """How long, together; of those that still wait until the run was over."""


@dataclass(frozen=True, slots=True, eq=False)
class RunRecord:
    """A whole run."""

    policy: str
    trace: str
    seed: int
    tenants: tuple[str, ...]
    regions: tuple[str, ...]
    region_gpus: tuple[int, ...]
    machines: MachineTable
    workloads: WorkloadTable
    attempts: AttemptTable
    shares: ShareTable
    machine_down: tuple[tuple[int, float, float], ...]
    """(position of the machine, from, until) for each time that a machine with GPUs was down, or of an
    inference cluster and not on loan, by (from, machine)."""
    started_s: float
    """When the run began: the first submission, or the moment of its snapshot."""
    ended_s: float
    """When it was over: the last end, or where it was broken off."""
    broken_off: bool
    """True when it was stopped before the last workload had ended, or before it was submitted."""
    counts: RunCounts
    inference_machines: tuple[int, ...] = ()
    """Positions of the machines that belong to inference clusters, in order."""
    stalled: bool = False
    """True when nothing more could happen though workloads had not ended: nobody stopped it."""
    not_submitted: int = 0
    """Workloads that were still to be submitted when it was stopped; they are in no table."""
