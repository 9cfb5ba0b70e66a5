"""One walk along the queue: what allocation policies may do (`simulator.policies.allocation.QueueWalk`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import cast

from domain.identifiers import AttemptNumber
from domain.rank import QueuePosition, Standing
from regional_scheduler.dispatching import place
from regional_scheduler.rounds import Lot
from simulator.engine.queues import Queue
from simulator.engine.regions import RegionRoom, Win
from simulator.engine.workloads import SimulatedWorkload
from simulator.policies.allocation import Reservation
from simulator.policies.levels import LevelPolicy
from simulator.policies.work import Work


class Walk:
    """The queue at one moment. Made once; `begin` makes it new."""

    def __init__(
        self,
        queue: Queue,
        room: RegionRoom,
        levels: LevelPolicy,
        dispatch: Callable[[SimulatedWorkload, Lot, Win], None],
        running: Callable[[], Sequence[SimulatedWorkload]],
        use_of_tenants: Sequence[int],
    ) -> None:
        self._queue = queue
        self._room = room
        self._levels = levels
        self._dispatch = dispatch
        self._running = running
        self._use_of_tenants = use_of_tenants
        self.now = 0.0
        self.refused: list[SimulatedWorkload] = []
        """Who was tried in this walk and found no room."""

    def begin(self, now: float) -> None:
        self.now = now
        self.refused = []
        self._queue.begin_walk()

    def next(self) -> SimulatedWorkload | None:
        return self._queue.next()

    def heads(self) -> Sequence[SimulatedWorkload]:
        return self._queue.heads()

    def in_order(self) -> Iterator[SimulatedWorkload]:
        return self._queue.in_order()

    def start(self, work: Work) -> bool:
        simulated = cast(SimulatedWorkload, work)
        lot = self.lot_of(simulated)
        win = self._room.auction(lot, simulated.eligible, self.now)
        if win is None:
            self._queue.block(simulated.kind)
            self.refused.append(simulated)
            return False
        self._dispatch(simulated, lot, win)
        return True

    def start_in(self, work: Work, region: int) -> bool:
        """Starts it in one region, if that one has room."""
        simulated = cast(SimulatedWorkload, work)
        lot = self.lot_of(simulated)
        win = self._room.auction(lot, (region,), self.now)
        if win is None:
            return False
        self._dispatch(simulated, lot, win)
        return True

    def use_of_tenant(self, tenant: int) -> int:
        return self._use_of_tenants[tenant]

    def standing_of(self, work: SimulatedWorkload) -> Standing:
        """At what it waits now."""
        if not self._levels.moves_with_time:
            return work.standing
        return Standing(work.standing.priority, self._levels.queued_level(work, self.now))

    def lot_of(self, work: SimulatedWorkload) -> Lot:
        """The workload as it is put up for auction."""
        position = QueuePosition(
            work.workload.workload, self.standing_of(work), work.credit, work.submitted_s, work.within_quota
        )
        return Lot(work.workload, position, AttemptNumber(work.attempts + 1))

    # Thinking ahead.

    def earliest_start(self, work: Work) -> Reservation | None:
        simulated = cast(SimulatedWorkload, work)
        best: Reservation | None = None
        for region in simulated.eligible:
            start_s = self._earliest_start_in(simulated, region)
            if start_s is not None and (best is None or start_s < best.start_s):
                best = Reservation(region, start_s)
        return best

    def start_beside(self, work: Work, kept_for: Work, reservation: Reservation) -> bool:
        """Tried first where it does not matter how long it runs, then where it must leave enough room."""
        simulated = cast(SimulatedWorkload, work)
        lot = self.lot_of(simulated)
        win = self._room.auction(lot, simulated.eligible, self.now)
        if win is None:
            self._queue.block(simulated.kind)
            self.refused.append(simulated)
            return False
        ends_in_time = self.now + simulated.remaining_s <= reservation.start_s
        if win.region != reservation.region or ends_in_time or self._leaves_room(lot, win, kept_for, reservation):
            self._dispatch(simulated, lot, win)
            return True
        return False

    def _leaves_room(self, lot: Lot, win: Win, kept_for: Work, reservation: Reservation) -> bool:
        """Whether the other one finds room at its time with this one placed."""
        desk = self._room.desks[win.region]
        with desk.inventory.tentatively():
            place(desk.inventory, lot, win.plan, self.now)
            for attempt in self._running():
                if attempt.region == win.region and self.expected_end_s(attempt) <= reservation.start_s:
                    desk.inventory.release(attempt.key)
            return self._fits(cast(SimulatedWorkload, kept_for), win.region)

    def _earliest_start_in(self, work: SimulatedWorkload, region: int) -> float | None:
        """Releases what runs there in the order of its expected end, until the workload finds room."""
        desk = self._room.desks[region]
        ends = sorted(
            (self.expected_end_s(attempt), attempt.index, attempt)
            for attempt in self._running()
            if attempt.region == region
        )
        idle_gpus = self._room.idle_gpus(region)
        with desk.inventory.tentatively():
            for position, (end_s, _, attempt) in enumerate(ends):
                desk.inventory.release(attempt.key)
                idle_gpus += attempt.gpus
                last_at_once = position + 1 == len(ends) or ends[position + 1][0] > end_s
                if last_at_once and idle_gpus >= work.gpus and self._fits(work, region):
                    return end_s
        return None

    def _fits(self, work: SimulatedWorkload, region: int) -> bool:
        """Asks the planner itself: the negative cache knows nothing of what is tentative."""
        return self._room.finds_room(self.lot_of(work), region, self.now)

    def expected_end_s(self, attempt: SimulatedWorkload) -> float:
        """When the attempt will be over if nothing comes between."""
        since_s = attempt.started_s if attempt.started_s == attempt.started_s else self.now
        return max(self.now, since_s + attempt.remaining_s)
