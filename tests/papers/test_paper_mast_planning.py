"""MAST §4.3 and §4.6, sentence by sentence: where a region puts a workload, whom it evicts, what it remembers."""

from collections import Counter

from domain.fleet import Cluster
from domain.identifiers import ANY_GPU_MODEL, GpuModel, JobName
from domain.plan import Plan
from domain.rank import Standing
from domain.resources import TaskResources
from domain.workload import Emulated, JobSpecification
from regional_scheduler.planner import Refusal, plan_workload
from regional_scheduler.refusals.memory import RefusalMemory
from regional_scheduler.region_capacity import RegionCapacity
from tests.cluster_manager.fleets import H100, cluster, cpu_machine, gpu_machine, hold, key_of, region, tasks_on
from tests.cluster_manager.inventory_worlds import workload_of

NOW_S = 10_000.0
HIGHEST = Standing(0, 0)


def job(
    tasks: int, gpus: int, cpus: float = 0.0, memory_gib: float = 0.0, model: GpuModel = ANY_GPU_MODEL
) -> JobSpecification:
    return JobSpecification(JobName("job"), tasks, TaskResources(gpus, model, cpus, memory_gib), Emulated(60.0))


def outcome_of(inventory: RegionCapacity, *jobs: JobSpecification, standing: Standing = HIGHEST) -> Plan | Refusal:
    return plan_workload(inventory, workload_of("newcomer", *jobs), standing, NOW_S, within_quota=False)


def plan_of(inventory: RegionCapacity, *jobs: JobSpecification, standing: Standing = HIGHEST) -> Plan:
    plan = outcome_of(inventory, *jobs, standing=standing)
    assert isinstance(plan, Plan), plan
    return plan


def machines_of(plan: Plan) -> dict[str, int]:
    return dict(Counter(placement.machine for placement in plan.placements))


def holding_machines(*held: tuple[str, int, int, float]) -> RegionCapacity:
    """One cluster: for each (workload, GPUs, priority, since) a machine of that size, wholly held by that workload."""
    machines = [gpu_machine(f"of-{name}", gpus) for name, gpus, _, _ in held]
    inventory = RegionCapacity(region(cluster("c", machines)))
    for name, gpus, priority, since in held:
        hold(inventory, name, tasks_on(f"of-{name}", range(gpus)), priority=priority, since=since)
    return inventory


def evicted(inventory: RegionCapacity, gpus: int, standing: Standing = HIGHEST) -> list[str]:
    """Whom a newcomer of so many tasks of one GPU each evicts."""
    return [key.workload for key in plan_of(inventory, job(gpus, 1), standing=standing).evictions]


def test_the_example_evicts_only_the_workload_with_12_gpus() -> None:
    """If a new job needs 10 GPUs and the scan reveals options of 4, 5, and 12 GPUs by preempting job1, job2, and job3
    respectively, the optimal choice is preempting job3 without affecting job1 or job2."""
    inventory = holding_machines(("job1", 4, 6, 1.0), ("job2", 5, 6, 2.0), ("job3", 12, 6, 3.0))
    assert evicted(inventory, 10) == ["job3"]


def test_the_scan_stops_when_there_is_enough() -> None:
    """It sorts all running jobs based on priority and running time, initiating the scan with the job having the lowest
    priority and longest running time. The scanning process continues until sufficient resources are found."""
    inventory = holding_machines(("job1", 4, 6, 1.0), ("job2", 6, 6, 2.0), ("job3", 12, 6, 3.0))
    assert evicted(inventory, 10) == ["job1", "job2"]  # job3 has been running for less, and was never reached


def test_available_resources_are_combined_with_those_to_be_released() -> None:
    """... until sufficient resources are found to execute the new job, combining available resources with those to be
    released through preemption."""
    inventory = RegionCapacity(region(cluster("c", [gpu_machine("m0", 8), gpu_machine("m1", 4)])))
    hold(inventory, "w", tasks_on("m1", range(4)))
    plan = plan_of(inventory, job(3, 4))
    assert machines_of(plan) == {"m0": 2, "m1": 1}
    assert plan.evictions == (key_of("w"),)


def test_lower_priorities_are_preempted_first() -> None:
    """If preemption is necessary, RMS prioritizes preempting lower-priority jobs."""
    inventory = holding_machines(("better", 8, 4, 1.0), ("worse", 8, 5, 2.0), ("worst", 8, 6, 3.0))
    assert evicted(inventory, 8) == ["worst"]
    assert evicted(inventory, 12) == ["worse", "worst"]


def test_longer_running_ones_are_preempted_first() -> None:
    """... those running for a longer duration. The last condition implies refraining from preempting newly started
    jobs."""
    inventory = holding_machines(("newly-started", 8, 6, 9_000.0), ("long-running", 8, 6, 1.0))
    assert evicted(inventory, 8) == ["long-running"]


def test_the_largest_are_evicted_so_that_the_fewest_are() -> None:
    """RMS minimizes preempted jobs. To achieve this, RMS re-sorts preempted jobs by size, prioritizing larger jobs
    first."""
    inventory = holding_machines(*((f"small{n}", 2, 6, float(n)) for n in range(4)), ("large", 8, 6, 5.0))
    assert evicted(inventory, 9) == ["large", "small0"]  # of the small ones, the longest-running
    assert evicted(inventory, 8) == ["small0", "small1", "small2", "small3"]  # enough before the large one is reached


def clusters(*sizes: int) -> list[Cluster]:
    """A cluster for each size, of one machine with so many GPUs."""
    return [cluster(f"c{number}", [gpu_machine(f"m{number}", gpus)]) for number, gpus in enumerate(sizes)]


def test_a_plan_that_preempts_nobody_wins() -> None:
    """A plan has a higher score if it uses available resources to run the new job without preempting any running
    jobs."""
    inventory = RegionCapacity(region(*clusters(8, 8)))
    hold(inventory, "w", tasks_on("m0", range(8), cluster_name="c0"))
    plan = plan_of(inventory, job(1, 1))
    assert (plan.evictions, machines_of(plan)) == ((), {"m1": 1})
    assert plan.score < plan_of(inventory, job(2, 4), job(1, 4)).score


def test_between_clusters_lower_priority_then_fewer_jobs_then_longer_running_decide() -> None:
    """If preemption is necessary, a higher score is achieved by preempting jobs with lower priority, fewer jobs, or
    those running for a longer duration."""
    inventory = RegionCapacity(region(*clusters(8, 8, 8, 8)))
    hold(inventory, "better", tasks_on("m0", range(8), cluster_name="c0"), priority=5, since=1.0)
    for half in range(2):
        hold(inventory, f"half{half}", tasks_on("m1", range(4 * half, 4 * half + 4), cluster_name="c1"), since=1.0)
    hold(inventory, "younger", tasks_on("m2", range(8), cluster_name="c2"), since=500.0)
    hold(inventory, "older", tasks_on("m3", range(8), cluster_name="c3"), since=499.0)
    assert evicted(inventory, 8) == ["older"]
    inventory.release(key_of("older"))
    hold(inventory, "kept3", tasks_on("m3", range(8), cluster_name="c3"), priority=0)
    assert evicted(inventory, 8) == ["younger"]
    inventory.set_standing(key_of("younger"), HIGHEST)
    assert evicted(inventory, 8) == ["half0", "half1"]
    inventory.set_standing(key_of("half0"), HIGHEST)
    assert evicted(inventory, 8) == ["better"]


def test_every_cluster_is_searched() -> None:
    """Adhering to the exhaustive-search principle, for each job in the workload, RMS calculates a placement plan and
    P_score for every ML dynamic cluster in the region. It chooses the cluster with the highest P_score."""
    inventory = RegionCapacity(region(*clusters(8, 7, 6, 5, 4, 3)))
    for gpus, machine in ((3, "m5"), (4, "m4"), (5, "m3"), (6, "m2"), (7, "m1"), (8, "m0")):
        assert machines_of(plan_of(inventory, job(1, gpus))) == {machine: 1}  # where nothing is left over


def test_the_score_of_a_workload_is_the_sum_over_its_jobs() -> None:
    """The overall P_score for the workload is determined by summing up the P_score for each job in the workload."""
    inventory = RegionCapacity(region(*clusters(8, 4)))
    together = plan_of(inventory, job(1, 5), job(1, 3)).score
    assert together.fragmentation == 3.0 + 0.0  # 8 - 5 for the first; the second fills what it left
    assert together.reclaim_class == 0


def test_machines_of_one_rack_are_taken_together() -> None:
    """For enhanced task locality within the same job, RMS sorts available machines based on rack IDs, allocating
    machines in the same or nearby racks in batches."""
    racks = [[gpu_machine(f"r{rack}-m{number}") for number in range(4)] for rack in range(3)]
    inventory = RegionCapacity(region(cluster("c", *racks)))
    hold(inventory, "w", tasks_on("r0-m0", [0]))
    assert machines_of(plan_of(inventory, job(4, 8))) == {f"r1-m{number}": 1 for number in range(4)}
    assert {name[:2] for name in machines_of(plan_of(inventory, job(8, 8)))} == {"r1", "r2"}


def test_the_fewest_machines_are_used() -> None:
    """While scanning, RMS aims to use the minimum number of machines by prioritizing those with the highest available
    CPU/GPU resources."""
    machines = [cpu_machine(f"small{number}", cpus=8) for number in range(8)]
    inventory = RegionCapacity(region(cluster("c", [*machines, cpu_machine("large0"), cpu_machine("large1")])))
    assert machines_of(plan_of(inventory, job(16, 0, cpus=8.0))) == {"large0": 8, "large1": 8}
    assert machines_of(plan_of(inventory, job(9, 0, cpus=8.0))) == {"large0": 8, "small0": 1}


def test_the_tasks_of_a_job_are_never_distributed_over_clusters() -> None:
    """One such limitation is the inability to distribute a job's tasks across different clusters, despite the
    capability to allocate workload jobs to various dynamic clusters (§4.6)."""
    inventory = RegionCapacity(region(*clusters(8, 8)))
    assert isinstance(outcome_of(inventory, job(16, 1)), Refusal)
    plan = plan_of(inventory, job(8, 1), job(8, 1))
    assert {(placement.job, placement.cluster) for placement in plan.placements} == {("job-0", "c0"), ("job-1", "c1")}


def test_the_negative_cache_filters_the_same_or_a_larger_size() -> None:
    """When RMS cannot allocate resources for a job, it saves the decision in the cache. If it later attempts to
    allocate a job of the same or larger size, the cache signals that the allocation will fail."""
    inventory = holding_machines(("w", 8, 0, 1.0))
    cache = RefusalMemory(inventory)
    refused = workload_of("refused", job(2, 2, cpus=1.0, memory_gib=4.0))
    outcome = plan_workload(inventory, refused, HIGHEST, NOW_S, within_quota=False)
    assert isinstance(outcome, Refusal)
    cache.remember(refused, HIGHEST, outcome, NOW_S, within_quota=False)
    larger = (
        job(2, 2, 1.0, 4.0),
        job(3, 2, 1.0, 4.0),
        job(2, 4, 1.0, 4.0),
        job(2, 2, 2.0, 4.0),
        job(2, 2, 1.0, 8.0),
        job(2, 2, 1.0, 4.0, H100),
    )
    smaller = (job(1, 2, 1.0, 4.0), job(2, 1, 1.0, 4.0), job(2, 2, 0.5, 4.0), job(2, 2, 1.0, 2.0))
    assert all(cache.fails(workload_of("asked", asked), HIGHEST, within_quota=False) for asked in larger)
    assert not any(cache.fails(workload_of("asked", asked), HIGHEST, within_quota=False) for asked in smaller)


def test_the_negative_cache_is_cleared_with_each_scan_pass() -> None:
    """The negative cache is initialized at the start of every GMS-scan pass that examines all pending jobs, and is
    cleared after the GMS-scan pass finishes."""
    inventory = holding_machines(("w", 8, 0, 1.0))
    cache = RefusalMemory(inventory)
    refused = workload_of("refused", job(1, 1))
    outcome = plan_workload(inventory, refused, HIGHEST, NOW_S, within_quota=False)
    assert isinstance(outcome, Refusal)
    cache.remember(refused, HIGHEST, outcome, NOW_S, within_quota=False)
    assert cache.fails(refused, HIGHEST, within_quota=False)
    cache.clear()
    assert not cache.fails(refused, HIGHEST, within_quota=False)
