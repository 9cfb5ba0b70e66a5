"""Guessing which regions will win the lots that a round could not decide, so that the next round can decide many at once.

A guess is never wrong in a way that matters: closing the next round finds out where it was (I11 does not rest on
it). Good guesses are what makes a window of 64 lots take two or three rounds and not 64 (decision 003).

Rule: the auctions are played on from the last decided lot. What a region would say after other wins than it had
assumed is guessed from two things: the outline of its idle GPUs, in which the guessed wins are placed as the planner
would place them; and, where that shows no room or says nothing (evictions, jobs without GPUs), its answer to the like
lot of the same round before which it had placed about as much, with the load corrected by the difference.

Ignores: everything that neither of the two says. A workload that only this guess thinks can be placed is expected to
be won by some region; nothing follows from it but a worse guess.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from cluster_manager.mechanism import Affinity
from domain.identifiers import RegionId
from domain.placement import NO_WORK_DESTROYED, Score
from domain.rank import Standing
from domain.resources import TaskResources
from domain.workload import TableInput
from regional_scheduler.idle_outline import IdleOutline, OutlinePlace
from regional_scheduler.queries import affinity_of
from regional_scheduler.rounds import Abandoned, Answer, Bid, Lot, RegionResponse, depends_on_wins

NO_EVICTIONS = Score().preempted_by_priority

LikeLots = tuple[
    Standing, tuple[tuple[int, TaskResources, Affinity, bool], ...], tuple[RegionId, ...], tuple[TableInput, ...]
]
"""Lots that a region tells apart only by what it runs already: same standing, jobs of the same shape, same inputs."""

GuessedBid = tuple[int, tuple[float, ...], tuple[int, ...], float, int, float, int, float, RegionId]
"""A score with its load corrected, and the region: in the order in which bids are compared."""


def expected_winners(
    lots: Sequence[Lot],
    responses: Sequence[RegionResponse],
    decided: Sequence[RegionId | None],
    upcoming: Sequence[Lot] = (),
    most: int | None = None,
) -> tuple[RegionId | None, ...]:
    """Which region will probably win each lot after the decided ones, and then each upcoming one; None: no region.

    `decided` holds the winners of the first lots of the round, `responses` all that were given to it; `upcoming` are
    lots that no region has answered yet. Of so many lots at `most`: those behind are left out.
    """
    foresights = [_RegionPrediction(response, lots) for response in responses]
    expected: list[RegionId | None] = []
    for index, lot in enumerate((*lots, *upcoming)):
        if len(expected) == most:
            break
        answered = index if index < len(lots) else None
        if index < len(decided):
            winner = decided[index]
        else:
            bids = [foresight.bid(answered, lot) for foresight in foresights]
            guessed = [bid for bid in bids if bid is not None]
            winner = min(guessed)[-1] if guessed else None
            expected.append(winner)
        for foresight in foresights:
            foresight.go_on(answered, lot, winner)
    return tuple(expected)


def _like(lot: Lot) -> LikeLots:
    specification = lot.workload.specification
    shapes = tuple((job.tasks, job.resources, affinity_of(job), job.across_clusters) for job in specification.jobs)
    return lot.position.standing, shapes, specification.regions, specification.tables


@dataclass(frozen=True, slots=True)
class _PredictedDemand:
    """What a lot asks for, as far as it says so in numbers."""

    gpus: int
    cpus: float

    @staticmethod
    def of(lot: Lot) -> _PredictedDemand:
        jobs = lot.workload.specification.jobs
        return _PredictedDemand(
            sum(job.tasks * job.resources.gpus for job in jobs),
            sum(job.tasks * (job.resources.cpus or 0.0) for job in jobs),
        )


@dataclass(frozen=True, slots=True)
class _Shares:
    """How much of a region is placed, as shares of its GPUs and of its CPUs."""

    gpus: float
    cpus: float


@dataclass(frozen=True, slots=True)
class _Sample:
    """An answer that a region gave, and under which circumstances."""

    answer: Answer
    wins: int
    """How many lots it had placed before."""
    placed: _Shares
    foreseen: OutlinePlace | None
    """What the outline would have predicted of its bid, had that been guessed."""


class _RegionPrediction:
    """What one region said, and what it would say after the wins that are guessed so far."""

    __slots__ = (
        "_assumed_wins",
        "_knows_idle",
        "_on_track",
        "_outline",
        "_placed",
        "_samples",
        "_samples_like",
        "_total_cpus",
        "_total_gpus",
        "_wins",
        "region",
    )

    def __init__(self, response: RegionResponse, lots: Sequence[Lot]) -> None:
        self.region = response.region
        self._assumed_wins = frozenset(response.assumed_wins)
        self._total_gpus = response.gpus
        self._total_cpus = response.cpus
        self._knows_idle = bool(response.idle)
        self._samples: list[_Sample] = []
        self._samples_like: dict[LikeLots, list[_Sample]] = {}
        self._start_over(response)
        for lot, answer in zip(lots, response.answers, strict=True):
            place = self._outline.find(lot.workload.specification.jobs) if isinstance(answer, Bid) else None
            sample = _Sample(answer, self._wins, self._placed, place)
            self._samples.append(sample)
            self._samples_like.setdefault(_like(lot), []).append(sample)
            if lot.workload.workload in self._assumed_wins:
                self._win(lot)
        self._start_over(response)

    def _start_over(self, response: RegionResponse) -> None:
        """Back to what the region had before the first lot."""
        self._wins = 0
        self._placed = _Shares(0.0, 0.0)
        self._outline = IdleOutline(response.idle)
        # Whether it has won so far exactly what it had assumed to win: then its answers need no guess.
        self._on_track = True

    def go_on(self, answered: int | None, lot: Lot, winner: RegionId | None) -> None:
        """The lot goes to this region, or to none."""
        if winner == self.region:
            self._win(lot)
        if answered is None or (lot.workload.workload in self._assumed_wins) != (winner == self.region):
            self._on_track = False

    def _win(self, lot: Lot) -> None:
        demand = _PredictedDemand.of(lot)
        gpus = demand.gpus / self._total_gpus if self._total_gpus else 0.0
        cpus = demand.cpus / self._total_cpus if self._total_cpus else 0.0
        self._wins += 1
        self._placed = _Shares(self._placed.gpus + gpus, self._placed.cpus + cpus)
        place = self._outline.find(lot.workload.specification.jobs)
        if place is not None:
            self._outline.take(place)

    def bid(self, answered: int | None, lot: Lot) -> GuessedBid | None:
        """The bid that the region would probably make now; None when it would probably make none.

        `answered` is the index of the region's own answer to this very lot, None if it has not been asked.
        """
        if answered is not None:
            own = self._samples[answered].answer
            if self._on_track or not depends_on_wins(own):
                return _guessed_bid(own.score, 0.0, self.region) if isinstance(own, Bid) else None
        sample = self._nearest_sample(lot)
        if sample is not None and isinstance(sample.answer, Abandoned):
            return None
        if self._knows_idle and _PredictedDemand.of(lot).gpus:
            place = self._outline.find(lot.workload.specification.jobs)
            if place is not None and self._may_have_room(sample):
                return self._bid_for(place, sample)
            if place is None and sample is not None and _score_without_evictions(sample.answer) is not None:
                return None
        return self._bid_like(sample, lot) if sample is not None else None

    def _may_have_room(self, sample: _Sample | None) -> bool:
        """False when the region said, with no more placed, that it would have to evict or had no room at all."""
        return sample is None or _score_without_evictions(sample.answer) is not None or self._wins < sample.wins

    def _bid_for(self, place: OutlinePlace, sample: _Sample | None) -> GuessedBid:
        """The bid that the outline leads to expect, corrected by what the outline does not see of the sample."""
        spread, fragmentation = place.spread, float(place.fragmentation)
        score = _score_without_evictions(sample.answer) if sample is not None else None
        if score is not None and sample is not None and sample.foreseen is not None:
            spread += score.spread - sample.foreseen.spread
            fragmentation += score.fragmentation - sample.foreseen.fragmentation
        load = 1.0 - self._outline.idle_gpus / self._total_gpus
        return (0, NO_WORK_DESTROYED, NO_EVICTIONS, 0.0, spread, fragmentation, 0, load, self.region)

    def _bid_like(self, sample: _Sample, lot: Lot) -> GuessedBid | None:
        """What the region said to that lot, with the load that it would have now."""
        if not isinstance(sample.answer, Bid):
            return None
        has_gpus = bool(_PredictedDemand.of(lot).gpus)
        more = self._placed.gpus - sample.placed.gpus if has_gpus else self._placed.cpus - sample.placed.cpus
        return _guessed_bid(sample.answer.score, more, self.region)

    def _nearest_sample(self, lot: Lot) -> _Sample | None:
        """Of the like lots the one before which the region had placed most nearly as many; None if there is none."""
        like = self._samples_like.get(_like(lot))
        if like is None:
            return None
        after = bisect_left(like, self._wins, key=_wins_before)
        candidates = like[max(0, after - 1) : after + 1]
        return min(candidates, key=lambda sample: abs(sample.wins - self._wins))


def _wins_before(sample: _Sample) -> int:
    return sample.wins


def _score_without_evictions(answer: Answer) -> Score | None:
    """The score of a bid that evicts nothing; None for every other answer."""
    return answer.score if isinstance(answer, Bid) and answer.score.reclaim_class == 0 else None


def _guessed_bid(score: Score, more_load: float, region: RegionId) -> GuessedBid:
    return (
        score.reclaim_class,
        score.work_destroyed_by_priority,
        score.preempted_by_priority,
        score.preempted_running_s,
        score.spread,
        score.fragmentation,
        score.hint,
        score.load + more_load,
        region,
    )
