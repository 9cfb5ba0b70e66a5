"""Runs a trace through the decisions of the live service, on a virtual clock."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from domain.clock import ManualClock
from domain.events import EventKind
from domain.fleet import Fleet, MachineState
from domain.identifiers import TenantId, WorkloadId
from domain.life_cycle import State
from domain.rank import Standing
from domain.tenant import Tenant
from formats.problems import FieldProblem, FormatError
from formats.trace import TraceRow
from formats.trace_workload import greatest_gpus_per_machine
from regional_scheduler.auction import AwaitingData
from simulator.engine.attempts import Attempts
from simulator.engine.binding import Bindings
from simulator.engine.collection import collection_put_off
from simulator.engine.event_log import EventSink, SimulatedEvents
from simulator.engine.event_queue import EventQueue, Happens, QueuedEvent
from simulator.engine.failures import Failures, failure_domains
from simulator.engine.intake import Intake
from simulator.engine.loans import Loans
from simulator.engine.queues import RankedQueue, ScannedQueue
from simulator.engine.recorder import Recorder, RunFacts
from simulator.engine.regions import RegionRoom
from simulator.engine.scanning import Scanner
from simulator.engine.settings import SimulationSettings
from simulator.engine.tenant_use import TenantUse
from simulator.engine.walk import Walk, WalkFacts
from simulator.engine.workloads import SimulatedWorkload
from simulator.engine.world import World
from simulator.inputs.loans import LoanSchedule, check_loans
from simulator.policies.policy import Policy
from simulator.results.run_record import RunCounts, RunRecord

_OF_WORKLOADS = frozenset({Happens.COMPLETION, Happens.VACATED, Happens.START, Happens.LEVEL_CHANGE})

EVENTS_BETWEEN_LOOKS = 1024
"""So often the watcher is asked whether to go on."""


@dataclass(frozen=True, slots=True)
class SimulationInput:
    """What is simulated. Tenants must name every tenant of the rows; rows may come in any order."""

    trace: str
    rows: Sequence[TraceRow]
    fleet: Fleet
    tenants: Sequence[Tenant]
    loans: LoanSchedule | None = None
    """Which clusters are for inference, and what they lend to training; None: all are for training."""


@dataclass(frozen=True, slots=True)
class RunProgress:
    """How far a run has come."""

    now_s: float
    events: int
    submitted: int
    ended: int
    workloads: int


Watcher: TypeAlias = Callable[[RunProgress], bool]
"""Is told of the progress now and then; False breaks the run off."""


def simulate(
    given: SimulationInput,
    policy: Policy,
    settings: SimulationSettings,
    seed: int,
    *,
    sink: EventSink | None = None,
    watcher: Watcher | None = None,
) -> RunRecord:
    """The run of a trace under a policy: same arguments, same record and events, byte for byte (I12).

    Raises FormatError for a row of an unknown tenant, for two rows with one id, and for no rows at all.
    """
    with collection_put_off():
        return Simulation(given, policy, settings, seed, sink).run(watcher)


class Simulation:
    """One run."""

    def __init__(
        self,
        given: SimulationInput,
        policy: Policy,
        settings: SimulationSettings,
        seed: int,
        sink: EventSink | None = None,
    ) -> None:
        self._given = given
        self._seed = seed
        self._rows = sorted(given.rows, key=lambda row: (row.submit_s, row.workload_id))
        tenants = sorted(given.tenants, key=lambda tenant: tenant.tenant)
        _check(given.trace, self._rows, {tenant.tenant for tenant in tenants})
        if given.loans is not None:
            check_loans(given.loans, given.fleet, "loans")
        self._start_s = self._rows[0].submit_s
        self._next_row = 0
        self._refused: list[bool] = []
        self._ended = 0
        self._without_data = 0
        """Accepted, but no region that could run them has their tables; tables do not move in a simulation."""
        self._taken = 0
        self._scan_passes = 0
        self._scan_due_s = math.inf
        use = TenantUse(len(tenants), settings.usage_window_s, self._start_s)
        self._scanner = _scanner_for(policy, settings, tenants, self._rows, use)
        world = _world_of(given.fleet, tenants, policy, settings, seed, sink, use)
        world.clock.advance_to(self._start_s)
        if self._scanner is not None:
            world.columns = self._scanner.columns
            world.queue = ScannedQueue(world.columns, world.workloads, policy.levels)
        self._world = world
        self._attempts = Attempts(world)
        self._walk = _walk_of(world, self._attempts)
        self._intake = _intake_of(world)
        self._failures = Failures(failure_domains(given.fleet, settings.failures), seed)
        self._bindings = Bindings(given.fleet, policy.region_choice, world.rng)
        self._loans = Loans(world, self._attempts, self._has_failed, given.loans)

    def run(self, watcher: Watcher | None = None) -> RunRecord:
        """Takes everything that happens in order, until nothing more can."""
        world = self._world
        for number in range(len(self._failures.domains)):
            world.events.add(self._failures.next_failure_s(number, self._start_s), Happens.MACHINE_DOWN, number)
        self._loans.begin(self._start_s)
        stop_s = self._start_s + world.settings.stop_after_s if world.settings.stop_after_s > 0 else math.inf
        broken_off = False
        looked_at = 0
        while True:
            submit_s = self._rows[self._next_row].submit_s if self._next_row < len(self._rows) else math.inf
            now = min(submit_s, world.events.next_time_s())
            if math.isinf(now) or self._all_ended or self._hopeless:
                break
            if now > stop_s:
                world.clock.advance_to(stop_s)
                broken_off = True
                break
            world.clock.advance_to(now)
            self._take_all_at(now, submit_s)
            if world.news:
                self._decide(now)
            if watcher is not None and self._taken - looked_at >= EVENTS_BETWEEN_LOOKS:
                looked_at = self._taken
                if not watcher(self._progress()):
                    broken_off = True
                    break
        if watcher is not None:
            watcher(self._progress())
        return self._record(broken_off or self._ended < len(self._rows))

    @property
    def _all_ended(self) -> bool:
        """Nothing but failures of machines may be left."""
        return self._next_row == len(self._rows) and self._ended + self._without_data == len(self._rows)

    @property
    def _hopeless(self) -> bool:
        """All have been submitted, nobody runs though every machine works, and nothing but failures is to come."""
        failures, world = self._failures, self._world
        only_failures = len(world.events) == len(failures.domains) and self._next_row == len(self._rows)
        return only_failures and not world.live and not world.news and not failures.any_failed

    def _progress(self) -> RunProgress:
        return RunProgress(self._world.clock.now(), self._taken, self._next_row, self._ended, len(self._rows))

    def _take_all_at(self, now: float, submit_s: float) -> None:
        """Everything that happens at this instant, in the order of the kinds."""
        events = self._world.events
        submitted = submit_s > now
        while True:
            pending = events.next_time_s() <= now
            if not submitted and not (pending and events.next_kind() < Happens.SUBMISSION):
                self._submit_all_at(now)
                submitted = True
                continue
            if not pending:
                return
            self._taken += 1
            self._take(events.take(), now)

    def _take(self, event: QueuedEvent, now: float) -> None:
        """One event, if it still means anything."""
        kind = event.kind
        if kind in _OF_WORKLOADS:
            work = self._world.workloads[event.subject]
            if work.token == event.token:
                self._move(work, kind)
        elif kind == Happens.MACHINE_DOWN:
            self._machines_down(event.subject, now)
        elif kind == Happens.MACHINE_UP:
            self._machines_up(event.subject, now)
        elif kind == Happens.LOAN_CHANGE:
            self._loans.change(event.subject, now)
        elif kind == Happens.SCAN_PASS:
            self._scan(now)
        elif kind == Happens.AUCTION:
            self._hold_auctions(now)

    def _move(self, work: SimulatedWorkload, kind: int) -> None:
        """What was expected of an attempt happens."""
        if kind == Happens.COMPLETION:
            self._attempts.complete(work)
            self._ended += 1
            self._bindings.ended(work)
        elif kind == Happens.START:
            self._attempts.start(work)
        elif kind == Happens.VACATED:
            self._attempts.vacate(work)
            self._loans.let_go(self._world.clock.now())
        else:
            self._attempts.set_level(work)

    # Submission.

    def _submit_all_at(self, now: float) -> None:
        while self._next_row < len(self._rows) and self._rows[self._next_row].submit_s <= now:
            self._taken += 1
            self._submit(self._rows[self._next_row], now)
            self._next_row += 1

    def _submit(self, row: TraceRow, now: float) -> None:
        """Accepts a workload, or refuses what no region could ever host."""
        world = self._world
        work = self._intake.workload_of(row, self._next_row)
        world.workloads.append(work)
        hosted = bool(work.eligible) or self._only_data_is_missing(work)
        self._refused.append(not hosted)
        if not hosted:
            self._ended += 1
            return
        if work.eligible:
            region = self._bindings.region_for(work)
            if region is not None:
                self._intake.bind(work, region)
        world.by_name[work.workload.workload] = work
        if world.columns is not None:
            world.columns.submit(work)
        if world.log is not None:
            world.log.submitted(work, now)
        if work.eligible:
            self._attempts.queue(work)
        else:
            self._without_data += 1
            self._tell_of_missing_data(work, now)

    def _only_data_is_missing(self, work: SimulatedWorkload) -> bool:
        answers = self._world.room.answers(work.workload.specification)
        return any(answer.missing_tables for answer in answers.values())

    # Decisions.

    def _decide(self, now: float) -> None:
        """There is news: either the walk now, or the next scan pass."""
        world = self._world
        world.news = False
        if not len(world.queue):
            return
        if not world.policy.scans:
            self._walk.begin(now)
            world.policy.allocation.allocate(self._walk)
            self._say_who_waits(now)
            return
        if math.isinf(self._scan_due_s):
            period_s = world.settings.scan_period_s
            due_s = now if period_s <= 0 else self._start_s + math.ceil((now - self._start_s) / period_s) * period_s
            self._scan_due_s = max(now, due_s)
            world.events.add(self._scan_due_s, Happens.SCAN_PASS)

    def _scan(self, now: float) -> None:
        """A scan pass: who runs within quota from now on, and the new order of the queue."""
        world = self._world
        queue = world.queue
        self._scan_due_s = math.inf
        if self._scanner is None or not isinstance(queue, ScannedQueue) or not len(queue):
            return
        self._scan_passes += 1
        world.news = False
        pending, plan = self._scanner.scan(now)
        for change in plan.reclassifications:
            work = world.by_name[change.key.workload]
            work.within_quota = change.within_quota
            self._attempts.set_standing(work, change.standing)
        columns = self._scanner.columns
        for entry in columns.with_news(pending, plan).tolist():
            work = world.workloads[int(pending[entry])]
            work.standing = Standing(int(plan.priority[entry]), int(plan.level[entry]))
            work.credit, work.within_quota = float(plan.credit[entry]), bool(plan.within_quota[entry])
            if world.log is not None:
                world.log.ranked(work, work.standing, now)
        columns.store(pending, plan)
        queue.rank(pending[plan.order])
        if world.settings.auction_latency_s > 0:
            world.events.add(now + world.settings.auction_latency_s, Happens.AUCTION)
        else:
            self._hold_auctions(now)

    def _hold_auctions(self, now: float) -> None:
        world = self._world
        self._walk.begin(now)
        world.policy.allocation.allocate(self._walk)
        self._say_who_waits(now)

    def _say_who_waits(self, now: float) -> None:
        """Who was tried and found no room says so, once in each wait; only logs want to know."""
        world = self._world
        if world.log is None:
            return
        for work in self._walk.refused:
            if work.state is not State.PENDING:
                continue
            verdict = world.room.verdict(self._walk.lot_of(work), work.eligible, now)
            sentence = verdict.sentence
            if isinstance(verdict, AwaitingData):
                continue
            work.state = State.WAITING
            world.log.waiting(work, sentence, now)

    def _tell_of_missing_data(self, work: SimulatedWorkload, now: float) -> None:
        verdict = self._world.room.verdict(self._walk.lot_of(work), (), now)
        log = self._world.log
        if isinstance(verdict, AwaitingData) and log is not None:
            tables = sorted({str(table) for _, missing in verdict.missing_tables for table in missing})
            log.awaiting_data(work, tables, verdict.sentence, now)

    # Machines.

    def _has_failed(self, machine: tuple[int, int]) -> bool:
        return self._failures.has_failed(machine)

    def _machines_down(self, domain: int, now: float) -> None:
        world = self._world
        what = self._failures.domains[domain].what
        world.events.add(self._failures.next_repair_s(domain, now), Happens.MACHINE_UP, domain)
        lost: dict[WorkloadId, SimulatedWorkload] = {}
        for region, place in self._failures.fail(domain):
            inventory = world.room.desks[region].inventory
            world.tell_of_machine(EventKind.MACHINE_DOWN, region, place, f"{what} failed")
            world.recorder.machine_down(region, place, now)
            for key in inventory.set_machine_state(inventory.layout.machine_ids[place], MachineState.DOWN):
                lost[key.workload] = world.by_name[key.workload]
        self._attempts.lose(tuple(lost.values()))
        self._loans.let_go(now)
        world.news = True

    def _machines_up(self, domain: int, now: float) -> None:
        world = self._world
        what = self._failures.domains[domain].what
        world.events.add(self._failures.next_failure_s(domain, now), Happens.MACHINE_DOWN, domain)
        for region, place in self._failures.repair(domain):
            inventory = world.room.desks[region].inventory
            state = self._loans.state_of_working((region, place))
            inventory.set_machine_state(inventory.layout.machine_ids[place], state)
            world.recorder.machine_up(region, place, now)
            world.tell_of_machine(EventKind.MACHINE_UP, region, place, f"{what} is repaired")
        world.news = True

    def _record(self, broken_off: bool) -> RunRecord:
        world = self._world
        room = world.room
        lookups = room.lookups
        plans = room.plans
        return world.recorder.record(
            RunFacts(
                world.policy.name, self._given.trace, self._seed, tuple(str(tenant.tenant) for tenant in world.tenants)
            ),
            world.workloads,
            self._refused,
            [tenant.priority for tenant in world.tenants],
            started_s=self._start_s,
            ended_s=world.clock.now(),
            broken_off=broken_off,
            counts=RunCounts(
                events=self._taken,
                scan_passes=self._scan_passes,
                cache_lookups=lookups,
                cache_hits=lookups - plans,
                plans=plans,
            ),
        )


def _scanner_for(
    policy: Policy, settings: SimulationSettings, tenants: Sequence[Tenant], rows: Sequence[TraceRow], use: TenantUse
) -> Scanner | None:
    """What makes scan passes, for policies that want them."""
    if not policy.scans:
        return None
    names = [str(row.workload_id) for row in rows]
    return Scanner(tenants, names, policy.ordering, settings.usage_window_s, use)


def _world_of(
    fleet: Fleet,
    tenants: Sequence[Tenant],
    policy: Policy,
    settings: SimulationSettings,
    seed: int,
    sink: EventSink | None,
    use: TenantUse,
) -> World:
    """The world before the first submission, for a policy that makes no scan passes."""
    return World(
        fleet=fleet,
        tenants=tenants,
        policy=policy,
        settings=settings,
        rng=np.random.default_rng(seed),
        clock=ManualClock(-math.inf),
        events=EventQueue(),
        queue=RankedQueue(policy.ordering, policy.levels),
        room=RegionRoom(fleet, remembers=settings.negative_cache, beyond_walks=settings.negative_cache_outlives_scans),
        recorder=Recorder(fleet),
        log=SimulatedEvents(sink, [region.region for region in fleet.regions]) if sink is not None else None,
        tenant_use=use,
        tenant_gpus=[0] * len(tenants),
    )


def _intake_of(world: World) -> Intake:
    policy, settings = world.policy, world.settings
    return Intake(
        world.tenants,
        world.room,
        policy.placement,
        greatest_gpus_per_machine(world.fleet),
        settings.costs.checkpoint_interval_s,
        tenants_apart=policy.tenants_apart,
        trace_regions_bind=settings.trace_regions_bind,
        charged=policy.scans,
    )


def _walk_of(world: World, attempts: Attempts) -> Walk:
    machines = [machine for region in world.fleet.regions for machine in region.machines()]
    return Walk(
        world.queue,
        world.room,
        world.policy.levels,
        attempts.dispatch,
        lambda: list(world.live.values()),
        world.tenant_gpus,
        WalkFacts(
            [tenant.fair_share_weight for tenant in world.tenants],
            sum(machine.gpus for machine in machines),
            sum(machine.cpus for machine in machines),
            world.settings.costs,
        ),
    )


def _check(trace: str, rows: Sequence[TraceRow], tenants: set[TenantId]) -> None:
    if not rows:
        raise FormatError(trace, [FieldProblem("", "has no workloads; a simulation needs at least one row")])
    unknown = sorted({row.tenant for row in rows} - tenants)
    if unknown:
        raise FormatError(
            trace,
            [
                FieldProblem(
                    "tenant", f"{unknown[0]} is not among the tenants; add it to the tenants file, or leave that out"
                )
            ],
        )
    seen: set[str] = set()
    for row in rows:
        if row.workload_id in seen:
            raise FormatError(trace, [FieldProblem("workload_id", f"{row.workload_id} is there twice")])
        seen.add(row.workload_id)
