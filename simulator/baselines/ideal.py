"""Global search for a set of workloads at once: solution (9) of MAST §4.1, Table 1, an upper reference for small fleets.

Rule: the queue is taken in windows of `window` workloads that would find room if they came alone. First each in turn
gets its best region, as under `mast`; if all find room, that is it. If not, a search over the regions of all of them
looks for the assignment that places the best set, and then the one of the best total score. The best set is the
lexicographically greatest by the order of the queue: none gives way to any number of those behind it.
Invariant: within a window, and within the limit, no assignment of regions places a set that is better in that order;
never is the set worse than under `mast` for the same window.
Ignores: machines: within a region the plan is the planner's; and it never moves what runs already. At most
`most_plans` plans are tried in one search; then the best found so far counts (the first that is found is the greedy one).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from domain.placement import Score
from global_scheduler.ordering.credit import CreditOrdering
from simulator.policies.allocation import QueuePass
from simulator.policies.policy import SPARES_WORK, Policy
from simulator.policies.work import Work

NOWHERE = -1

Assignment = tuple[int, ...]
"""The region of each workload of a window, or NOWHERE."""


@dataclass(frozen=True, slots=True)
class JointSearch:
    """Searches for the best assignment of a window, depth first: regions in the order of their scores."""

    window: int = 8
    most_plans: int = 2000
    name: str = "joint_search"

    def allocate(self, queue_pass: QueuePass) -> None:
        queue_pass.pass_over_hopeless()
        while window := _window(queue_pass, self.window):
            for work, region in zip(window, _best_assignment(queue_pass, window, self.most_plans), strict=True):
                if region == NOWHERE or not queue_pass.start_in(work, region):
                    queue_pass.start(work)


def _window(queue_pass: QueuePass, size: int) -> list[Work]:
    """The next of the queue that would find room as it is now."""
    window: list[Work] = []
    while len(window) < size and (work := queue_pass.next()) is not None:
        if queue_pass.regions_with_room(work):
            window.append(work)
    return window


def _best_assignment(queue_pass: QueuePass, window: Sequence[Work], most_plans: int) -> Assignment:
    search = _Search(queue_pass, window, most_plans)
    search.descend((), ())
    return search.best


@dataclass(slots=True)
class _Search:
    """Branch and bound. A branch ends when even with all that are left its set would be worse than the best."""

    queue_pass: QueuePass
    window: Sequence[Work]
    plans_left: int
    best: Assignment = ()
    best_score: Score = field(default_factory=Score)
    done: bool = False

    def descend(self, regions: Assignment, scores: tuple[Score, ...]) -> None:
        """Decides on the next workload in every way, given those before it."""
        if len(regions) == len(self.window):
            self._compare(regions, scores)
            return
        work = self.window[len(regions)]
        options = self._options(work)
        if not options and not self.done:
            # To leave one out that finds room is never better: each counts for more than all behind it.
            self._branch(work, (*regions, NOWHERE), scores)
            return
        for score, region in options:
            if self.done:
                return
            with self.queue_pass.tentatively():
                self.queue_pass.try_in(work, region)
                self._branch(work, (*regions, region), (*scores, score))

    def _branch(self, work: Work, regions: Assignment, scores: tuple[Score, ...]) -> None:
        if not self.best or _placed(regions) >= _placed(self.best[: len(regions)]):
            self.descend(regions, scores)

    def _options(self, work: Work) -> list[tuple[Score, int]]:
        """The regions that have room for it at this point, the best plan first."""
        options: list[tuple[Score, int]] = []
        for region in work.eligible:
            if self.best and self.plans_left <= 0:
                self.done = True
                return []
            self.plans_left -= 1
            with self.queue_pass.tentatively():
                score = self.queue_pass.try_in(work, region)
            if score is not None:
                options.append((score, region))
        return sorted(options)

    def _compare(self, regions: Assignment, scores: tuple[Score, ...]) -> None:
        total = Score.total(scores)
        first = not self.best
        placed, placed_by_best = _placed(regions), _placed(self.best)
        if first or placed > placed_by_best or (placed == placed_by_best and total < self.best_score):
            self.best, self.best_score = regions, total
        # The first one is the greedy one: when it places all, no set is better.
        self.done = self.done or (first and NOWHERE not in regions)


def _placed(regions: Assignment) -> tuple[bool, ...]:
    return tuple(region != NOWHERE for region in regions)


IDEAL = Policy(
    name="ideal",
    summary="MAST with a search over the regions of several workloads at once (MAST Table 1, (9)); for small fleets",
    ordering=CreditOrdering(),
    scans=True,
    eviction=SPARES_WORK,
    allocation=JointSearch(),
)
