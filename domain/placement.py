"""Where tasks are put, and the score of a plan that puts them there."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

from domain.cells import CellsOfJobs
from domain.eviction import ALWAYS_S
from domain.identifiers import AttemptNumber, ClusterId, JobName, MachineId, TenantId, WorkloadId
from domain.rank import Standing
from domain.tenant import LOWEST_PRIORITY
from domain.work_destroyed import unsaved_s, work_destroyed, work_weight
from domain.workload import BaseTasksOfJobs


class TaskPlacement(NamedTuple):
    """One task on one machine, with the very GPUs, CPUs and memory that it holds."""

    job: JobName
    task: int
    cluster: ClusterId
    machine: MachineId
    gpu_indices: tuple[int, ...]
    millicpus: int
    mebibytes: int

    @property
    def cpus(self) -> float:
        return self.millicpus / 1000

    @property
    def memory_gib(self) -> float:
        return self.mebibytes / 1024


class HeldAmounts(NamedTuple):
    """What several tasks hold together of what tenants are charged for."""

    gpus: int
    cpus: float


def amounts_of(placements: Sequence[TaskPlacement]) -> HeldAmounts:
    """What these tasks hold together."""
    gpus = millicpus = 0
    for placement in placements:
        gpus += len(placement.gpu_indices)
        millicpus += placement.millicpus
    return HeldAmounts(gpus, millicpus / 1000)


def machines_of(placements: Sequence[TaskPlacement]) -> tuple[MachineId, ...]:
    """The machines that the tasks are on, each once, in the order in which they come."""
    return tuple(dict.fromkeys([placement.machine for placement in placements]))


class AttemptKey(NamedTuple):
    """One run of a workload."""

    workload: WorkloadId
    attempt: AttemptNumber

    @property
    def successor(self) -> AttemptKey:
        """The next attempt of the same workload."""
        return AttemptKey(self.workload, AttemptNumber(self.attempt + 1))

    @property
    def predecessor(self) -> AttemptKey:
        """The attempt before this one."""
        return AttemptKey(self.workload, AttemptNumber(self.attempt - 1))


def order_of_holding(attempt: AttemptKey, dispatched_s: float, leaving: bool) -> tuple[bool, float, AttemptKey]:
    """In which order the places of live attempts are held anew.

    Those that leave come first: what was dispatched in their place may use what they have not given back yet.
    """
    return not leaving, dispatched_s, attempt


NO_TENANT = TenantId("")
"""Nobody's: a place that is only kept for something."""


class Holding(NamedTuple):
    """A live attempt and what it holds: what the planner must know of whatever runs."""

    key: AttemptKey
    standing: Standing
    started_s: float
    """When it was dispatched or started; the longer ago, the rather it is evicted."""
    placements: tuple[TaskPlacement, ...]
    evictable_from_s: float = ALWAYS_S
    """From when on others may evict it: see `domain.eviction`."""
    spared: bool = False
    """Whether newcomers that are not guaranteed must leave it alone: see `domain.eviction.is_spared`."""
    cells: CellsOfJobs = ()
    """Of the jobs that use cells of a virtual cluster."""
    base_tasks: BaseTasksOfJobs = ()
    """Of its elastic jobs."""
    tenant: TenantId = NO_TENANT
    """Whose it is: what its tenant has beyond its fair share of opportunistic use leaves first (HiveD §3.3)."""
    saved_s: float | None = None
    """Since when its work would be lost: its last checkpoint or its start; None: since `started_s`."""
    checkpoint_interval_s: float = 0.0
    """It has saved its work every so many seconds since then without anybody being told; 0: it has not."""
    whole_weight: int = 0
    """Of all its tasks (`domain.work_destroyed.work_weight`), where these placements are a part of them; 0: these are all."""

    @property
    def weight(self) -> int:
        """How much it weighs when it is evicted, which it always is as a whole."""
        return self.whole_weight or work_weight(self.placements)

    @property
    def unsaved_since_s(self) -> float:
        """When it last saved its work, as far as that is known."""
        return self.started_s if self.saved_s is None else self.saved_s

    def work_destroyed(self, restart_cost_s: float, now: float) -> int:
        """The units of work that its eviction would destroy now."""
        lost_s = unsaved_s(self.unsaved_since_s, self.checkpoint_interval_s, now)
        return work_destroyed(self.weight, lost_s, restart_cost_s)

    @property
    def flexible(self) -> tuple[TaskPlacement, ...]:
        """The tasks that it can go on without (Lyra §5.2), in the order in which it holds them."""
        if not self.base_tasks:
            return ()
        base_tasks = dict(self.base_tasks)
        return tuple([one for one in self.placements if one.task >= base_tasks.get(one.job, one.task + 1)])


NONE_BY_PRIORITY = (0,) * (LOWEST_PRIORITY + 1)
NO_WORK_DESTROYED = (0.0,) * (LOWEST_PRIORITY + 1)


class Score(NamedTuple):
    """How good a plan is; smaller is better; field order is the order of importance (design §4).

    Comparable between regions and summed over jobs field by field.
    """

    reclaim_class: int = 0
    """0 evicts nothing, 1 scales in only, 2 preempts."""
    work_destroyed_by_priority: tuple[float, ...] = NO_WORK_DESTROYED
    """GPU-seconds of work that the evictions destroy, by the priority of the victims from 0 on: of lower priorities first,
    then less. All 0 under a rule that does not go by it (`domain.eviction.VictimChoice`)."""
    preempted_by_priority: tuple[int, ...] = NONE_BY_PRIORITY
    """Workloads evicted, counted by their priority from 0 on: lower priorities first, then fewer."""
    preempted_running_s: float = 0.0
    """Minus the seconds that the victims have been running: longer-running ones are better victims."""
    spread: int = 0
    """Racks and machines beyond the fewest, for jobs to be consolidated."""
    fragmentation: float = 0.0
    """GPUs left idle on machines that the plan opens only partly (and, without GPUs, the share of CPUs)."""
    hint: int = 0
    """0 where Tetris expects a recurring workload, else 1."""
    load: float = 0.0
    """Share of the region's GPUs (CPUs for jobs without) in use: ties go to the emptier region."""

    def plus(self, other: Score) -> Score:
        """The score of both together."""
        return Score(
            max(self.reclaim_class, other.reclaim_class),
            tuple(
                a + b for a, b in zip(self.work_destroyed_by_priority, other.work_destroyed_by_priority, strict=True)
            ),
            tuple(a + b for a, b in zip(self.preempted_by_priority, other.preempted_by_priority, strict=True)),
            self.preempted_running_s + other.preempted_running_s,
            self.spread + other.spread,
            self.fragmentation + other.fragmentation,
            max(self.hint, other.hint),
            max(self.load, other.load),
        )

    @staticmethod
    def total(scores: tuple[Score, ...]) -> Score:
        return reduce(Score.plus, scores, Score())
