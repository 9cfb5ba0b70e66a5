"""Auctions in rounds on virtual time: the walk along the queue takes as long as its rounds (decision 079).

Everything that decides is the service's own: where the walk goes on (`queue_walk`), how a round is cut from the queue
(`round_opening`), what regions answer (`bidding`), what is decided of it (`auction`), and whom regions object to passing over
(`refused_kinds`). A round is answered on what there is at its opening, and decided its latency later; whoever has won is
planned anew then, on what there is by then, as the winner does in the service.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from domain.life_cycle import Happening, State
from domain.rank import QueuePosition
from domain.workload import Workload
from formats.problems import FieldProblem, FormatError
from regional_scheduler.auction import AwaitingData, NotYet, RoundOutcome, Verdict, Waiting, Won, close_round
from regional_scheduler.queue_walk import QueueWalk, WalkStep, next_step
from regional_scheduler.refusals.kinds import WorkloadKind
from regional_scheduler.refusals.refused_kinds import RefusedKind
from regional_scheduler.round_opening import open_round
from regional_scheduler.rounds import Abandoned, AuctionSettings, Lot, RegionResponse, Round
from simulator.engine.columns import Integers, WorkloadColumns
from simulator.engine.event_queue import Happens
from simulator.engine.passed_over import PassedOver, key_of
from simulator.engine.queue_pass import SimulatedQueuePass
from simulator.engine.ranked_places import RankedPlaces, SortKey
from simulator.engine.workloads import SimulatedWorkload
from simulator.engine.world import World
from simulator.policies.allocation import FirstThatFits
from simulator.policies.region_choice import LateBinding

_ROUNDS_UNTIL_FORGOTTEN = 256
"""So often kinds of which nothing is queued any more are forgotten."""


@dataclass(frozen=True, slots=True)
class _OpenRound:
    """A round, with what all regions have answered to it."""

    auctioned: Round
    responses: tuple[RegionResponse, ...]


def are_held_in_rounds(world: World) -> bool:
    """Whether the auctions of this run are: the settings say so, and the policy is one that holds such auctions."""
    in_rounds = world.settings.auction_rounds.window is not None
    return in_rounds and world.policy.scans and isinstance(world.policy.allocation, FirstThatFits)


class AuctionRounds:
    """Takes the auctions along the queue, round by round."""

    def __init__(
        self,
        world: World,
        columns: WorkloadColumns,
        queue_pass: SimulatedQueuePass,
        after_round: Callable[[float], None],
        after_walk: Callable[[float], None],
    ) -> None:
        """`after_round` is called when a round that took time is over and its winners are dispatched, `after_walk` whenever a
        walk has come to the end of the queue."""
        settings = world.settings.auction_rounds
        self._world = world
        self._columns = columns
        self._queue_pass = queue_pass
        self._after_round = after_round
        self._after_walk = after_walk
        self._settings = AuctionSettings(window=settings.window or 1)
        self._latency_s = settings.round_latency_s
        self._bidders = [
            member.bidder for member in sorted(world.regions.members, key=lambda member: str(member.region))
        ]
        self._position_of = {member.region: at for at, member in enumerate(world.regions.members)}
        self._late_binding = isinstance(world.policy.region_choice, LateBinding)
        self._passed_over = PassedOver(self._bidders, len(columns.queued))
        self._places = RankedPlaces(columns, np.zeros(0, np.int64))
        self._scan_pass = 0
        self._walk = QueueWalk()
        self._last: RoundOutcome | None = None
        self._open: _OpenRound | None = None
        self._asks_again = False
        """Whether in this walk somebody was told something that says nothing of when there will be room."""
        self._releases = 0
        """How often anything had been released when the walk began."""
        self.rounds = 0
        """That were opened so far, ..."""
        self.lots = 0
        """... and lots that were decided in them."""

    def ranked(self, order: Integers, now: float) -> None:
        """A scan pass has ranked the queue anew: the walk goes back to its head, as soon as the open round is closed."""
        self._places = RankedPlaces(self._columns, order)
        self._scan_pass += 1
        self._go_on(now)

    def look(self, now: float) -> None:
        """Something has happened: where that has made room for what was refused, the walk goes back to the head."""
        if self._scan_pass and self._walk.ended:
            self._go_on(now)

    def close(self, now: float) -> None:
        """The open round has taken its time."""
        self._close(now)
        self._after_round(now)
        self._go_on(now)

    def _go_on(self, now: float) -> None:
        """Opens the next round, unless one is open or there is nothing to ask; rounds that take no time are held at once."""
        while self._open is None and self._open_next(now):
            if self._latency_s > 0:
                self._world.events.add(now + self._latency_s, Happens.AUCTION)
            else:
                self._close(now)

    # Opening.

    def _open_next(self, now: float) -> bool:
        """Moves the walk on, to the next round; False: there is nothing to ask."""
        passed_over = self._passed_over
        self._queue_pass.begin(now)
        passed_over.take_objections(now)
        while True:
            has_room = passed_over.has_room
            step = next_step(self._walk, self._scan_pass, has_room=has_room)
            if step is None:
                return False
            if step.begins:
                passed_over.begin_walk()
                self._asks_again, self._releases = False, self._releases_so_far()
            window = self._window(step)
            after = None if step.from_head else self._cursor()
            upcoming = self._following(after, window + 1, step.walk.number, again=step.asks_again)
            self._walk = step.walk
            if upcoming:
                self._opened(window, upcoming, now)
                return True
            if (has_room or step.walk.scan_pass != self._scan_pass) and not step.from_head:
                continue  # nothing is left behind; but at the head there is
            self._end_walk(now)

    def _window(self, step: WalkStep) -> int:
        """It follows the guesses. At the head of a queue that was ranked anew, nothing is known of them."""
        if step.from_head or self._last is None:
            return self._settings.window
        return self._last.next_window(self._settings)

    def _cursor(self) -> SortKey | None:
        cursor: QueuePosition | None = None if self._last is None else self._last.cursor
        return None if cursor is None else cursor.sort_key

    def _opened(self, window: int, upcoming: list[Lot], now: float) -> None:
        last = self._last
        self.rounds += 1
        auctioned = open_round(
            number=self.rounds,
            scan_pass=self._scan_pass,
            now=now,
            settings=replace(self._settings, window=window),
            participants=[bidder.region for bidder in self._bidders],
            upcoming=upcoming,
            hints={} if last is None else last.hints(),
            hints_of_kinds={} if last is None else last.hints_of_kinds(),
            runs_alone=last is None or last.runs_alone,
        )
        responses = tuple(bidder.answer(auctioned, now) for bidder in self._bidders)
        for response in responses:
            planned = sum(not isinstance(answer, Abandoned) for answer in response.answers)
            self._world.regions.lookups += planned
            self._world.regions.plans += planned
        self._open = _OpenRound(auctioned, responses)

    def _following(self, after: SortKey | None, limit: int, walk: int, *, again: bool) -> list[Lot]:
        """So many lots behind this place, or from the head on, that this walk may put up for auction now.

        `again`: with those that it has asked and for which some region has room by now.
        """
        passed_over = self._passed_over
        refused = passed_over.refused(self._columns.kinds, walk, again=again)
        found = self._places.following(after, limit, refused, passed_over.asked_in_walk, walk)
        return [self._lot(self._world.workloads[index]) for index in found]

    def _lot(self, work: SimulatedWorkload) -> Lot:
        work.credit = float(self._columns.credit[work.index])
        return work.lot_at(work.standing, self._bound(work))._replace(kind=WorkloadKind(str(work.kind)))

    def _bound(self, work: SimulatedWorkload) -> Workload:
        """With the regions that it is bound to, where the policy binds: all others abandon."""
        if self._late_binding:
            return work.workload
        regions = tuple([self._world.regions.members[position].region for position in work.eligible])
        return replace(work.workload, specification=replace(work.workload.specification, regions=regions))

    # Closing.

    def _close(self, now: float) -> None:
        """Decides what can be decided of the open round: winners start, and who found nothing is not asked again."""
        opened, self._open = self._open, None
        if opened is None:
            raise RuntimeError("a round is closed, but none is open")
        auctioned = opened.auctioned
        behind: list[Lot] = []
        if not auctioned.reaches_end:
            last = auctioned.lots[-1].position
            behind = self._following(last.sort_key, self._settings.window + 1, self._walk.number, again=False)
        outcome = close_round(auctioned, opened.responses, auctioned.opened_s, behind)
        if isinstance(outcome, NotYet):
            raise RuntimeError(f"all regions have answered round {auctioned.number}, but {outcome.missing} are missing")
        self._last = outcome
        self.lots += len(outcome.verdicts)
        self._queue_pass.begin(now)
        for verdict in outcome.verdicts:
            self._carry_out(verdict, now)
        self._store_refusals(outcome)

    def _carry_out(self, verdict: Verdict, now: float) -> None:
        """The winner starts, if there is room still, and the others wait; unless they left the queue meanwhile."""
        world, lot = self._world, verdict.lot
        work = world.by_name[lot.workload.workload]
        if not world.queue.holds(work) or work.attempts + 1 != lot.attempt or not self._columns.is_ranked(work):
            return
        if isinstance(verdict, Won):
            position = self._position_of[verdict.winner]
            if position not in work.eligible or not self._queue_pass.start_in(work, position):
                # It goes back to the queue: what there was has changed since the round was opened.
                self._asks_again, world.news = True, True
        elif work.state is State.PENDING:
            work.happens(Happening.NO_PLACE)
            if world.log is not None:
                world.log.waiting(work, verdict, now)

    def _store_refusals(self, outcome: RoundOutcome) -> None:
        """Whom this walk need not ask again: kinds for which there is no room, and single workloads."""
        hopeless = frozenset(outcome.hopeless)
        refused: list[tuple[int, RefusedKind]] = []
        for verdict in outcome.verdicts:
            if isinstance(verdict, Won):
                continue
            lot = verdict.lot
            if lot.workload.workload in hopeless and lot.kind is not None:
                refused.append((int(lot.kind), _refused(verdict, int(lot.kind), outcome.round_number)))
            else:
                self._passed_over.asked_in_walk[self._world.by_name[lot.workload.workload].index] = self._walk.number
                self._asks_again = True
        self._passed_over.store(refused, self._walk.number)
        if outcome.round_number % _ROUNDS_UNTIL_FORGOTTEN == 0:
            self._passed_over.keep_only(set(self._columns.kind[self._columns.pending()].tolist()))

    def _end_walk(self, now: float) -> None:
        self._walk = replace(self._walk, ended=True)
        if self._asks_again and self._releases_so_far() != self._releases:
            # Nobody objects for those: the service ranks its queue every period, whatever happens, and asks them again.
            self._asks_again, self._world.news = False, True
        self._after_walk(now)

    def _releases_so_far(self) -> int:
        return sum(bidder.releases for bidder in self._bidders)


def _refused(verdict: Waiting | AwaitingData, kind: int, round_number: int) -> RefusedKind:
    lot = verdict.lot
    return RefusedKind(
        key_of(kind, within_quota=lot.position.within_quota),
        round_number,
        lot.workload,
        lot.position,
        verdict.diagnosis,
        isinstance(verdict, AwaitingData),
    )


def refuse_several_ways() -> FormatError:
    """No round knows of workloads that can run in several ways."""
    problem = (
        "cannot be set where machines on loan have GPUs of another model: no round knows workloads that run on either"
    )
    return FormatError("settings", [FieldProblem("auction_rounds.window", problem)])
