"""Jobs of a workload are tried in other orders where one finds no place, but never twice in the same one."""

from __future__ import annotations

from cluster_manager.mechanism import Place, Query, Shortfall
from domain.identifiers import JobName
from domain.plan import Plan
from domain.rank import Standing
from domain.resources import TaskResources
from domain.workload import Emulated, JobSpecification
from regional_scheduler.planner import plan_workload
from regional_scheduler.refusal import Refusal
from regional_scheduler.region_capacity import RegionCapacity
from tests.cluster_manager.fleets import cluster, gpu_machine, hold, region, tasks_on
from tests.cluster_manager.inventory_worlds import workload_of

MACHINES = 12


class CountingCapacity(RegionCapacity):
    """Counts the questions."""

    asked = 0

    def ask(self, position: int, query: Query) -> Place | Shortfall:
        self.asked += 1
        return super().ask(position, query)


def full_region() -> CountingCapacity:
    capacity = CountingCapacity(region(cluster("c", [gpu_machine(f"m{number}") for number in range(MACHINES)])))
    for number in range(MACHINES):
        hold(capacity, f"victim-{number}", tasks_on(f"m{number}", range(8), cluster_name="c"), priority=5)
    return capacity


def jobs(*gpus: int) -> list[JobSpecification]:
    return [
        JobSpecification(JobName(f"job-{number}"), 1, TaskResources(gpus=count), Emulated(1.0))
        for number, count in enumerate(gpus)
    ]


def test_jobs_that_are_alike_are_refused_without_trying_each_of_them_first() -> None:
    capacity = full_region()
    newcomer = workload_of("newcomer", *jobs(*[8] * 3 * MACHINES))
    refusal = plan_workload(capacity, newcomer, Standing(1, 0), 10.0, within_quota=True)
    assert isinstance(refusal, Refusal)
    assert capacity.asked <= 3 * MACHINES, (
        "without and with victims for each job that fits, and for the first that does not"
    )


def test_another_order_of_jobs_that_differ_is_still_tried() -> None:
    capacity = full_region()
    newcomer = workload_of("newcomer", *jobs(*[8] * (MACHINES - 1), *[5, 3]))
    assert isinstance(plan_workload(capacity, newcomer, Standing(1, 0), 10.0, within_quota=True), Plan)
    too_many = workload_of("newcomer", *jobs(*[8] * (MACHINES - 1), *[5, 3, 1]))
    assert isinstance(plan_workload(capacity, too_many, Standing(1, 0), 10.0, within_quota=True), Refusal)
