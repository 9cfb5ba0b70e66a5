"""Guessing who will win the lots that a round could not decide, so that the next round can decide many at once.

A guess is never wrong in a way that matters: closing the next round finds out where it was (I11 does not rest on
it). Good guesses are what makes a window of 64 lots take two or three rounds and not 64 (decision 003).

Rule: the auctions are played on from the last decided lot. What a region would say after other wins than it had
assumed is guessed from two things: the outline of its idle GPUs, in which the guessed wins are placed as the planner
would place them; and, where that shows no room or says nothing (evictions, jobs without GPUs), its answer to the like
lot of the same round before which it had placed about as much, with the load corrected by the difference.

Ignores: everything that neither of the two tells. A workload that only this guess thinks can be placed is expected to
be won by somebody; nothing follows from it but a worse guess.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from domain.identifiers import RegionId
from domain.placement import Score
from domain.rank import Standing
from domain.resources import TaskResources
from domain.workload import TableInput
from regional_scheduler.rounds import Answer, Bid, Lot, RegionResponse, depends_on_wins
from regional_scheduler.shadow import Shadow

NO_EVICTIONS = Score().preempted_by_priority

LikeLots = tuple[Standing, tuple[tuple[int, TaskResources, bool], ...], tuple[RegionId, ...], tuple[TableInput, ...]]
"""Lots that a region tells apart only by what it runs already: same standing, jobs of the same shape, same inputs."""

GuessedBid = tuple[int, tuple[int, ...], float, int, float, int, float, RegionId]
"""A score with its load corrected, and the region: in the order in which bids are compared."""


def expected_winners(
    lots: Sequence[Lot],
    responses: Sequence[RegionResponse],
    decided: Sequence[RegionId | None],
    upcoming: Sequence[Lot] = (),
) -> tuple[RegionId | None, ...]:
    """Who will probably win each lot after the decided ones, and then each upcoming one; None: nobody.

    `decided` holds the winners of the first lots of the round, `responses` all that were given to it; `upcoming` are
    lots that nobody has answered yet.
    """
    demands = [_Demand.of(lot) for lot in lots]
    foresights = {response.region: _Foresight(response, lots, demands) for response in responses}
    for winner, lot, demand in zip(decided, lots, demands, strict=False):
        if winner is not None and winner in foresights:
            foresights[winner].win(lot, demand)
    expected: list[RegionId | None] = []
    for index, lot in enumerate((*lots[len(decided) :], *upcoming), len(decided)):
        demand = demands[index] if index < len(lots) else _Demand.of(lot)
        answered = index if index < len(lots) else None
        bids = [foresight.bid(answered, lot, demand) for foresight in foresights.values()]
        guessed = [bid for bid in bids if bid is not None]
        winner = min(guessed)[-1] if guessed else None
        if winner is not None:
            foresights[winner].win(lot, demand)
        expected.append(winner)
    return tuple(expected)


def _like(lot: Lot) -> LikeLots:
    specification = lot.workload.specification
    shapes = tuple((job.tasks, job.resources, job.consolidate) for job in specification.jobs)
    return lot.position.standing, shapes, specification.regions, specification.tables


@dataclass(frozen=True, slots=True)
class _Demand:
    """What a lot asks for, as far as it says so in numbers."""

    gpus: int
    cpus: float

    @staticmethod
    def of(lot: Lot) -> _Demand:
        jobs = lot.workload.specification.jobs
        return _Demand(
            sum(job.tasks * job.resources.gpus for job in jobs),
            sum(job.tasks * (job.resources.cpus or 0.0) for job in jobs),
        )


@dataclass(frozen=True, slots=True)
class _Shares:
    """How much of a region is placed, as shares of its GPUs and of its CPUs."""

    gpus: float
    cpus: float

    @property
    def amount(self) -> float:
        return self.gpus + self.cpus


class _Foresight:
    """What one region said, and what it would say after the wins that are guessed so far."""

    __slots__ = (
        "_answers",
        "_assumed",
        "_knows_idle",
        "_placed",
        "_samples",
        "_shadow",
        "_total_cpus",
        "_total_gpus",
        "region",
    )

    def __init__(self, response: RegionResponse, lots: Sequence[Lot], demands: Sequence[_Demand]) -> None:
        self.region = response.region
        self._answers = response.answers
        self._total_gpus = response.gpus
        self._total_cpus = response.cpus
        self._shadow = Shadow(response.idle)
        self._knows_idle = bool(response.idle)
        # _assumed[i]: what the region had placed of this window when it answered to lot i.
        self._assumed: list[_Shares] = []
        # For like lots, ascending: the amount that was placed before each of them, and its index.
        self._samples: dict[LikeLots, tuple[list[float], list[int]]] = {}
        assumed_wins = frozenset(response.assumed_wins)
        placed = _Shares(0.0, 0.0)
        for index, lot in enumerate(lots):
            self._assumed.append(placed)
            amounts, indices = self._samples.setdefault(_like(lot), ([], []))
            amounts.append(placed.amount)
            indices.append(index)
            if lot.workload.workload in assumed_wins:
                placed = self._plus(placed, demands[index])
        self._placed = _Shares(0.0, 0.0)

    def win(self, lot: Lot, demand: _Demand) -> None:
        """From here on the region is guessed to have placed this too."""
        self._placed = self._plus(self._placed, demand)
        place = self._shadow.find(lot.workload.specification.jobs)
        if place is not None:
            self._shadow.take(place.taken)

    def bid(self, answered: int | None, lot: Lot, demand: _Demand) -> GuessedBid | None:
        """The bid that the region would probably make now; None when it would probably make none.

        `answered` is the index of the region's own answer to this very lot, None if it has not been asked.
        """
        if answered is not None and self._stands(answered):
            own = self._answers[answered]
            return _guessed_bid(own.score, 0.0, self.region) if isinstance(own, Bid) else None
        sample = self._nearest_sample(lot)
        if demand.gpus and self._knows_idle:
            place = self._shadow.find(lot.workload.specification.jobs)
            if place is not None and self._may_have_room(sample):
                load = 1.0 - self._shadow.idle_gpus / self._total_gpus
                return (0, NO_EVICTIONS, 0.0, place.spread, place.fragmentation, 0, load, self.region)
            if place is None and (sample is None or _evicts_nothing(self._answers[sample])):
                return None
        return self._bid_like(sample, demand) if sample is not None else None

    def _may_have_room(self, sample: int | None) -> bool:
        """False when the region said, with no more placed, that it would have to evict or had no room at all."""
        return (
            sample is None
            or _evicts_nothing(self._answers[sample])
            or self._placed.amount < self._assumed[sample].amount
        )

    def _bid_like(self, sample: int, demand: _Demand) -> GuessedBid | None:
        """What the region said to that lot, with the load that it would have now."""
        answer = self._answers[sample]
        if not isinstance(answer, Bid):
            return None
        before = self._assumed[sample]
        more = self._placed.gpus - before.gpus if demand.gpus else self._placed.cpus - before.cpus
        return _guessed_bid(answer.score, more, self.region)

    def _stands(self, answered: int) -> bool:
        """Whether the region's own answer to the lot needs no guess."""
        return self._assumed[answered].amount == self._placed.amount or not depends_on_wins(self._answers[answered])

    def _nearest_sample(self, lot: Lot) -> int | None:
        """The like lot before which the region had placed about what it is now guessed to have placed."""
        like = self._samples.get(_like(lot))
        if like is None:
            return None
        amount = self._placed.amount
        amounts, indices = like
        after = bisect_left(amounts, amount)
        if after == len(amounts):
            return indices[-1]
        if after > 0 and amount - amounts[after - 1] <= amounts[after] - amount:
            return indices[after - 1]
        return indices[after]

    def _plus(self, placed: _Shares, demand: _Demand) -> _Shares:
        gpus = demand.gpus / self._total_gpus if self._total_gpus else 0.0
        cpus = demand.cpus / self._total_cpus if self._total_cpus else 0.0
        return _Shares(placed.gpus + gpus, placed.cpus + cpus)


def _evicts_nothing(answer: Answer) -> bool:
    return isinstance(answer, Bid) and answer.score.reclaim_class == 0


def _guessed_bid(score: Score, more_load: float, region: RegionId) -> GuessedBid:
    return (
        score.reclaim_class,
        score.preempted_by_priority,
        score.preempted_running_s,
        score.spread,
        score.fragmentation,
        score.hint,
        score.load + more_load,
        region,
    )
