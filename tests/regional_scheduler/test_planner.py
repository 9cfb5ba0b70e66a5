"""What the planner decides, one sentence per test, on regions small enough to count by hand."""

from collections import Counter

import pytest

from domain.diagnosis import Reason
from domain.fleet import Cluster, Machine, MachineState
from domain.identifiers import ANY_GPU_MODEL, GpuModel, JobName, MachineId
from domain.plan import Plan
from domain.rank import Standing
from domain.resources import TaskResources
from domain.workload import Emulated, JobSpecification
from regional_scheduler.planner import Refusal, plan_workload
from regional_scheduler.region_capacity import RegionCapacity
from tests.cluster_manager.fleets import A100, H100, cluster, cpu_machine, gpu_machine, hold, key_of, region, tasks_on
from tests.cluster_manager.inventory_worlds import workload_of

NOW_S = 1_000.0
HIGH = Standing(0, 0)


def inventory_of(*clusters: Cluster) -> RegionCapacity:
    return RegionCapacity(region(*clusters))


def gpu_job(tasks: int, gpus: int, *, model: GpuModel = ANY_GPU_MODEL, consolidate: bool = False) -> JobSpecification:
    """Tasks with their share of CPUs and memory."""
    resources = TaskResources(gpus=gpus, gpu_model=model)
    return JobSpecification(JobName("job"), tasks, resources, Emulated(60.0), consolidate=consolidate)


def cpu_job(tasks: int, cpus: float, memory_gib: float = 1.0) -> JobSpecification:
    return JobSpecification(JobName("job"), tasks, TaskResources(cpus=cpus, memory_gib=memory_gib), Emulated(60.0))


def planned(inventory: RegionCapacity, *jobs: JobSpecification, standing: Standing = HIGH) -> Plan:
    plan = plan_workload(inventory, workload_of("newcomer", *jobs), standing, NOW_S, within_quota=False)
    assert isinstance(plan, Plan), plan
    inventory.check()
    return plan


def refused(inventory: RegionCapacity, *jobs: JobSpecification, standing: Standing = HIGH) -> Refusal:
    refusal = plan_workload(inventory, workload_of("newcomer", *jobs), standing, NOW_S, within_quota=False)
    assert isinstance(refusal, Refusal), refusal
    inventory.check()
    return refusal


def machines_of(plan: Plan) -> dict[str, int]:
    """Tasks per machine."""
    return dict(Counter(placement.machine for placement in plan.placements))


# Where tasks go.


def test_a_small_task_goes_to_the_smallest_hole_that_holds_it() -> None:
    inventory = inventory_of(cluster("c", [gpu_machine("m0"), gpu_machine("m1"), gpu_machine("m2")]))
    hold(inventory, "w1", tasks_on("m1", range(4)))
    hold(inventory, "w2", tasks_on("m2", range(6)))
    assert machines_of(planned(inventory, gpu_job(1, 1))) == {"m2": 1}
    assert machines_of(planned(inventory, gpu_job(1, 3))) == {"m1": 1}
    assert machines_of(planned(inventory, gpu_job(1, 8))) == {"m0": 1}


def test_each_task_gets_the_lowest_free_gpus_and_its_share_of_the_machine() -> None:
    inventory = inventory_of(cluster("c", [gpu_machine("m0")]))
    hold(inventory, "w1", tasks_on("m0", [0, 3]))
    first, second = planned(inventory, gpu_job(2, 2)).placements
    assert (first.task, first.gpu_indices, first.cpus, first.memory_gib) == (0, (1, 2), 24.0, 256.0)
    assert (second.task, second.gpu_indices) == (1, (4, 5))


def test_shares_are_rounded_down_so_that_a_machine_can_be_filled() -> None:
    inventory = inventory_of(cluster("c", [Machine(MachineId("m0"), H100, 3, 10.0, 100.0)]))
    plan = planned(inventory, gpu_job(3, 1))
    assert [placement.millicpus for placement in plan.placements] == [3_333, 3_333, 3_333]


def test_a_job_that_one_rack_holds_stays_in_one_rack() -> None:
    inventory = inventory_of(
        cluster("c", [gpu_machine("a0"), gpu_machine("a1")], [gpu_machine("b0"), gpu_machine("b1"), gpu_machine("b2")])
    )
    assert machines_of(planned(inventory, gpu_job(3, 8))) == {"b0": 1, "b1": 1, "b2": 1}
    assert machines_of(planned(inventory, gpu_job(2, 8))) == {"a0": 1, "a1": 1}


def test_a_job_that_no_rack_holds_takes_the_roomiest_racks_and_then_the_tightest() -> None:
    inventory = inventory_of(
        cluster(
            "c",
            [gpu_machine("a0")],
            [gpu_machine("b0"), gpu_machine("b1"), gpu_machine("b2")],
            [gpu_machine("c0"), gpu_machine("c1")],
        )
    )
    assert machines_of(planned(inventory, gpu_job(4, 8))) == {"a0": 1, "b0": 1, "b1": 1, "b2": 1}
    assert machines_of(planned(inventory, gpu_job(5, 8))) == {"b0": 1, "b1": 1, "b2": 1, "c0": 1, "c1": 1}


def test_a_job_to_be_consolidated_takes_the_rack_where_it_needs_the_fewest_machines() -> None:
    racks = [gpu_machine(f"a{n}", gpus=4) for n in range(4)], [gpu_machine("b0"), gpu_machine("b1")]
    inventory = inventory_of(cluster("c", *racks))
    assert machines_of(planned(inventory, gpu_job(4, 4))) == {"a0": 1, "a1": 1, "a2": 1, "a3": 1}
    consolidated = planned(inventory, gpu_job(4, 4, consolidate=True))
    assert machines_of(consolidated) == {"b0": 2, "b1": 2}
    assert consolidated.score.spread == 1


def test_a_job_not_to_be_consolidated_leaves_the_fewest_gpus_idle() -> None:
    inventory = inventory_of(cluster("c", [gpu_machine("m0"), gpu_machine("m1", 3), gpu_machine("m2", 6)]))
    spread_out = planned(inventory, gpu_job(3, 3))
    assert machines_of(spread_out) == {"m1": 1, "m2": 2}
    assert spread_out.score.fragmentation == 0.0
    inventory = inventory_of(cluster("c", [gpu_machine("m0"), gpu_machine("m1", 3), gpu_machine("m2", 3)]))
    assert machines_of(planned(inventory, gpu_job(3, 3))) == {"m1": 1, "m0": 2}


def test_only_machines_of_the_right_model_are_used() -> None:
    inventory = inventory_of(cluster("c", [gpu_machine("m0", model=A100), gpu_machine("m1", model=H100)]))
    assert machines_of(planned(inventory, gpu_job(1, 8, model=H100))) == {"m1": 1}
    assert machines_of(planned(inventory, gpu_job(2, 8))) == {"m0": 1, "m1": 1}
    assert refused(inventory, gpu_job(2, 8, model=H100)).reason is Reason.CLUSTERS_TOO_SMALL


def test_machines_that_are_not_up_take_no_work() -> None:
    inventory = inventory_of(cluster("c", [gpu_machine("m0"), gpu_machine("m1"), gpu_machine("m2")]))
    inventory.set_machine_state(MachineId("m0"), MachineState.DRAINING)
    inventory.set_machine_state(MachineId("m1"), MachineState.DOWN)
    assert machines_of(planned(inventory, gpu_job(1, 1))) == {"m2": 1}
    assert refused(inventory, gpu_job(2, 8)).reason is Reason.NO_ROOM


def test_a_job_without_gpus_fills_machines_without_gpus_first() -> None:
    machines = [gpu_machine("g0"), cpu_machine("m0", cpus=16), cpu_machine("m1", cpus=16)]
    inventory = inventory_of(cluster("c", machines))
    without = planned(inventory, cpu_job(4, 8))
    assert machines_of(without) == {"m0": 2, "m1": 2}
    assert without.score.fragmentation == 0.0
    overflowing = planned(inventory, cpu_job(5, 8))
    assert machines_of(overflowing) == {"m0": 2, "m1": 2, "g0": 1}
    assert overflowing.score.fragmentation > 8.0  # the GPUs of the machine that it uses


def test_a_job_without_gpus_prefers_a_cluster_where_it_uses_no_machine_with_gpus() -> None:
    inventory = inventory_of(cluster("c0", [gpu_machine("g0")]), cluster("c1", [cpu_machine("m0"), cpu_machine("m1")]))
    assert machines_of(planned(inventory, cpu_job(1, 1))) == {"m0": 1}


def test_all_tasks_of_a_job_are_in_one_cluster_and_jobs_may_be_in_different_ones() -> None:
    inventory = inventory_of(
        cluster("c0", [gpu_machine("g0"), gpu_machine("g1")]), cluster("c1", [gpu_machine("g2"), cpu_machine("m0")])
    )
    assert refused(inventory, gpu_job(3, 8)).reason is Reason.CLUSTERS_TOO_SMALL
    plan = planned(inventory, cpu_job(1, 60), gpu_job(2, 8))
    assert [(p.job, p.cluster, p.machine) for p in plan.placements] == [
        ("job-0", "c1", "m0"),
        ("job-1", "c0", "g0"),
        ("job-1", "c0", "g1"),
    ]


def test_the_emptiest_fit_between_clusters_goes_by_fragmentation_and_then_by_fleet_order() -> None:
    inventory = inventory_of(
        cluster("c0", [gpu_machine("m0")]),
        cluster("c1", [gpu_machine("m1", gpus=2)]),
        cluster("c2", [gpu_machine("m2")]),
    )
    assert machines_of(planned(inventory, gpu_job(1, 2))) == {"m1": 1}
    assert machines_of(planned(inventory, gpu_job(1, 4))) == {"m0": 1}


def test_the_closest_cluster_is_one_that_could_hold_the_job() -> None:
    """Another one that is too small when empty has space for as many tasks, but nothing there could be waited for."""
    inventory = inventory_of(cluster("small", [gpu_machine("m0", gpus=2)]), cluster("c", [gpu_machine("m1")]))
    hold(inventory, "w1", tasks_on("m1", range(6)), priority=0)
    refusal = refused(inventory, gpu_job(4, 1))
    assert (refusal.reason, refusal.diagnosis.cluster) == (Reason.NO_ROOM, "c")
    assert "has room for more than 2 (c)" in refusal.sentence


def test_a_job_that_finds_no_place_after_the_others_goes_first_in_another_try() -> None:
    inventory = inventory_of(
        cluster("c0", [gpu_machine("m0", gpus=4, model=H100)]), cluster("c1", [gpu_machine("m1", gpus=4, model=A100)])
    )
    plan = planned(inventory, gpu_job(2, 2), gpu_job(4, 1, model=H100))
    assert machines_of(plan) == {"m0": 4, "m1": 2}


# Whom it evicts.


def test_nobody_is_evicted_where_there_is_room() -> None:
    inventory = inventory_of(cluster("c0", [gpu_machine("m0")]), cluster("c1", [gpu_machine("m1")]))
    hold(inventory, "w", tasks_on("m0", range(8), cluster_name="c0"))
    plan = planned(inventory, gpu_job(1, 8))
    assert (plan.evictions, plan.score.reclaim_class, machines_of(plan)) == ((), 0, {"m1": 1})


def test_equal_and_better_standings_are_never_evicted() -> None:
    inventory = inventory_of(cluster("c", [gpu_machine("m0")]))
    hold(inventory, "w", tasks_on("m0", range(8)), priority=3, level=1)
    assert refused(inventory, gpu_job(1, 1), standing=Standing(3, 1)).reason is Reason.NO_ROOM
    assert refused(inventory, gpu_job(1, 1), standing=Standing(4, 0)).reason is Reason.NO_ROOM
    assert planned(inventory, gpu_job(1, 1), standing=Standing(3, 0)).evictions == (key_of("w"),)


def test_whoever_is_leaving_already_is_not_evicted_again_and_its_place_is_taken() -> None:
    inventory = inventory_of(cluster("c", [gpu_machine("m0")]))
    inventory.begin_eviction(hold(inventory, "w", tasks_on("m0", range(8))))
    assert refused(inventory, gpu_job(1, 1)).reason is Reason.NO_ROOM


def test_the_score_counts_victims_by_priority_and_how_long_they_have_been_running() -> None:
    inventory = inventory_of(cluster("c", [gpu_machine("m0"), gpu_machine("m1")]))
    hold(inventory, "w1", tasks_on("m0", range(8)), priority=6, since=900.0)
    hold(inventory, "w2", tasks_on("m1", range(8)), priority=4, since=400.0)
    score = planned(inventory, gpu_job(2, 8)).score
    assert (score.reclaim_class, score.preempted_by_priority) == (2, (0, 0, 0, 0, 1, 0, 1))
    assert score.preempted_running_s == -700.0
    assert score.load == 1.0


def test_a_victim_is_lifted_in_every_cluster_so_that_later_jobs_use_what_it_frees() -> None:
    inventory = inventory_of(
        cluster("c0", [gpu_machine("m0")]),
        cluster("c1", [cpu_machine("m1", cpus=16)]),
        cluster("c2", [gpu_machine("m2", 1)]),
    )
    hold(inventory, "both", tasks_on("m0", range(8), cluster_name="c0"), tasks_on("m1", cpus=16, cluster_name="c1"))
    hold(inventory, "rest", tasks_on("m0", cpus=96, cluster_name="c0"), tasks_on("m2", [0], cpus=12, cluster_name="c2"))
    plan = planned(inventory, gpu_job(1, 8), cpu_job(1, 16))
    assert {p.machine for p in plan.placements} == {"m0", "m1"}
    assert plan.evictions == (key_of("both"), key_of("rest"))


def test_a_victim_of_one_job_is_spared_when_those_of_another_job_do() -> None:
    """The GPU job evicts `small` (running for longest); the CPU job then needs `large`, which frees the GPUs too."""
    inventory = inventory_of(cluster("c", [gpu_machine("g0"), gpu_machine("g1"), cpu_machine("m0", cpus=16)]))
    hold(inventory, "small", tasks_on("g0", range(8)), since=1.0)
    hold(inventory, "large", tasks_on("g1", range(8)), tasks_on("m0", cpus=16), since=2.0)
    hold(inventory, "keeps", tasks_on("g0", cpus=95), tasks_on("g1", cpus=95), priority=0)
    job = JobSpecification(JobName("job"), 1, TaskResources(gpus=8, cpus=0.0, memory_gib=0.0), Emulated(1.0))
    assert planned(inventory, job).evictions == (key_of("small"),)
    assert planned(inventory, job, cpu_job(1, 16)).evictions == (key_of("large"),)


def test_a_job_without_gpus_evicts_from_machines_without_gpus_before_it_takes_one_with() -> None:
    inventory = inventory_of(cluster("c", [gpu_machine("g0"), cpu_machine("m0", cpus=64)]))
    hold(inventory, "trainer", tasks_on("g0", range(8), cpus=96), since=1.0)
    hold(inventory, "reader", tasks_on("m0", cpus=64), since=500.0)
    assert planned(inventory, cpu_job(1, 64)).evictions == (key_of("reader"),)
    assert planned(inventory, cpu_job(1, 80)).evictions == (key_of("trainer"),)


# Refusals.


@pytest.mark.parametrize(
    ("job", "reason", "sentence"),
    [
        (
            gpu_job(1, 9),
            Reason.NO_MACHINE_FITS,
            "job job-0: no machine of region here could hold one task of 9 GPUs, its share of CPUs, its share of memory",
        ),
        (
            gpu_job(5, 4, model=H100),
            Reason.CLUSTERS_TOO_SMALL,
            (
                "job job-0 asks for 5 tasks of 4 H100 GPUs, its share of CPUs, its share of memory: the largest cluster "
                "of region here, c0, could hold 4 when empty"
            ),
        ),
        (
            cpu_job(3, 64, 2.5),
            Reason.NO_ROOM,
            (
                "job job-0 asks for 3 tasks of 64 CPUs, 2.5 GiB: no cluster of region here has room for more than 2 "
                "(c0), even with all evicted that is worse than priority 0, level 0"
            ),
        ),
    ],
)
def test_a_refusal_says_what_was_asked_and_what_there_is(job: JobSpecification, reason: Reason, sentence: str) -> None:
    machines = [gpu_machine("g0"), gpu_machine("g1"), cpu_machine("m0")]
    inventory = inventory_of(cluster("c0", machines), cluster("c1", [gpu_machine("g2", gpus=4)]))
    hold(inventory, "keeps", tasks_on("m0", cpus=1, cluster_name="c0"), priority=0)
    refusal = refused(inventory, job)
    assert (refusal.reason, refusal.job, refusal.sentence) == (reason, "job-0", sentence)


def test_jobs_that_fit_alone_but_not_together_are_refused_as_such() -> None:
    inventory = inventory_of(cluster("c", [gpu_machine("m0")]))
    refusal = refused(inventory, gpu_job(1, 8), gpu_job(1, 4))
    assert refusal.reason is Reason.NO_ROOM_TOGETHER
    assert refusal.room == ()
    assert "has room for each job of the workload alone" in refusal.sentence


def test_a_job_that_fails_alone_is_named_even_when_others_were_placed_before_it() -> None:
    inventory = inventory_of(cluster("c", [gpu_machine("m0"), cpu_machine("m1", cpus=4)]))
    refusal = refused(inventory, gpu_job(1, 4), cpu_job(30, 4))
    assert (refusal.reason, refusal.job, refusal.room) == (Reason.CLUSTERS_TOO_SMALL, "job-1", (25,))


def test_requests_that_are_none_raise() -> None:
    inventory = inventory_of(cluster("c", [gpu_machine("m0")]))
    for job in (
        gpu_job(0, 1),
        gpu_job(1, -1),
        gpu_job(1 << 21, 1),
        cpu_job(1, -0.5),
        cpu_job(1, float("nan")),
        JobSpecification(JobName("job"), 1, TaskResources(cpus=1.0), Emulated(1.0)),
    ):
        with pytest.raises(ValueError, match="job-0"):
            plan_workload(inventory, workload_of("w", job), HIGH, NOW_S, within_quota=False)
    with pytest.raises(ValueError, match="workload w has no jobs"):
        plan_workload(inventory, workload_of("w"), HIGH, NOW_S, within_quota=False)


def test_absurdly_large_requests_are_refused() -> None:
    inventory = inventory_of(cluster("c", [gpu_machine("m0"), cpu_machine("m1")]))
    for job in (gpu_job(1 << 20, 10**9), cpu_job(1 << 20, 1e15, 1e15), cpu_job(1 << 20, 0.001, 0.0)):
        assert refused(inventory, job).job == "job-0"


def test_tasks_that_ask_for_nothing_are_placed() -> None:
    inventory = inventory_of(cluster("c", [cpu_machine("m0")]))
    assert machines_of(planned(inventory, cpu_job(3, 0.0, 0.0))) == {"m0": 3}


def test_a_region_without_machines_refuses_everything() -> None:
    for empty in (region(), region(cluster("c")), region(cluster("c", []))):
        inventory = RegionCapacity(empty)
        inventory.check()
        assert refused(inventory, gpu_job(1, 1)).reason is Reason.NO_MACHINE_FITS
