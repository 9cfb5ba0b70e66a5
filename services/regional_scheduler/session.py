"""One region at work: everything it knows in memory, and the loop that moves it on.

A session begins with what the database says and ends when that may no longer be what it has in memory: the database
was lost, the lease went to another process. Then a new session begins, under a lease of its own. There is no other way
to recover, so that this one is always well tried. What is applied (fleet, tenants, tables) is taken over as it works.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping

from domain.clock import Clock
from domain.identifiers import ClusterId
from domain.plan import Plan
from regional_scheduler.rounds import Lot
from services.configuration import Configuration, LeaseConfiguration
from services.database import (
    attempt_store,
    changed_workload_store,
    lease_store,
    reclassification_store,
    reservation_store,
)
from services.database.attempt_store import StoredAttempt
from services.database.channels import SCAN_CHANNEL
from services.database.connection import wake_after_commit
from services.database.engine import Database
from services.database.eviction_guard import preemptions
from services.database.lease_store import Lease
from services.database.pipeline import together
from services.progress_pace import WRITTEN
from services.regional_scheduler.absent_clusters import AbsentClusters
from services.regional_scheduler.adjustment_rounds import AdjustmentRounds
from services.regional_scheduler.applied_changes import AppliedChanges
from services.regional_scheduler.arrivals import Arrivals
from services.regional_scheduler.attempt_recorder import AttemptRecorder
from services.regional_scheduler.auction_turn import AuctionTurn, begin_turn
from services.regional_scheduler.auctioneering import Auctioneer
from services.regional_scheduler.cell_changes import CellChanges
from services.regional_scheduler.changed_workloads import ChangedWorkloads
from services.regional_scheduler.compacting import Compacting
from services.regional_scheduler.dispatching import QuotaChanged, VictimsChanged
from services.regional_scheduler.drain_deadlines import DrainDeadlines
from services.regional_scheduler.due_attempts import DueAttempts
from services.regional_scheduler.eviction_writer import EvictionWriter
from services.regional_scheduler.failed_planning import FailedPlanningWatch
from services.regional_scheduler.further_answers import FurtherAnswers, OtherRegions
from services.regional_scheduler.inbox import Inbox
from services.regional_scheduler.invariant_watch import InvariantWatch
from services.regional_scheduler.live_loans import LiveLoans
from services.regional_scheduler.lost_clusters import LostClusters
from services.regional_scheduler.lost_regions import LostRegions
from services.regional_scheduler.lost_tasks import LostTasks
from services.regional_scheduler.machine_maintenance import MachineMaintenance
from services.regional_scheduler.machine_moves import MachineMoves
from services.regional_scheduler.mechanism_failures import MechanismFailures
from services.regional_scheduler.order_sender import OrderSender
from services.regional_scheduler.plan_writing import migration_to
from services.regional_scheduler.reconciliations import Reconciliations
from services.regional_scheduler.refused_changes import RefusedChanges
from services.regional_scheduler.region_memory import RegionMemory
from services.regional_scheduler.region_metrics import RegionMetrics
from services.regional_scheduler.report_taker import ReportTaker
from services.regional_scheduler.requested_actions import RequestedActions
from services.regional_scheduler.reserving import Reserving
from services.regional_scheduler.session_over import SessionOver
from services.regional_scheduler.time_limits import RunningLimits, TimeLimits
from services.regional_scheduler.trials import Trials
from services.regional_scheduler.undone_changes import UndoneChanges
from services.tiers.fenced_transaction import fenced_transaction
from services.tiers.side_by_side import until_one_ends

_JUST_AFTER_REAL_S = 0.01
"""A deadline has surely passed so long after it."""


class RegionSession:
    """The loop of one region. All state is touched by the loop alone."""

    def __init__(
        self,
        database: Database,
        memory: RegionMemory,
        lease: Lease,
        clock: Clock,
        configuration: Configuration,
        inbox: Inbox,
        metrics: RegionMetrics | None = None,
    ) -> None:
        self.memory = memory
        self.inbox = inbox
        self._database = database
        self._lease = lease
        self._clock = clock
        self._poll_real_s = configuration.auction.poll_real_s
        self._now_real_s = asyncio.get_running_loop().time
        self._due_attempts = DueAttempts()
        self._absent = AbsentClusters(memory, self._now_real_s())
        security = configuration.tls.security()
        self._sender = OrderSender(
            memory.region, memory.live, self._due_attempts, self._cluster_address, inbox.put, lease, security
        )
        self._reports = ReportTaker(memory.live, self._due_attempts, self._sender, self._absent, clock)
        self._applied = AppliedChanges(database, memory, inbox, self._absent, self._sender)
        self._arrivals = Arrivals(memory, self._due_attempts)
        self._metrics = metrics = metrics or RegionMetrics(memory.region.region)
        self._running_limits = limits = RunningLimits()
        reporting = self._due_attempts, self._reports, self._sender
        self._recorder = AttemptRecorder(database, lease, memory, *reporting, self._arrivals, limits, clock, metrics)
        self._eviction_writer = writer = EvictionWriter(memory, self._due_attempts, clock)
        self._time_limits = TimeLimits(database, lease, memory.live, limits, writer, clock)
        self._changed_workloads = ChangedWorkloads(memory, limits)
        undone = UndoneChanges(memory, self._due_attempts, clock)
        self._lost_tasks = LostTasks(database, lease, memory, self._due_attempts, clock)
        self._machines = MachineMaintenance(
            database, lease, memory, writer, undone, self._lost_tasks, self._absent, self._arrivals, clock
        )
        self._drain_deadlines = DrainDeadlines(database, memory, self._machines, clock)
        self._lost_clusters = self._make_lost_clusters(configuration.lease)
        self._lost_regions = LostRegions(database, lease, memory, configuration.lease, clock, self._now_real_s())
        self._cells = CellChanges(database, lease, memory, writer, clock)
        self._actions = RequestedActions(database, lease, memory, writer, self._arrivals, clock)
        self._loans = LiveLoans(database, lease, memory, writer, self._absent, self._arrivals, inbox, clock)
        emptying = self._absent, self._arrivals, self._machines, self._actions
        self._moves = MachineMoves(database, lease, memory, *emptying, inbox, clock, configuration.clusters)
        self._compacting = Compacting(database, memory, self._actions, clock, configuration.compaction.rule())
        self._reserving = Reserving(database, lease, memory, clock, configuration.reservations.rule())
        self._trials = Trials(database, memory, self._actions, configuration.placement.trial_s)
        self._refused_changes = RefusedChanges(database, lease, memory, undone, writer)
        self._adjustment_rounds = self._make_adjustment_rounds(configuration)
        self._invariants = InvariantWatch(database, lease, memory, clock, self._now_real_s())
        self._mechanism_failures = MechanismFailures(database, lease, memory, clock)
        self._failed_planning = FailedPlanningWatch(memory, metrics, self._invariants, self._now_real_s())
        self._reconciliations = Reconciliations(database, lease, memory, clock)
        self._looks_first = False
        """What was won is not dispatched yet, because something newer has to be taken over before."""
        self._victims_changed = False
        """Since the last dispatch a victim stood elsewhere than in memory."""
        self._other_regions = OtherRegions(security)
        self._quota_changed = False
        """Since the last dispatch less was left of a quota than was seen: it is locked before the next one is planned."""
        self._auctioneer = Auctioneer(
            database, lease, memory, clock, configuration.auction, self._other_regions.ask, metrics
        )
        self._auction_due_real_s = 0.0
        """When the auction is looked at again, whatever else has woken the loop by then."""

    def _make_adjustment_rounds(self, configuration: Configuration) -> AdjustmentRounds:
        rounds = configuration.round_s, configuration.elastic_policy()
        return AdjustmentRounds(self._database, self._lease, self.memory, self._eviction_writer, self._clock, *rounds)

    def _make_lost_clusters(self, configuration: LeaseConfiguration) -> LostClusters:
        return LostClusters(
            self._database,
            self._lease,
            self.memory,
            self._eviction_writer,
            self._due_attempts,
            self._lost_tasks,
            self._sender,
            self._absent,
            self._arrivals,
            configuration,
            self._clock,
            self._now_real_s(),
        )

    async def run(self) -> None:
        """Runs until the session is over: raises SessionOver, LeaseLost or DatabaseUnavailable."""
        try:
            # A link that fails (other than by losing its cluster manager) ends the session: a new one has new links.
            await until_one_ends(self.memory.visits.hold_up(self._loop()), self._sender.run())
        finally:
            self.inbox.close()
            await self._loans.close()
            await self._moves.close()
            await self._other_regions.close()

    @property
    def further_answers(self) -> FurtherAnswers:
        """What the region answers when an auction round is continued."""
        return self._auctioneer.further_answers

    async def _loop(self) -> None:
        for attempt in self.memory.live:
            self._due_attempts.look_at(attempt)
            self._running_limits.watch(attempt)
        while True:
            await self._loop_once()

    async def _loop_once(self) -> None:
        self._metrics.turn_begins()
        # 1. Observe: take in everything that came since the last look.
        await self._reports.take(self.inbox.take_messages(), self._now_real_s())
        # 2. Record what clusters reported: machines first, for what ended with its machine has lost that. Then starts, ends
        # and checkpoints; what ended is free.
        await self._machines.take_reports(self._reports.take_machine_reports())
        await self._recorder.record(self._now_real_s())
        # 3. Evict for no newcomer: from machines drained, of cancelled workloads, after their time. Change what runs.
        await self._lost_tasks.take_reports(self._reports.take_lost_tasks())
        await self._machines.answer(self.inbox.take_machine_requests())
        await self._drain_deadlines.look()
        await self._refused_changes.undo(self._reports.take_refused_changes())
        await self._actions.answer(self.inbox.take_action_requests())
        await self._trials.look(self._clock.now())
        await self._look_at_attempts()
        await self._time_limits.look()
        # 4. Take over the fleet, tenants and tables that were applied meanwhile.
        await self._applied.take_over(self._now_real_s())
        await self._lost_clusters.look(self._now_real_s())
        await self._lost_regions.look(self._now_real_s())
        await self._absent.look(self._now_real_s())
        await self._look_at_time()
        await self._cells.look()
        await self._loans.look()
        await self._moves.look()
        await self._reserving.look(self._now_real_s())
        await self._compacting.look(self._now_real_s())
        # 5. Dispatch what was won, before the next round is answered: it is planned on top. What is left is given out.
        self.inbox.look_at_auction |= self._now_real_s() >= self._auction_due_real_s
        # What was released may be room for what was refused.
        self.inbox.look_at_auction |= await self._auctioneer.object_to_refusals()
        turn = await self._dispatch_or_look_again()
        adjusts_more = not self._looks_first and await self._adjustment_rounds.hold_due()
        # 6. Tell the cluster managers, before the auction, which takes its time. Everything they hear is in the database already.
        self._sender.send_due(self._clock.now())
        # 7. Move the auction on: answer, close, or open a round.
        await self._auction(turn)
        await self._mechanism_failures.tell()
        self._failed_planning.tell(self._now_real_s())
        await self._reconciliations.tell(self._reports.take_reconciliations())
        # 8. Now and then see whether the memory agrees with itself.
        await self._invariants.look(self._now_real_s())
        # 9. Wait for something to happen, unless there is more to do.
        due = self._due_attempts
        if not (self.inbox.look_at_auction or adjusts_more or due.has_news or due.has_orders):
            await self._wait()

    async def _wait(self) -> None:
        timeout_real_s = max(0.0, self._auction_due_real_s - self._now_real_s())
        if self._due_attempts.has_progress:
            timeout_real_s = min(timeout_real_s, WRITTEN.shortest_s)
        await self.inbox.wait(timeout_real_s)

    async def _look_at_attempts(self) -> None:
        """Takes over re-classified standings, changed workloads and attempts that come from elsewhere; what is cancelled or sent
        back to the queue, or goes on elsewhere, has to leave."""
        if not self.inbox.look_at_attempts:
            return
        self.inbox.look_at_attempts = False
        region = self.memory.region.region
        async with self._database.transaction(pipelined=True) as connection:
            # Places are read before attempts: a place that is gone because its attempt has begun is then found with these.
            _, reserved, stops, standings, departing, changed = await together(
                connection,
                lease_store.assert_held(connection, self._lease),
                reservation_store.in_region(connection, region),
                attempt_store.stops_requested(connection, region),
                reclassification_store.standings(connection, region),
                reservation_store.of_departing(connection, region),
                changed_workload_store.changed_workloads(connection, self._changed_workloads.seen),
            )
            leaving = await self._eviction_writer.write_each(connection, stops)
            departures = [(place.key.predecessor, migration_to(place)) for place in departing]
            for key, migration in departures:
                await self._eviction_writer.write(connection, [key], migration)
        arrived: list[StoredAttempt] = []
        preempted_s: Mapping[str, tuple[float, ...]] = {}
        if any(self.memory.live.get(key) is None for key in standings):
            arrived, preempted_s = await self._load_arrived()
        for key, (standing, within_quota) in standings.items():
            attempt = self.memory.live.get(key)
            if attempt is not None and (attempt.standing, attempt.within_quota) != (standing, within_quota):
                self.memory.inventory.set_standing(key, standing)
                attempt.standing, attempt.within_quota = standing, within_quota
        self._changed_workloads.take(changed)
        for key, stop in leaving.items():
            self._eviction_writer.begin([key], stop)
        for key, migration in departures:
            if key not in leaving:
                self._eviction_writer.begin([key], migration)
        self._arrivals.compare(arrived, reserved, preempted_s)

    async def _load_arrived(self) -> tuple[list[StoredAttempt], Mapping[str, tuple[float, ...]]]:
        """The region's attempts that memory does not have, and what `preemptions` says of them. Large results cannot be pipelined."""
        async with fenced_transaction(self._database, self._lease) as connection:
            stored = await attempt_store.load_live(connection, self.memory.region.region)
            arrived = [attempt for attempt in stored if self.memory.live.get(attempt.key) is None]
            names = [str(attempt.key.workload) for attempt in arrived]
            return arrived, await preemptions(connection, self.memory.inventory.rule, names, self._clock.now())

    async def _look_at_time(self) -> None:
        """When time alone has made attempts evictable, the queue is ranked and auctioned again."""
        inventory, now = self.memory.inventory, self._clock.now()
        if inventory.next_evictable_s <= now:
            inventory.pass_time(now)
            async with fenced_transaction(self._database, self._lease) as connection:
                wake_after_commit(connection, SCAN_CHANNEL)

    async def _dispatch_or_look_again(self) -> AuctionTurn | None:
        """Dispatches what was won; returns what is to be done in the auctions on top of it, None: nothing now.

        When a victim stands elsewhere than in memory, the standings are taken over before the next try. Raises
        SessionOver when that has not helped.
        """
        self._looks_first = False
        if not self.inbox.look_at_auction:
            return None
        # Before the look: what happens from here on is looked at the next time.
        self.inbox.look_at_auction = False
        memory, began_real_s = self.memory, self._now_real_s()
        try:
            turn = await begin_turn(
                self._database, memory, self._auctioneer, self._clock, self._start, holds_quota=self._quota_changed
            )
        except VictimsChanged as changed:
            if self._victims_changed:
                raise SessionOver(str(changed)) from changed
            self._looks_first = self._victims_changed = self.inbox.look_at_attempts = True
            self.inbox.look_at_auction = True
            return None
        except QuotaChanged:
            self._quota_changed = self.inbox.look_at_auction = True
            return None
        if turn.dispatched is not None:
            self._victims_changed = self._quota_changed = False
            self._metrics.dispatched(turn.dispatched, self._now_real_s() - began_real_s)
            for attempt in turn.dispatched.attempts:
                memory.live.add(attempt)
                self._due_attempts.give_orders(attempt.key)
            self._eviction_writer.carry_out(turn.dispatched.writes)
        if turn.goes_on:
            return turn
        self.inbox.look_at_auction = True
        if turn.dispatched is None:
            self._looks_first = self.inbox.look_at_applied = True
        return None

    def _start(self, plan: Plan, lot: Lot) -> Plan:
        """The plan with the CPUs and memory with which its workload starts."""
        tuning = self.memory.tuning
        return plan if tuning is None else tuning.start(self.memory.inventory, plan, lot, self._clock.now())

    async def _auction(self, turn: AuctionTurn | None) -> None:
        """One step, if it is time for one. At the deadline of a round that others have not answered it is time again."""
        if turn is None:
            return
        step = await self._auctioneer.go_on(turn.looked, turn.lots)
        if await self._auctioneer.object_to_refusals() or step.moved:
            self.inbox.look_at_auction = True
            self.inbox.wake()
        deadline_real_s = math.inf if step.again_in_real_s is None else step.again_in_real_s + _JUST_AFTER_REAL_S
        self._auction_due_real_s = self._now_real_s() + min(self._poll_real_s, deadline_real_s)

    async def _cluster_address(self, cluster: ClusterId) -> str | None:
        """Only the holder of the region's lease may still call the region's cluster managers."""
        async with fenced_transaction(self._database, self._lease) as connection:
            return await lease_store.address(connection, f"{lease_store.CLUSTER_PREFIX}{cluster}")
