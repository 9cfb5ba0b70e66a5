"""Which voluntary releases to try first for a job: about the fewest that make room for it in one cluster.

Rule: step by step, where the fewest releases make room for each further task. How few suffice on a machine is found with what
frees the most; then each of them is exchanged for the least that suffices as well.
For a job of one task that asks for GPUs these are the fewest. It is a guess where what a mechanism asks for is more than
amounts; what turns out needless stays in any case (`planner`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from cluster_manager.capacity.machine_shapes import Amounts, tasks_within
from cluster_manager.capacity.tables import NO_WORK, RESOURCES, WORKS_AS, Integers
from cluster_manager.capacity.task_kinds import WHEN_EMPTY
from cluster_manager.mechanism import Query
from regional_scheduler.region_capacity import RegionCapacity
from regional_scheduler.voluntary_releases import VoluntaryRelease


class _Step(NamedTuple):
    """So many releases on a machine, and for how many more tasks they make room."""

    releases: int
    tasks: int

    def releases_per_task(self, wanted: int) -> float:
        """What each of the tasks that are wanted costs."""
        return self.releases / min(self.tasks, wanted)


class _Machine:
    """A machine with what can be released there, the most first."""

    __slots__ = ("_free", "_left", "_most", "_need", "number", "steps")

    def __init__(self, number: int, free: Amounts, need: Amounts, most: int, releases: list[VoluntaryRelease]) -> None:
        self.number = number
        self._left = sorted(releases, key=_most_first)
        self._free = free
        self._need = need
        self._most = most
        self.steps = self._steps()
        """The ways to make room, with ever more releases."""

    def take(self, step: _Step) -> list[VoluntaryRelease]:
        """The releases of the step, which are released from now on."""
        taken = self._least(step)
        self._left = [release for release in self._left if release not in taken]
        for release in taken:
            self._free = _sum(self._free, release.amounts)
        self.steps = self._steps()
        return taken

    def _least(self, step: _Step) -> list[VoluntaryRelease]:
        """As many releases as the step has, that make room for its tasks as well and free no more than they must."""
        taken = self._left[: step.releases]
        wanted = self._tasks(self._free) + step.tasks
        for position in reversed(range(len(taken))):
            others = taken[:position] + taken[position + 1 :]
            free = self._free
            for release in others:
                free = _sum(free, release.amounts)
            # What is taken already suffices in any case; of what frees equally little the first stays.
            suffices = [
                release
                for release in self._left
                if release not in others and self._tasks(_sum(free, release.amounts)) >= wanted
            ]
            taken[position] = min(suffices, key=_freed)
        return taken

    def _steps(self) -> list[_Step]:
        free, before = self._free, self._tasks(self._free)
        steps: list[_Step] = []
        for number, release in enumerate(self._left, start=1):
            free = _sum(free, release.amounts)
            tasks = self._tasks(free) - before
            if tasks > (steps[-1].tasks if steps else 0):
                steps.append(_Step(number, tasks))
        return steps

    def _tasks(self, free: Amounts) -> int:
        # What is negative is promised to others already.
        return tasks_within((max(free[0], 0), max(free[1], 0), max(free[2], 0)), self._need, self._most)


def fewest_releases(
    region: RegionCapacity, query: Query, releases: Sequence[VoluntaryRelease], counts: Integers
) -> tuple[VoluntaryRelease, ...] | None:
    """About the fewest of the releases that make room for the query in one cluster, in their order; None: not even all do.

    `counts` says for how many of its tasks there is capacity without them, per cluster.
    """
    best: list[VoluntaryRelease] | None = None
    for position, machines in _machines_of(region, query, releases):
        chosen = _make_room(machines, query.tasks - int(counts[position]))
        if chosen is not None and (best is None or len(chosen) < len(best)):
            best = chosen
    if best is None:
        return None
    wanted = set(best)
    return tuple([release for release in releases if release in wanted])


def _make_room(machines: Sequence[_Machine], missing: int) -> list[VoluntaryRelease] | None:
    """What to release for so many more tasks on these machines; None when all is not enough."""
    chosen: list[VoluntaryRelease] = []
    while missing > 0:
        possible = [(step.releases_per_task(missing), one.number, step, one) for one in machines for step in one.steps]
        if not possible:
            return None
        _, _, step, machine = min(possible, key=_cost_and_machine)
        chosen += machine.take(step)
        missing -= step.tasks
    return chosen


def _machines_of(
    region: RegionCapacity, query: Query, releases: Sequence[VoluntaryRelease]
) -> Iterator[tuple[int, list[_Machine]]]:
    """By position of the cluster, the machines that may be used and have something to release."""
    by_machine: dict[tuple[int, int], list[VoluntaryRelease]] = {}
    for release in releases:
        by_machine.setdefault(region.place_of(release.before.machine), []).append(release)
    table = query.kind.needs.table
    by_cluster: dict[int, list[_Machine]] = {}
    for position, number in sorted(by_machine):
        state = region.clusters[position].arrays.state[number].tolist()
        if state[WORKS_AS] == NO_WORK:
            continue
        row = table[state[WORKS_AS]].tolist()
        if row[WHEN_EMPTY] > 0:
            there, most = by_machine[position, number], min(row[WHEN_EMPTY], query.tasks)
            machine = _Machine(number, _amounts(state), _amounts(row), most, there)
            by_cluster.setdefault(position, []).append(machine)
    yield from by_cluster.items()


def _amounts(row: Sequence[int]) -> Amounts:
    gpus, millicpus, mebibytes = row[:RESOURCES]
    return gpus, millicpus, mebibytes


def _sum(one: Amounts, other: Amounts) -> Amounts:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


def _cost_and_machine(possible: tuple[float, int, _Step, _Machine]) -> tuple[float, int, _Step]:
    return possible[:3]


def _freed(release: VoluntaryRelease) -> Amounts:
    return release.amounts


def _most_first(release: VoluntaryRelease) -> tuple[int, int, int, str, int, str, int]:
    gpus, millicpus, mebibytes = release.amounts
    before = release.before
    return -gpus, -millicpus, -mebibytes, release.attempt.workload, release.attempt.attempt, before.job, -before.task
