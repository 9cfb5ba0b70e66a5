"""Releases that a plan can do without: beside trying each with all the others supposed anew, and what looking for them costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from domain.identifiers import JobName
from domain.placement import AttemptKey, TaskPlacement
from domain.plan import Plan, ScaleIn
from domain.rank import Standing
from domain.resources import TaskResources
from domain.workload import Emulated, JobSpecification
from regional_scheduler import planner
from regional_scheduler.needless_releases import without_needless
from regional_scheduler.planner import plan_workload
from regional_scheduler.region_capacity import RegionCapacity
from regional_scheduler.voluntary_releases import VoluntaryRelease
from tests.cluster_manager.fleets import cluster, gpu_machine, region
from tests.cluster_manager.inventory_worlds import World, elastic_steps, regions, standings, workload_of, workloads
from tests.examples import examples
from tests.regional_scheduler.test_voluntary_releases import hold_elastic

MACHINES = 40


def plain_without_needless(
    capacity: RegionCapacity, releases: Sequence[VoluntaryRelease], found: Any, find: Callable[[], Any]
) -> tuple[Any, list[VoluntaryRelease]]:
    """The rule as it is said: all others are supposed anew for each."""
    needed = list(releases)
    for candidate in reversed(needed):
        fewer = [release for release in needed if release is not candidate]
        with capacity.voluntary.released(fewer):
            again = find()
        if again:
            found, needed = again, fewer
    return found, needed


def in_words(placed: Any) -> list[object]:
    return [
        (
            demand,
            found.position,
            found.load,
            found.place.tasks.tolist(),
            found.place.entries.tolist(),
            found.place.spread,
            found.place.fragmentation,
        )
        for demand, found in placed
    ]


@settings(max_examples=examples(150))
@given(regions(2, 2, 3), elastic_steps(), st.lists(st.tuples(workloads(), standings()), min_size=2, max_size=4))
def test_never_keeps_or_drops_another_release_than_one_trial_each(
    fleet: Any, steps: Any, newcomers: list[tuple[Any, Standing]]
) -> None:
    world = World.of(fleet)
    for step in steps:
        world.take(step)

    def both(capacity: RegionCapacity, releases: Any, found: Any, find: Any) -> Any:
        before = capacity.holdings()
        expected, needed = plain_without_needless(capacity, releases, found, find)
        answer = without_needless(capacity, releases, found, find)
        assert (in_words(answer[0]), answer[1]) == (in_words(expected), needed)
        assert capacity.holdings() == before
        capacity.check()
        return answer

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(planner, "without_needless", both)
        for workload, standing in newcomers:
            plan_workload(world.inventory, workload, standing, 100.0, within_quota=False)


class CountingCapacity(RegionCapacity):
    """Counts changes of what attempts hold."""

    changes = 0

    def replace_placements(self, key: AttemptKey, placements: tuple[TaskPlacement, ...]) -> None:
        self.changes += 1
        super().replace_placements(key, placements)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_gang_that_takes_many_tasks_does_not_suppose_all_releases_for_each_of_them(jobs: int) -> None:
    """Each task of the newcomer needs all four flexible tasks on its machine."""
    capacity = CountingCapacity(region(cluster("c", [gpu_machine(f"m{number:02d}", 8) for number in range(MACHINES)])))
    for number in range(MACHINES):
        machine = f"m{number:02d}"
        hold_elastic(
            capacity, f"elastic-{number:02d}", 1, (machine, (0, 1, 2, 3)), *((machine, (gpu,)) for gpu in (4, 5, 6, 7))
        )
    asked = [
        JobSpecification(JobName(f"job-{number}"), MACHINES // jobs, TaskResources(gpus=4), Emulated(1.0))
        for number in range(jobs)
    ]
    plan = plan_workload(capacity, workload_of("newcomer", *asked), Standing(3, 0), 10.0, within_quota=True)
    assert isinstance(plan, Plan)
    releases = 4 * MACHINES
    assert sum(len(action.released) for action in plan.actions if isinstance(action, ScaleIn)) == releases
    # Once for each attempt when all are supposed, and once for each release that is taken back.
    assert capacity.changes < 2 * releases
