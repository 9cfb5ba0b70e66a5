"""Scheduling: when decisions are due, scan passes that rank the queue, and auctions that start what finds capacity."""

from __future__ import annotations

import math

from domain.life_cycle import Happening, State
from domain.rank import Standing
from simulator.engine.attempts import Attempts
from simulator.engine.auction_rounds import AuctionRounds, are_held_in_rounds
from simulator.engine.cell_changes import change_cells
from simulator.engine.compacting import Compacting
from simulator.engine.event_queue import Happens
from simulator.engine.queue_pass import SimulatedQueuePass
from simulator.engine.queues import ScannedQueue
from simulator.engine.reserving import Reserving
from simulator.engine.scanning import Scanner
from simulator.engine.waiting import promote
from simulator.engine.world import World


class Scheduling:
    """Decides, at once or in scan passes, as the policy has it."""

    def __init__(
        self, world: World, attempts: Attempts, queue_pass: SimulatedQueuePass, scanner: Scanner | None, start_s: float
    ) -> None:
        """`scanner` for policies that make scan passes; passes are due at multiples of the period after `start_s`."""
        self._world = world
        self._attempts = attempts
        self._queue_pass = queue_pass
        self._scanner = scanner
        self._start_s = start_s
        self._auction_period_s = world.settings.auction_period_s
        self._scan_due_s = math.inf
        self._auction_due = False
        members = world.regions.members
        self._has_cells = any(member.inventory.in_cells for member in members)
        """Whether any attempt may lose cells or get cells while it goes on."""
        self._guarded = [member for member in members if member.inventory.faults.has_guarded_mechanisms]
        self._compacting = Compacting(world, attempts)
        self._reserving = Reserving(world, queue_pass)
        self.rounds: AuctionRounds | None = None
        """Where the queue of scan passes is auctioned in rounds."""
        if scanner is not None and are_held_in_rounds(world):
            self.rounds = AuctionRounds(
                world, scanner.columns, queue_pass, self._reserving.end_those_not_queued, self._after_walk
            )
        self.scan_passes = 0

    def decide(self, now: float) -> None:
        """There is news: allocates now, or makes sure that a scan pass is due."""
        world = self._world
        world.news = False
        if self._has_cells:
            change_cells(world, self._attempts)
        if not len(world.queue):
            return
        if not world.policy.scans:
            self._auction_in_time(now)
            return
        if math.isinf(self._scan_due_s):
            self._scan_due_s = self._next_multiple_s(world.settings.scan_period_s, now)
            world.events.add(self._scan_due_s, Happens.SCAN_PASS)
        if self.rounds is not None and self._scan_due_s > now:
            self.rounds.look(now)

    def _auction_in_time(self, now: float) -> None:
        """Without scan passes: auctions are held now, or at the next multiple of their period."""
        due_s = self._next_multiple_s(self._auction_period_s, now)
        if due_s <= now:
            self.hold_auctions(now)
        elif not self._auction_due:
            self._auction_due = True
            self._world.events.add(due_s, Happens.AUCTION)

    def _next_multiple_s(self, period_s: float, now: float) -> float:
        """Of the period after the beginning of the run, from now on; now where there is no period."""
        if period_s <= 0:
            return now
        return max(now, self._start_s + math.ceil((now - self._start_s) / period_s) * period_s)

    def scan(self, now: float) -> None:
        """A scan pass: what runs within quota from now on, and the new order of the queue."""
        world = self._world
        queue = world.queue
        self._scan_due_s = math.inf
        if self._scanner is None or not isinstance(queue, ScannedQueue) or not len(queue):
            return
        self.scan_passes += 1
        world.news = False
        pending, plan = self._scanner.scan(now)
        for change in plan.reclassifications:
            work = world.by_name[change.key.workload]
            work.within_quota = change.within_quota
            self._attempts.set_standing(work, change.standing)
        columns = self._scanner.columns
        for entry in plan.promotions.tolist():
            work = world.workloads[int(pending[entry])]
            promote(world, work, Standing(int(plan.priority[entry]), int(plan.level[entry])), now)
            columns.refresh(work)
        for entry in columns.with_news(pending, plan).tolist():
            work = world.workloads[int(pending[entry])]
            work.standing = Standing(int(plan.priority[entry]), int(plan.level[entry]))
            work.credit, work.within_quota = float(plan.credit[entry]), bool(plan.within_quota[entry])
            if world.log is not None:
                world.log.ranked(work, work.standing, now)
        columns.store(pending, plan)
        queue.rank(pending[plan.in_auctions])
        if self.rounds is not None:
            self.rounds.ranked(pending[plan.in_auctions], now)
        elif world.settings.auction_latency_s > 0:
            world.events.add(now + world.settings.auction_latency_s, Happens.AUCTION)
        else:
            self.hold_auctions(now)

    def _tell_failures(self, now: float) -> None:
        """What mechanisms of packages did wrong is in the log."""
        for member in self._guarded:
            for failure in member.inventory.faults.take_mechanism_failures():
                if self._world.log is not None:
                    self._world.log.mechanism_failed(member.region, failure, now)

    def hold_auctions(self, now: float) -> None:
        """The policy allocates what capacity there is to the queue as it is ranked; or the round that is open is over."""
        if self.rounds is not None:
            self.rounds.close(now)
            return
        self._auction_due = False
        self._queue_pass.begin(now)
        self._world.policy.allocation.allocate(self._queue_pass)
        self._reserving.start_reserved(now)
        self._note_refusals(now)
        self._reserving.look(now)
        self._compacting.make_room(now)
        self._tell_failures(now)

    def _after_walk(self, now: float) -> None:
        """The auctions in rounds have come to the end of the queue."""
        self._reserving.start_reserved(now)
        self._reserving.look(now)
        self._compacting.make_room(now)
        self._tell_failures(now)

    def _note_refusals(self, now: float) -> None:
        """What found no place waits from now on; why is logged once in each wait, where there is a log."""
        world = self._world
        for work in self._queue_pass.refused:
            if work.state is State.PENDING:
                work.happens(Happening.NO_PLACE)
                if world.log is not None:
                    verdict = world.regions.verdict(self._queue_pass.lot_of(work), work.eligible, now)
                    world.log.waiting(work, verdict, now)
