"""A run that begins in the middle: the world takes over a snapshot, and what runs there goes on.

Queue entries keep their ranks and what their attempts attained; running attempts keep placements, standing, times and
progress. What no snapshot knows is taken from the run's settings: an attempt that was dispatched and has not started
does so when its containers are ready, counted from its dispatch; one that is leaving is gone after the time that a
checkpoint takes, or its grace if that is shorter, counted from when it was asked to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeAlias

from cluster_manager.capacity.errors import InventoryError
from domain.events import EventKind, EvictionCause
from domain.eviction import remembered_preemptions
from domain.fleet import MachineState
from domain.identifiers import WorkloadId
from domain.life_cycle import State
from domain.placement import order_of_holding
from domain.rank import Standing
from domain.snapshot import QueuedWorkload, RunningAttempt, Snapshot
from domain.workload import Emulated, Workload, emulated_work_s
from formats.problems import FieldProblem, FormatError
from simulator.engine.attempts import Attempts
from simulator.engine.binding import Bindings
from simulator.engine.event_log import SimulatedEvents
from simulator.engine.event_queue import Happens
from simulator.engine.intake import Intake
from simulator.engine.taken_over import eviction_of, goes_on_at, speed_of
from simulator.engine.waiting import enter_queue
from simulator.engine.workloads import SimulatedWorkload
from simulator.engine.world import World

_Told: TypeAlias = tuple[float, int, Callable[[], None]]
"""When, its place among what happened then, and how the log learns it."""


class Duration(NamedTuple):
    """How long a workload works, on the axis of its progress in seconds."""

    work_s: float
    kept_s: float
    """Done and kept before its present attempt, or before it waits."""
    emulated: bool
    """False: it is an estimate, so many seconds more from the snapshot on."""


def duration_of(entry: QueuedWorkload | RunningAttempt, taken_s: float, default_duration_s: float | None) -> Duration:
    """Emulated workloads say it themselves; the others need the default from the snapshot on, however long they ran.

    Raises ValueError where there is no default for one that is not emulated.
    """
    work_s = emulated_work_s(entry.workload.specification)
    if work_s is not None:
        kept = entry.progress_at_start if isinstance(entry, RunningAttempt) else entry.so_far.checkpoint_progress
        return Duration(work_s, min(kept, work_s), emulated=True)
    if default_duration_s is None:
        raise ValueError(f"{entry.workload.workload} is not emulated, and there is no default duration")
    ran_s = 0.0
    if isinstance(entry, RunningAttempt) and entry.started_s is not None:
        ran_s = max(0.0, taken_s - entry.started_s)
    return Duration(entry.so_far.attained_s + ran_s + default_duration_s, entry.so_far.attained_s, emulated=False)


def resume(
    world: World,
    snapshot: Snapshot,
    intake: Intake,
    bindings: Bindings,
    attempts: Attempts,
    default_duration_s: float | None,
) -> None:
    """Fills an empty world with the snapshot; its clock stands at the moment when that was taken.

    Raises FormatError where placements do not fit the machines.
    """
    _Resumption(world, snapshot, intake, bindings, attempts, default_duration_s).carry_out()


class _Resumption:
    def __init__(
        self,
        world: World,
        snapshot: Snapshot,
        intake: Intake,
        bindings: Bindings,
        attempts: Attempts,
        default_duration_s: float | None,
    ) -> None:
        self._world = world
        self._snapshot = snapshot
        self._intake = intake
        self._bindings = bindings
        self._attempts = attempts
        self._default_duration_s = default_duration_s
        self._regions = {member.region: position for position, member in enumerate(world.regions.members)}

    def carry_out(self) -> None:
        world, snapshot = self._world, self._snapshot
        # 1. Every workload exists, by (submit time, id).
        queued = {entry.workload.workload: entry for entry in snapshot.queue}
        running = {attempt.workload.workload: attempt for attempt in snapshot.running}
        for workload in snapshot.workloads():
            self._take_in(queued.get(workload.workload) or running[workload.workload])
        # 2. Machines are as they were, and so is what tenants used.
        self._set_machine_states()
        positions = {tenant.tenant: position for position, tenant in enumerate(world.tenants)}
        world.tenant_use.begin_with(
            [(positions[u.tenant], u.start_s, u.end_s, u.gpu_seconds, u.cpu_seconds)
             for u in snapshot.use if u.tenant in positions],
            snapshot.taken_s,
        )  # fmt: skip
        # 3. Attempts hold their places.
        order = sorted(
            snapshot.running, key=lambda one: order_of_holding(one.key, one.dispatched_s, one.state is State.PREEMPTING)
        )
        for attempt in order:
            self._hold(attempt)
        for attempt in order:
            self._keep_next_place(attempt)
            self._link_to_its_reason(attempt)
        # 4. The log learns how all this came about.
        if world.log is not None:
            self._log_history(world.log)
        # 5. What runs goes on; what waits is in the queue, as it was ranked.
        for attempt in order:
            self._attempts.go_on(self._work(attempt.workload))
        for entry in sorted(snapshot.queue, key=lambda one: (one.workload.submitted_s, one.workload.workload)):
            self._queue(entry)
        world.news = True

    def _take_in(self, entry: QueuedWorkload | RunningAttempt) -> None:
        world = self._world
        duration = duration_of(entry, self._snapshot.taken_s, self._default_duration_s)
        workload = entry.workload if duration.emulated else _emulated(entry.workload, duration.work_s)
        work = self._intake.workload_as_described(workload, len(world.workloads), duration.work_s)
        work.progress = work.done_before = duration.kept_s
        so_far = entry.so_far
        work.before_promotion_s, work.before_promotion_gpu_s = so_far.before_promotion_s, so_far.before_promotion_gpu_s
        work.attained_s = so_far.attained_s - so_far.before_promotion_s
        work.attained_gpu_s = so_far.attained_gpu_s - so_far.before_promotion_gpu_s
        if so_far.first_started_s is not None:
            work.first_started_s = so_far.first_started_s
        work.attempts = work.attempts_before = entry.so_far.attempts
        work.preempted_s = remembered_preemptions(world.eviction_rule, entry.preempted_s)
        world.workloads.append(work)
        world.refused.append(False)
        world.by_name[workload.workload] = work
        if isinstance(entry, RunningAttempt):
            if self._bindings.keep(work, self._regions[entry.region], self._snapshot.taken_s):
                self._intake.bind(work, self._regions[entry.region])
            if entry.leaving is not None and entry.leaving.cause is EvictionCause.CANCELLED:
                self._bindings.ended(work, self._snapshot.taken_s)
        elif work.eligible:
            region = self._bindings.region_for(work, self._snapshot.taken_s)
            if region is not None:
                self._intake.bind(work, region)
        if world.columns is not None:
            world.columns.submit(work)

    def _set_machine_states(self) -> None:
        world = self._world
        for position, member in enumerate(world.regions.members):
            for place, machine in enumerate(member.inventory.machine_ids):
                state = self._snapshot.machine_states.get(machine, MachineState.UP)
                if state is MachineState.UP:
                    continue
                if state.is_down:
                    world.down_at_first.add((position, place))
                for kind in _events_of(state):
                    world.put_machine(position, machine, state, kind, "it was so when the run began")

    def _hold(self, attempt: RunningAttempt) -> None:
        work = self._work(attempt.workload)
        work.key, work.attempts = attempt.key, attempt.key.attempt
        work.attempts_before = attempt.key.attempt - 1
        work.region, work.state = self._regions[attempt.region], attempt.state
        work.standing, work.within_quota = attempt.standing, attempt.within_quota
        if not self._world.policy.scans:
            work.standing, work.within_quota = Standing(0, attempt.standing.level), True
        work.guaranteed = attempt.guaranteed or not self._world.policy.scans
        work.queued_since_s = attempt.dispatched_s
        with self._blaming(attempt, "placements"):
            self._attempts.take_over(work, attempt)

    def _keep_next_place(self, attempt: RunningAttempt) -> None:
        if attempt.next_place is None or not goes_on_at(attempt):
            return
        region = self._regions[attempt.next_place.region]
        with self._blaming(attempt, "next_place.placements"):
            self._attempts.keep_place(self._work(attempt.workload), region, attempt.next_place.placements)

    @contextmanager
    def _blaming(self, attempt: RunningAttempt, field: str) -> Iterator[None]:
        """What the machines have no place for is a problem of that field."""
        try:
            yield
        except InventoryError as error:
            number = self._snapshot.running.index(attempt)
            problem = FieldProblem(f"running[{number}].{field}", f"{attempt.key.workload}: {error}")
            raise FormatError("snapshot", [problem]) from error

    def _link_to_its_reason(self, attempt: RunningAttempt) -> None:
        """A victim knows for which attempt it leaves, and that one for how many it waits."""
        leaving = attempt.leaving
        if leaving is None or leaving.by is None:
            return
        newcomer = self._world.by_name.get(leaving.by.workload)
        if newcomer is None or newcomer.key != leaving.by or newcomer.state is not State.DISPATCHED:
            return
        victim = self._work(attempt.workload)
        victim.makes_room_for, victim.room_token = newcomer, newcomer.token
        newcomer.victims_left += 1

    def _queue(self, entry: QueuedWorkload) -> None:
        world, now = self._world, self._snapshot.taken_s
        work = self._work(entry.workload)
        work.state = entry.state
        if not work.eligible:
            # Accepted by the service: it waits for data, or for machines that are not there.
            world.without_data += 1
            return
        if entry.not_before_s > now:
            world.events.add(entry.not_before_s, Happens.RETURN_TO_QUEUE, work.index, work.token)
            return
        enter_queue(world, work, now, since_s=entry.queued_since_s)
        if world.columns is not None and entry.position is not None:
            work.standing, work.within_quota = entry.position.standing, entry.position.within_quota
            work.credit = entry.position.credit
            world.columns.take_over_rank(work)

    def _log_history(self, log: SimulatedEvents) -> None:
        """Submissions, dispatches, starts and orders to leave, as they must have happened, by time."""
        world, taken_s = self._world, self._snapshot.taken_s
        history: list[tuple[float, int, int, Callable[[], None]]] = []

        def tell(time_s: float, rank: int, work: SimulatedWorkload, say: Callable[[], None]) -> None:
            history.append((time_s, rank, work.index, say))

        for work in world.workloads:
            tell(work.submitted_s, 0, work, partial(log.submitted, work, work.submitted_s))
        for attempt in self._snapshot.running:
            for time_s, rank, say in self._history_of(log, attempt, taken_s):
                tell(time_s, rank, self._work(attempt.workload), say)
        for _, _, _, say in sorted(history, key=lambda entry: entry[:3]):
            say()

    def _history_of(self, log: SimulatedEvents, attempt: RunningAttempt, taken_s: float) -> Sequence[_Told]:
        work = self._work(attempt.workload)
        victims = [
            other.key
            for other in self._snapshot.running
            if other.leaving is not None and other.leaving.by == attempt.key
        ]
        history: list[_Told] = [
            (
                work.dispatched_s,
                1,
                lambda: log.dispatched(work, attempt.placements, victims, work.dispatched_s),
            )
        ]
        if attempt.started_s is not None:
            history += self._work_history_of(log, attempt, attempt.started_s)
        eviction = eviction_of(attempt)
        if eviction is not None:
            history.append((taken_s, 3, lambda: log.evicting(work, eviction, taken_s)))
        return history

    def _work_history_of(self, log: SimulatedEvents, attempt: RunningAttempt, started_s: float) -> Sequence[_Told]:
        """Its start; and its last change, before which it must have been so fast that it came as far as it has."""
        work, changed = self._work(attempt.workload), attempt.changed
        if changed is None or changed.to_s <= started_s:
            return [(started_s, 2, lambda: log.started(work, attempt.placements, started_s))]
        reached = work.emulated.progress if work.emulated is not None else work.progress
        speed = (reached - work.progress) / (changed.to_s - started_s)
        start: _Told = (started_s, 2, lambda: log.started(work, attempt.placements, started_s, speed))
        if attempt.leaving is not None:
            return [start]
        return [
            start,
            (
                changed.to_s,
                2,
                lambda: log.changed(work, EventKind.RESIZED, attempt.placements, speed_of(attempt), changed.to_s),
            ),
        ]

    def _work(self, workload: Workload) -> SimulatedWorkload:
        name: WorkloadId = workload.workload
        return self._world.by_name[name]


def _emulated(workload: Workload, work_s: float) -> Workload:
    """The same workload, with the estimate in place of its programs."""
    jobs = tuple(replace(job, entry_point=Emulated(work_s)) for job in workload.specification.jobs)
    return replace(workload, specification=replace(workload.specification, jobs=jobs))


def _events_of(state: MachineState) -> tuple[EventKind, ...]:
    """What a log says of a machine that is in that state, and not up, when the run begins."""
    if state in (MachineState.DRAINING, MachineState.DRAINING_DOWN):
        draining = (EventKind.MACHINE_DRAINING,)
        return (*draining, EventKind.MACHINE_DOWN) if state.is_down else draining
    down = (EventKind.MACHINE_DOWN,) if state.is_down else ()
    if state.is_lent:
        return EventKind.LOANED, *down
    return down if state is MachineState.DOWN else (EventKind.RECLAIMED, *down)
