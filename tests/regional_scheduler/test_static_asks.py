"""What workloads ask for under static demands: by the machines that may run them, and never what no region has."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from cluster_manager.tuning.mechanisms import TUNING_MECHANISMS
from domain.fleet import Cluster, Fleet, Machine, Rack, Region
from domain.identifiers import ANY_GPU_MODEL, ClusterId, GpuModel, JobName, MachineId, RackId, RegionId, TenantId
from domain.placement import TaskPlacement
from domain.resources import TaskResources
from domain.sensitivity import SensitivityProfile
from domain.workload import Emulated, JobSpecification, WorkloadSpecification
from regional_scheduler.hosting import HostingRegions
from regional_scheduler.static_asks import StaticAsks, asking_what_is_held, has_static_demands
from tests.examples import examples

A100, V100 = GpuModel("A100"), GpuModel("V100")
HUNGRY = SensitivityProfile((1.0, 3.0, 12.0), (20.0,), ((1 / 3,), (1.0,), (4.0,)))
PROFILES = {JobName("main"): HUNGRY}
GREEDY = TUNING_MECHANISMS["greedy"]


def fleet(*machines: tuple[GpuModel, int, float]) -> Fleet:
    """One region for each: its GPU model, its GPUs, its CPUs."""
    return Fleet(
        tuple(
            Region(
                RegionId(f"r{number}"),
                (
                    Cluster(
                        ClusterId(f"c{number}"),
                        (Rack(RackId("r"), (Machine(MachineId(f"m{number}"), model, gpus, cpus, 400.0),)),),
                    ),
                ),
            )
            for number, (model, gpus, cpus) in enumerate(machines)
        )
    )


def workload(gpus: int, model: GpuModel = ANY_GPU_MODEL, tasks: int = 1) -> WorkloadSpecification:
    job = JobSpecification(JobName("main"), tasks, TaskResources(gpus=gpus, gpu_model=model), Emulated(100.0, 0.0))
    return WorkloadSpecification("w", TenantId("t"), (job,))


def asked_cpus(asks: StaticAsks, wanted: WorkloadSpecification) -> float | None:
    return asks.of(wanted, PROFILES).jobs[0].resources.cpus


def test_each_asks_for_what_machines_of_its_gpu_model_have() -> None:
    asks = StaticAsks(GREEDY, fleet((A100, 8, 96.0), (V100, 8, 24.0)))
    assert asked_cpus(asks, workload(8, A100)) == 96.0
    assert asked_cpus(asks, workload(8, V100)) == 24.0
    assert asked_cpus(asks, workload(8)) == 96.0


def test_what_nothing_is_known_of_asks_for_what_it_says() -> None:
    asks = StaticAsks(GREEDY, fleet((A100, 8, 96.0)))
    plain = workload(2)
    assert asks.of(plain, {}) is plain
    job = replace(plain.jobs[0], resources=plain.jobs[0].resources._replace(cpus=5.0, memory_gib=10.0))
    chosen = replace(plain, jobs=(job,))
    assert asks.of(chosen, PROFILES) is chosen


def test_where_no_region_has_as_much_it_asks_for_its_share() -> None:
    # Of tasks with 4 GPUs and 48 CPUs the large machine holds two, and a small one none.
    asks = StaticAsks(GREEDY, fleet((A100, 8, 96.0), (A100, 4, 12.0)))
    assert asked_cpus(asks, workload(4, tasks=2)) == 48.0
    one_cluster = Fleet(
        (
            Region(
                RegionId("r"),
                (
                    Cluster(
                        ClusterId("c"),
                        (
                            Rack(
                                RackId("r"),
                                tuple(
                                    Machine(MachineId(f"m{number}"), A100, gpus, cpus, 400.0)
                                    for number, (gpus, cpus) in enumerate([(8, 96.0), (4, 12.0), (4, 12.0)])
                                ),
                            ),
                        ),
                    ),
                ),
            ),
        )
    )
    assert asked_cpus(StaticAsks(GREEDY, one_cluster), workload(4, tasks=4)) is None


def test_an_attempt_asks_for_what_it_holds() -> None:
    placement = TaskPlacement(JobName("main"), 0, ClusterId("c"), MachineId("m"), (0, 1), 14_000, 2048)
    asked = asking_what_is_held(workload(2), PROFILES, [placement]).jobs[0].resources
    assert (asked.cpus, asked.memory_gib) == (14.0, 2.0)
    assert asking_what_is_held(workload(2), {}, [placement]) == workload(2)


@pytest.mark.parametrize(
    ("name", "static"),
    [("greedy", True), ("drf_packing", True), ("tetris_packing", True), ("proportional", False), ("tune", False)],
)
def test_which_mechanisms_have_static_demands(name: str, static: bool) -> None:
    assert has_static_demands(TUNING_MECHANISMS[name]) is static


@hypothesis_settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([A100, V100]), st.sampled_from([2, 4, 8]), st.sampled_from([8.0, 24.0, 96.0])),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([ANY_GPU_MODEL, A100, V100]),
    st.integers(1, 4),
)
def test_never_asks_for_what_no_region_has_unless_none_could_host_it(
    machines: list[tuple[GpuModel, int, float]], gpus: int, model: GpuModel, tasks: int
) -> None:
    made, wanted = fleet(*machines), workload(gpus, model, tasks)
    hosting = HostingRegions(made.regions)
    if hosting.refusal(wanted) is None:
        assert hosting.refusal(StaticAsks(GREEDY, made).of(wanted, PROFILES)) is None
