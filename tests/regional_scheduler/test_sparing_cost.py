"""Looking for needless victims of many jobs does not suppose all releases anew for each victim."""

from __future__ import annotations

from domain.identifiers import JobName
from domain.placement import AttemptKey
from domain.plan import Plan
from domain.rank import Standing
from domain.resources import TaskResources
from domain.workload import Emulated, JobSpecification
from regional_scheduler.planner import plan_workload
from regional_scheduler.region_capacity import RegionCapacity
from tests.cluster_manager.fleets import cluster, gpu_machine, hold, region, tasks_on
from tests.cluster_manager.inventory_worlds import workload_of

CLUSTERS, MACHINES = 6, 8


class CountingCapacity(RegionCapacity):
    """Counts supposed releases."""

    supposed = 0

    def suppose_released(self, key: AttemptKey) -> None:
        self.supposed += 1
        super().suppose_released(key)


def test_a_full_region_is_cleared_for_many_jobs_without_a_supposition_per_pair_of_victims() -> None:
    """Each job needs a cluster's machines; every victim has to go, as the sum of GPUs says."""
    clusters = [cluster(f"c{c}", [gpu_machine(f"c{c}m{m}", 8) for m in range(MACHINES)]) for c in range(CLUSTERS)]
    capacity = CountingCapacity(region(*clusters))
    for c in range(CLUSTERS):
        for m in range(MACHINES):
            tasks = tasks_on(f"c{c}m{m}", range(8), cluster_name=f"c{c}")
            hold(capacity, f"victim-{c}-{m}", tasks, priority=5)
    jobs = [
        JobSpecification(JobName(f"job-{number}"), 1, TaskResources(gpus=8), Emulated(1.0))
        for number in range(CLUSTERS * MACHINES)
    ]
    plan = plan_workload(capacity, workload_of("newcomer", *jobs), Standing(1, 0), 10.0, within_quota=True)
    assert isinstance(plan, Plan)
    victims = CLUSTERS * MACHINES
    assert len(plan.evictions) == victims
    assert capacity.supposed < 2 * victims
