"""Runs a trace through the decisions of the live service, on a virtual clock."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from data_placement.catalog import Catalog
from domain.events import EvictionCause
from domain.scaling import LinearScaling
from domain.snapshot import Snapshot
from formats.problems import FieldProblem, FormatError
from global_scheduler.level_parameters import ParameterRefused, given_parameters, with_known_parameters
from global_scheduler.scan_settings import QueueRule
from regional_scheduler.elastic.afs import AfsElastic
from regional_scheduler.elastic.lyra import LyraElastic
from simulator.engine.action_requests import ActionRequests
from simulator.engine.adjustments import Adjustments
from simulator.engine.attempts import Attempts
from simulator.engine.binding import Bindings
from simulator.engine.collection import collection_put_off
from simulator.engine.event_log import EventSink
from simulator.engine.event_queue import Happens, QueuedEvent
from simulator.engine.failures import Failures, failure_domains
from simulator.engine.invariants import broken_invariants
from simulator.engine.loans import Loans
from simulator.engine.machine_failures import MachineFailures
from simulator.engine.readers_of_tables import ReadersOfTables
from simulator.engine.recorder import RunFacts
from simulator.engine.resuming import resume
from simulator.engine.scheduling import Scheduling
from simulator.engine.settings import SimulationSettings
from simulator.engine.simulation_input import SimulationInput, check_input
from simulator.engine.snapshots import snapshot_of
from simulator.engine.submission import ArrivalSubmission
from simulator.engine.table_moves import TableMoves
from simulator.engine.waiting import promotion_due
from simulator.engine.workloads import NO_RUN, SimulatedWorkload
from simulator.engine.world_making import make_intake, make_queue_pass, make_scanner, make_trials, make_world
from simulator.inputs.wrong_estimates import estimate_factors
from simulator.policies.orderings import with_order
from simulator.policies.policy import Policy
from simulator.results.run_record import RunCounts, RunRecord

EVENTS_BETWEEN_LOOKS = 1024
"""So often the watcher is asked whether to go on."""


@dataclass(frozen=True, slots=True)
class RunProgress:
    """How far a run has come."""

    now_s: float
    events: int
    submitted: int
    ended: int
    workloads: int


ProgressWatcher: TypeAlias = Callable[[RunProgress], bool]
"""Gets the progress now and then; False breaks the run off."""


def simulate(
    given: SimulationInput,
    policy: Policy,
    settings: SimulationSettings,
    seed: int,
    *,
    sink: EventSink | None = None,
    watcher: ProgressWatcher | None = None,
) -> RunRecord:
    """The run of a trace under a policy: same arguments, same record and events, byte for byte (I12).

    Raises FormatError for what cannot be simulated: a workload of an unknown tenant, two with one id, none at all.
    """
    with collection_put_off():
        return Simulation(given, policy, settings, seed, sink).run(watcher)


_ESTIMATES_STREAM = 11
"""What is drawn of estimates has random numbers of its own."""


class Simulation:
    """One run."""

    def __init__(
        self,
        given: SimulationInput,
        policy: Policy,
        settings: SimulationSettings,
        seed: int,
        sink: EventSink | None = None,
        failures: Failures | None = None,
    ) -> None:
        """`failures` takes the place of what the settings and the seed say of failing machines."""
        policy = _with_settings(policy, settings)
        self._given = given
        self._seed = seed
        arrivals, tenants = given.arrivals(), given.sorted_tenants()
        check_input(given, arrivals)
        there = given.snapshot.workloads() if given.snapshot is not None else ()
        self._start_s = given.start_s(arrivals)
        self.world = make_world(
            given.fleet,
            given.catalog if given.table_moves is None else Catalog(given.catalog),
            tenants,
            policy,
            settings,
            seed,
            sink,
            self._start_s,
            given.samples_gpu_s,
            given.snapshot,
            given.profiles,
        )
        names = [str(workload.workload) for workload in there] + [str(arrival.workload) for arrival in arrivals]
        scanner = make_scanner(self.world, names)
        self._attempts = Attempts(self.world)
        queue_pass = make_queue_pass(self.world, self._attempts)
        if failures is None:
            failures = Failures(failure_domains(given.fleet, settings.failures), seed)
        self._loans = Loans(self.world, self._attempts, given.loans)
        self._machines = MachineFailures(self.world, self._attempts, self._loans, failures)
        self._bindings = Bindings(given.fleet, policy.region_choice, self.world.rng)
        loans = given.loans if policy.uses_loans else None
        intake = make_intake(self.world, loans, _estimates(settings, len(there) + len(arrivals), seed))
        self._trials = make_trials(self.world, intake, self._attempts)
        if given.snapshot is not None:
            resume(self.world, given.snapshot, intake, self._bindings, self._attempts, given.default_duration_s)
        self._readers = readers = ReadersOfTables(
            self.world, intake, self._bindings, self._attempts, queue_pass, follows=given.table_moves is not None
        )
        self._tables = TableMoves(self.world, given.table_moves, readers, self._start_s) if given.table_moves else None
        self._submission = ArrivalSubmission(self.world, arrivals, intake, self._bindings, self._attempts, readers)
        self._scheduling = Scheduling(self.world, self._attempts, queue_pass, scanner, self._start_s)
        self._moves = self._moves_of_workloads()
        self._requests = ActionRequests(self.world, self._attempts, given.actions)
        self._adjustments = Adjustments(self.world, self._attempts, self._start_s)
        self._taken = 0
        """Events so far, submissions included."""
        self._next_check = settings.check_every_events or math.inf
        self._broken = 0
        """Invariants that were found broken."""

    def run(self, watcher: ProgressWatcher | None = None) -> RunRecord:
        """Takes everything that happens in order, until nothing more can."""
        world, submission = self.world, self._submission
        # 1. What can fail gets its first failure; inference clusters lend what their schedule says by now.
        self._machines.begin(self._start_s)
        self._loans.begin(self._start_s)
        self._requests.begin(self._start_s)
        self._adjustments.begin(self._start_s)
        if self._tables is not None:
            self._tables.begin()
        stop_s = self._start_s + world.settings.stop_after_s if world.settings.stop_after_s > 0 else math.inf
        broken_off = False
        looked_at = 0
        # 2. A run that begins in the middle decides at once on what it finds there.
        if world.news:
            self._scheduling.decide(self._start_s)
        while True:
            # 3. The next instant at which anything happens. There is none when all have ended, or nothing can change.
            submit_s = submission.next_time_s
            now = min(submit_s, world.events.next_time_s())
            if submit_s == math.inf and (now == math.inf or self._all_ended or self._hopeless):
                break
            # 4. The settings may end the run before.
            if now > stop_s:
                world.clock.advance_to(stop_s)
                broken_off = True
                break
            # 5. The clock jumps there, and everything of that instant happens, in the order of the kinds.
            world.clock.advance_to(now)
            self._take_all_at(now, submit_s)
            # 6. If any of it could lead to another decision, one is made, or the next scan pass is due.
            if world.news:
                self._scheduling.decide(now)
            # 7. When a round is due, what runs is resized and retuned; there may be room for others then.
            if self._adjustments.hold_due(now):
                self._scheduling.decide(now)
            # 8. Now and then what must always hold is computed anew.
            if self._taken >= self._next_check:
                self._check(now)
            # 9. The watcher may break the run off.
            if watcher is not None and self._taken - looked_at >= EVENTS_BETWEEN_LOOKS:
                looked_at = self._taken
                if not watcher(self._progress()):
                    broken_off = True
                    break
        # 10. The tables of the run; what was found broken since step 8 is logged before.
        if world.needless:
            self._check(world.clock.now())
        if watcher is not None:
            watcher(self._progress())
        stalled = not broken_off and world.ended < submission.workloads
        if (broken_off or stalled) and world.log is not None:
            world.log.run_ended(
                world.clock.now(), stalled=stalled, not_submitted=submission.workloads - submission.submitted
            )
        return self._record(broken_off or stalled, stalled=stalled)

    def snapshot(self) -> Snapshot:
        """What there is now: for a run that was broken off, where another one may begin."""
        return snapshot_of(self.world)

    @property
    def _all_ended(self) -> bool:
        """All that was submitted has ended: nothing but failures of machines may be left."""
        world, submission = self.world, self._submission
        if world.without_data and self._tables is not None and self._tables.goes_on:
            return False
        return world.ended + world.without_data == submission.workloads

    @property
    def _hopeless(self) -> bool:
        """None runs though every machine works, and nothing but failures is to come."""
        machines, world = self._machines, self.world
        only_failures = len(world.events) == machines.domains
        return only_failures and not world.live and not world.news and not machines.any_failed

    def _progress(self) -> RunProgress:
        world, submission = self.world, self._submission
        return RunProgress(world.clock.now(), self._taken, submission.submitted, world.ended, submission.workloads)

    def _check(self, now: float) -> None:
        """Computes the invariants anew; what is broken is in the log, and counted."""
        self._next_check = self._taken + self.world.settings.check_every_events
        for region, sentence in broken_invariants(self.world):
            self._broken += 1
            if self.world.log is not None:
                self.world.log.invariant_broken(region, sentence, now)

    def _take_all_at(self, now: float, submit_s: float) -> None:
        """Everything that happens at this instant, in the order of the kinds."""
        events = self.world.events
        if submit_s <= now:
            while (event := events.take_due(now, Happens.SUBMISSION)) is not None:
                self._take(event, now)
            self._taken += self._submission.submit_due(now)
            self._adjustments.expect(now)
        while (event := events.take_due(now)) is not None:
            self._take(event, now)

    def _take(self, event: QueuedEvent, now: float) -> None:
        """One event, if it still means anything."""
        self._taken += 1
        _, kind, _, subject, token = event
        move = self._moves.get(kind)
        if move is None:
            self._take_other(event, now)
            return
        self._adjustments.expect(now)
        work = self.world.workloads[subject]
        if work.token == token:
            move(work)

    def _take_other(self, event: QueuedEvent, now: float) -> None:
        """An event that is not of an attempt, or means something whatever has become of that."""
        _, kind, _, subject, token = event
        if kind != Happens.ROUND:
            self._adjustments.expect(now)
        if kind == Happens.MACHINE_DOWN:
            self._machines.fail(subject, now)
        elif kind == Happens.MACHINE_UP:
            self._machines.repair(subject, now)
        elif kind == Happens.RETURN_TO_QUEUE:
            self._attempts.queue(self.world.workloads[subject])
        elif kind == Happens.LOAN_CHANGE:
            self._loans.change(subject)
        elif kind == Happens.ACTION:
            self._requests.carry_out(subject, now)
        elif kind == Happens.TRIAL_OVER and self._trials is not None:
            self._trials.is_over(self.world.workloads[subject], token)
        elif kind == Happens.TABLES and self._tables is not None:
            self._tables.look(now, token)
        elif kind == Happens.SCAN_PASS:
            self._scheduling.scan(now)
        elif kind == Happens.AUCTION:
            self._scheduling.hold_auctions(now)
        elif kind == Happens.ROUND:
            self._adjustments.fall_due()

    # What was expected of an attempt happens.

    def _moves_of_workloads(self) -> dict[int, Callable[[SimulatedWorkload], None]]:
        """What to do with a workload, by the kind of the event; the other kinds are not of workloads."""
        return {
            Happens.COMPLETION: self._complete,
            Happens.TIME_LIMIT: self._time_is_over,
            Happens.START: self._attempts.start,
            Happens.VACATED: self._vacate,
            Happens.LEVEL_CHANGE: self._attempts.set_level,
            Happens.EVICTABLE: self._becomes_evictable,
            Happens.PROMOTION: self._promotion_due,
        }

    def _complete(self, work: SimulatedWorkload) -> None:
        self._attempts.complete(work)
        # Nobody asks for the run of what has ended, and there may be very many.
        work.run, work.placements = NO_RUN, ()
        self.world.ended += 1
        self._bindings.ended(work, self.world.clock.now())

    def _time_is_over(self, work: SimulatedWorkload) -> None:
        self._attempts.tell_to_leave(work, EvictionCause.TIME_LIMIT, work.workload.specification.max_time_s)
        self._bindings.ended(work, self.world.clock.now())

    def _vacate(self, work: SimulatedWorkload) -> None:
        gone = work.key
        self._attempts.vacate(work)
        self._loans.attempts_gone((gone,))

    def _becomes_evictable(self, work: SimulatedWorkload) -> None:
        self.world.news = True

    def _promotion_due(self, work: SimulatedWorkload) -> None:
        promotion_due(self.world, work, self.world.clock.now())

    def _record(self, broken_off: bool, *, stalled: bool) -> RunRecord:
        world = self.world
        lookups, plans = world.regions.lookups, world.regions.plans
        loans = self._loans.counts
        return world.recorder.record(
            RunFacts(
                world.policy.name, self._given.trace, self._seed, tuple(str(tenant.tenant) for tenant in world.tenants)
            ),
            world.workloads,
            world.refused,
            [tenant.priority for tenant in world.tenants],
            started_s=self._start_s,
            ended_s=world.clock.now(),
            broken_off=broken_off,
            stalled=stalled,
            not_submitted=self._submission.workloads - self._submission.submitted,
            counts=RunCounts(
                events=self._taken,
                scan_passes=self._scheduling.scan_passes,
                cache_lookups=lookups,
                cache_hits=lookups - plans,
                plans=plans,
                invariants_broken=self._broken,
                demotions=world.recorder.demotions,
                promotions=world.recorder.promotions,
                reclaims=loans.reclaims,
                reclaimed_machines=loans.machines,
                reclaimed_without_evictions=loans.machines_without_evictions,
                reclaimed_gpus=loans.gpus,
                collateral_gpus=loans.vacated_gpus,
                short_machines=loans.short_machines,
                readers_of_tables=self._readers.reading,
                table_moves=0 if self._tables is None else self._tables.moved,
                moved_table_bytes=0 if self._tables is None else self._tables.moved_bytes,
                waited_for_data=self._readers.waits.workloads,
                waited_for_data_s=self._readers.waits.seconds(world.clock.now()),
            ),
            inference=self._loans.machines(),
        )


def _estimates(settings: SimulationSettings, workloads: int, seed: int) -> Sequence[float]:
    """By workload, how many times as long as it is it is taken to be; empty: all are estimated rightly."""
    wrong_share, error = settings.estimates.wrong_share, settings.estimates.error
    if not wrong_share or not error:
        return ()
    factors: list[float] = estimate_factors(
        workloads, wrong_share, np.random.default_rng([seed, _ESTIMATES_STREAM]), error
    ).tolist()
    return factors


def _with_settings(policy: Policy, settings: SimulationSettings) -> Policy:
    """The policy in the order of the settings, with the parameters of levels that they change.

    Raises FormatError for what is not legal.
    """
    policy = with_order(policy, settings.ordering)
    try:
        rule = with_known_parameters(QueueRule(policy.ordering, policy.levels), given_parameters(settings.levels))
    except ParameterRefused as refused:
        raise FormatError("settings", [FieldProblem(f"levels.{refused.field}", str(refused))]) from refused
    elastic = policy.elastic
    if settings.elastic.loss and isinstance(elastic, LyraElastic | AfsElastic):
        elastic = replace(elastic, scaling=LinearScaling(settings.elastic.loss))
    return replace(policy, ordering=rule.ordering, levels=rule.levels, elastic=elastic)
