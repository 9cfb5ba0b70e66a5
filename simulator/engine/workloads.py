"""A workload in a simulation: what was asked for, where it stands in its life, and its present attempt."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TypeAlias

from cluster_manager.attempt_run.emulated_work import EmulatedJob, EmulatedWork, emulated_work
from cluster_manager.attempt_run.run import AttemptFacts, AttemptRun, new_run
from domain.events import EvictionCause
from domain.eviction import EvictionRule, evictable_from_s, is_spared
from domain.identifiers import AttemptNumber, VirtualClusterId, WorkloadId
from domain.life_cycle import Happening, State, next_state
from domain.placement import AttemptKey, Holding, TaskPlacement
from domain.rank import QueuePosition, Standing
from domain.snapshot import AttemptSoFar
from domain.time_limit import limit_reached_s
from domain.workload import Workload, WorkloadSpecification, least_often
from regional_scheduler.rounds import Lot
from simulator.engine.ways_to_run import WayToRun

KeptPlace: TypeAlias = tuple[int, tuple[TaskPlacement, ...]]
"""A region, by position, and the places in it."""
NO_REGION = -1
NO_KEY = AttemptKey(WorkloadId(""), AttemptNumber(0))
NO_STANDING = Standing(0, 0)
NO_RUN = new_run(AttemptFacts(NO_KEY, 0.0))


@dataclass(slots=True, eq=False)
class SimulatedWorkload:
    """Mutable: the driver moves it along. Policies see it as `simulator.policies.work.Work`."""

    index: int
    workload: Workload
    tenant: int
    base_gpus: int
    """What it asks for: of all base tasks together."""
    submitted_s: float
    work_s: float
    """Seconds of work in all."""
    checkpoint_interval_s: float
    """After so much work a checkpoint is saved; 0: only when it is asked to leave."""
    kind: int
    """Workloads of the same kind ask for the same in the same places (and are of one tenant, where that matters)."""
    eligible: tuple[int, ...]
    """Positions of the regions that have the hardware and the data, and that it is bound to if it is."""
    shape: int = 0
    """Its kind if tenants are not kept apart."""
    estimate: float = 1.0
    """How many times as long as it is it is taken to be by whoever orders or resizes by run times."""
    ways: tuple[WayToRun, ...] = ()
    """Where there are several ways to run it: all of them, the preferred one first."""
    speed: float = 1.0
    """Of the way in which its attempt runs."""
    jobs: tuple[EmulatedJob, ...] = ()
    """Where there are several, the work of each; they advance together."""
    as_submitted: WorkloadSpecification | None = None
    """What was asked for, where it is decided anew whenever it comes to the queue whether its jobs are consolidated."""
    on_trial: bool = False
    """Whether the skew of its model is to be known only when an attempt has run for a while, and is not yet."""
    own_region: int = NO_REGION
    """Position of the region that its trace names."""
    state: State = State.PENDING
    queued_since_s: float = 0.0
    progress: float = 0.0
    """Seconds of work that are kept: where the next attempt starts."""
    done_before: float = 0.0
    """Seconds of work that were kept when the run began: of attempts that are not part of it."""
    attempts_before: int = 0
    attained_s: float = 0.0
    """Seconds that its attempts ran, since it was promoted last."""
    attained_gpu_s: float = 0.0
    """GPU-seconds that they received, since it was promoted last."""
    before_promotion_s: float = 0.0
    """Seconds that its attempts ran before it was promoted last."""
    before_promotion_gpu_s: float = 0.0
    first_started_s: float = math.inf
    """When the first of its attempts started; infinity: none did yet."""
    attempts: int = 0
    preempted_s: tuple[float, ...] = ()
    """When it was last asked to leave for others: as many times as the rule of eviction looks at."""
    token: int = 0
    """Changes with everything that makes events to come meaningless."""
    credit: float = 0.0
    """Ordering credit, as it was when it was ranked."""

    submitted: Workload = field(init=False)
    """As it was submitted; `workload` is cut into tasks for the way in which its attempt runs."""
    gpus: int = field(init=False)
    """What its attempt holds, with flexible tasks; what it asks for while it has none."""

    # The present attempt.
    key: AttemptKey = NO_KEY
    region: int = NO_REGION
    standing: Standing = NO_STANDING
    within_quota: bool = True
    guaranteed: bool = True
    """Whether it was within quota when the attempt was dispatched."""
    virtual_cluster: VirtualClusterId | None = None
    """Whose cells its attempt was dispatched to."""
    dispatched_s: float = math.nan
    started_s: float = math.nan
    placements: tuple[TaskPlacement, ...] = ()
    """What its attempt holds. Its region's inventory may have given it more already: see `placement_changes`."""
    victims_left: int = 0
    """Attempts that have yet to leave before it can start."""
    makes_room_for: SimulatedWorkload | None = None
    room_token: int = 0
    also_awaited_by: list[tuple[SimulatedWorkload, int]] = field(default_factory=list)
    """Others, with their tokens, that were placed on what it leaves although it leaves for somebody else."""
    run: AttemptRun = NO_RUN
    """Where the attempt stands; moved along by `cluster_manager.attempt_run.machine`."""
    emulated: EmulatedWork | None = None
    """Its work since it started; halted when it was asked to leave."""
    kept: float = 0.0
    """What of its progress is kept when it is gone."""
    cpus: float = 0.0
    """What it holds."""
    made_up_gpu_s: float = 0.0
    """What `attained_gpu_s` has for its attempt already: service is counted at the end as if it had always held `gpus`."""
    gained_s: float = 0.0
    """How much earlier its attempt ends than at the speed of its base tasks."""
    goes_on_in: KeptPlace | None = None
    """While it migrates: the region, by position, and the places that are kept for its next attempt."""
    row: int = -1
    """Its row in the table of attempts."""
    charges: dict[str, int] = field(default_factory=dict)
    """What it takes of its tenant's quota."""
    quota_priority: int = 0
    """At which it is within quota: as it asks, or else its tenant's."""

    def __post_init__(self) -> None:
        self.gpus = self.base_gpus
        self.submitted = self.workload

    @property
    def may_be_heterogeneous(self) -> bool:
        """Whether it may run on GPUs of two models at once."""
        return bool(self.ways) and any(len(way.workload.specification.jobs) > 1 for way in self.ways)

    @property
    def remaining_s(self) -> float:
        """Run time to the end, when it came into the queue or when its attempt started, at its present speed."""
        return self.work_s - self.progress - self.gained_s

    @property
    def expected_remaining_s(self) -> float:
        """The same as far as it is estimated."""
        remaining_s = self.work_s - self.progress - self.gained_s
        if self.estimate == 1.0:
            return remaining_s
        return max(0.0, remaining_s + (self.estimate - 1.0) * self.work_s)

    @property
    def service_gpu_s(self) -> float:
        """GPU-seconds that its attempts that are over received, in all."""
        return self.before_promotion_gpu_s + self.attained_gpu_s

    def count_service(self, now: float) -> None:
        """Its attempt has worked until now; to be called once for each."""
        if not math.isnan(self.started_s):
            self.attained_s += now - self.started_s
            self.attained_gpu_s += (now - self.started_s) * self.gpus

    def promote(self) -> None:
        """What it attained counts from zero again."""
        self.before_promotion_s += self.attained_s
        self.before_promotion_gpu_s += self.attained_gpu_s
        self.attained_s = self.attained_gpu_s = 0.0

    @property
    def done_s(self) -> float:
        """When its attempt has done all work; never, while it does not run."""
        return math.inf if self.emulated is None else self.emulated.done_s

    @property
    def limit_reached_s(self) -> float:
        """When its attempt has run for as long as it may; infinity: never."""
        return limit_reached_s(self.started_s, self.workload.specification.max_time_s)

    def begins(self, now: float, speed: float) -> EmulatedWork:
        """Its attempt, which started just now, works at that speed."""
        self.emulated = self.work_from(now, speed)
        if speed != 1.0:
            self.gained_s = now + self.work_s - self.progress - self.emulated.done_s
        return self.emulated

    def goes_at(self, speed: float, gpus: int, now: float) -> None:
        """Its attempt holds so many GPUs from now on, and works at that speed. Raises ValueError if it does not run."""
        if self.emulated is None:
            raise ValueError(f"{self.workload.workload} is resized, but does not run")
        self._make_up((now - self.started_s) * (self.gpus - gpus))
        self.gpus = gpus
        self.emulated = self.emulated.at_speed(speed, now)
        self.gained_s = self.started_s + self.work_s - self.progress - self.emulated.done_s

    def goes_on_from(self, changed: AttemptSoFar, speed: float) -> None:
        """Its attempt, which started at `started_s` and holds `gpus`, was changed then, and works at that speed since."""
        if self.emulated is None:
            raise ValueError(f"{self.workload.workload} was changed, but does not run")
        self._make_up(changed.gpu_s - (changed.to_s - self.started_s) * self.gpus)
        reached = max(self.progress, min(changed.progress, self.work_s))
        self.emulated = self.emulated._replace(progress=reached, anchor_s=changed.to_s, speed=speed)
        if speed > 0:
            self.gained_s = self.started_s + self.work_s - self.progress - self.emulated.done_s

    def changed_so_far(self) -> AttemptSoFar | None:
        """What its attempt had come to at its last change; None if there was none since it started."""
        emulated = self.emulated
        if emulated is None or emulated.anchor_s == self.started_s:
            return None
        ran_s = emulated.anchor_s - self.started_s
        return AttemptSoFar(emulated.anchor_s, emulated.progress, ran_s * self.gpus + self.made_up_gpu_s)

    def _make_up(self, gpu_s: float) -> None:
        self.made_up_gpu_s += gpu_s
        self.attained_gpu_s += gpu_s

    def holding(self, placements: tuple[TaskPlacement, ...], rule: EvictionRule) -> Holding:
        """What its attempt holds in these places, and from when on it may be evicted."""
        started_s = None if math.isnan(self.started_s) else self.started_s
        from_s = evictable_from_s(rule, self.dispatched_s, started_s, self.preempted_s)
        spared = is_spared(rule, guaranteed=self.guaranteed)
        specification = self.workload.specification
        return Holding(
            self.key,
            self.standing,
            self.dispatched_s,
            placements,
            from_s,
            spared,
            base_tasks=specification.base_tasks,
            tenant=specification.tenant,
            saved_s=started_s,
            checkpoint_interval_s=self.checkpoint_every_s,
        )

    @property
    def checkpoint_every_s(self) -> float:
        """After so many seconds of work all its jobs have saved again; 0: not before it stops."""
        return least_often([job.checkpoint_interval_s for job in self.jobs] or [self.checkpoint_interval_s])

    def stops_within_s(self, grace_s: float, reclaim_deadline_s: float) -> float:
        """How long it has to save its work; a machine that is asked back is not waited for beyond the deadline."""
        reclaimed = self.run.eviction is not None and self.run.eviction.cause is EvictionCause.RECLAIMED
        return min(grace_s, reclaim_deadline_s) if reclaimed else grace_s

    def runs_in(self, way: WayToRun | None) -> None:
        """Its attempt runs in this way, from its dispatch on; None: there is only one."""
        if way is None:
            return
        self.workload, self.speed = way.workload, way.speed
        self.gpus = way.workload.specification.base_gpus

    def runs_no_more(self) -> None:
        """It waits again: any way may be its next."""
        if self.ways:
            self.workload, self.speed = self.submitted, 1.0

    def lot_at(self, standing: Standing, workload: Workload | None = None) -> Lot:
        """The workload as it is put up for auction when it waits at that standing; in the given way, if it has several."""
        position = QueuePosition(self.workload.workload, standing, self.credit, self.submitted_s, self.within_quota)
        return Lot(workload or self.workload, position, AttemptNumber(self.attempts + 1), None, self.preempted_s)

    def facts(self) -> AttemptFacts:
        """What is known of its attempt as that begins."""
        return AttemptFacts(self.key, self.progress, stop_grace_s=self.workload.specification.stop_grace_s)

    def happens(self, happening: Happening) -> None:
        """The next state by the life cycle's table; raises TransitionRefused."""
        self.state = next_state(self.workload.workload, self.state, happening)

    def work_from(self, now: float, speed: float = 1.0) -> EmulatedWork:
        """Its work, going on from what was kept."""
        jobs = self.jobs or (EmulatedJob(self.work_s, self.checkpoint_interval_s),)
        return emulated_work(jobs, self.progress, now, speed)

    def progress_at(self, now: float) -> float:
        """What it has reached, in seconds of work; never more than there is."""
        return self.progress if self.emulated is None else self.emulated.progress_at(now)

    def checkpoint_at(self, now: float) -> float:
        """What of that is safe without a chance to save it: the last periodic checkpoint."""
        return self.progress if self.emulated is None else self.emulated.checkpoint_at(now)
