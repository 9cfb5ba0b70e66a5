from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from domain.identifiers import ANY_GPU_MODEL, GpuModel, RegionId, TableId, TenantId, WorkloadId
from domain.workload import Emulated, TableInput
from formats.fleet_file import read_fleet
from formats.trace import TraceRow
from formats.trace_workload import greatest_gpus_per_machine, tasks_for_gpus, tenant_of_trace, workload_of_row
from formats.workload_checks import check_workload
from tests.formats.format_values import trace_rows

EXAMPLES = Path(__file__).parents[2] / "examples"
MACHINES = {ANY_GPU_MODEL: 8, GpuModel("A100"): 8, GpuModel("T4"): 4}
ROW = TraceRow(WorkloadId("w1"), TenantId("ads"), 10.0, 3600.0, 16)


def test_cuts_a_gang_into_the_fewest_equal_tasks() -> None:
    assert [tasks_for_gpus(gpus, 8) for gpus in (0, 1, 7, 8, 12, 13, 16, 20, 24)] == [1, 1, 1, 1, 2, 13, 2, 4, 3]


@given(st.integers(1, 2000), st.integers(1, 62))
def test_never_makes_a_task_that_fits_no_machine(gpus: int, greatest: int) -> None:
    tasks = tasks_for_gpus(gpus, greatest)
    assert gpus % tasks == 0
    assert gpus // tasks <= greatest
    assert all(gpus % fewer or gpus // fewer > greatest for fewer in range(1, tasks))


def test_makes_an_emulated_workload() -> None:
    row = replace(
        ROW, model="vgg19", tables=(TableId("clicks"),), region=RegionId("east"), checkpoint_s=600.0, cpus=32.0
    )
    workload = workload_of_row(row, MACHINES, tenant=TenantId("vision"), duration_factor=0.5)
    (job,) = workload.jobs
    assert (workload.name, workload.tenant, workload.labels) == ("w1", "vision", (("model", "vgg19"),))
    assert (workload.tables, workload.regions) == ((TableInput(TableId("clicks")),), ("east",))
    assert (job.tasks, job.resources.gpus, job.resources.cpus, job.resources.memory_gib) == (2, 8, 16.0, None)
    assert job.entry_point == Emulated(1800.0, 300.0)


def test_cuts_by_the_machines_of_the_model() -> None:
    (job,) = workload_of_row(replace(ROW, gpu_model=GpuModel("T4")), MACHINES).jobs
    assert (job.tasks, job.resources.gpus, job.resources.gpu_model) == (4, 4, "T4")


def test_an_elastic_row_starts_with_its_least_tasks() -> None:
    (job,) = workload_of_row(replace(ROW, tasks=4, min_tasks=2, max_tasks=6), MACHINES).jobs
    assert (job.tasks, job.max_tasks, job.resources.gpus) == (2, 6, 4)
    assert job.entry_point == Emulated(7200.0)
    (job,) = workload_of_row(replace(ROW, tasks=4, min_tasks=2), MACHINES).jobs
    assert (job.tasks, job.max_tasks) == (2, 4)


@given(trace_rows().filter(lambda row: row.duration_s < 1e7 and (row.checkpoint_s or 1) > 0))
def test_never_makes_a_workload_that_would_be_refused_for_its_shape(row: TraceRow) -> None:
    few_checkpoints = replace(row, checkpoint_s=None)
    bounded = replace(few_checkpoints, cpus=min(row.cpus or 1.0, 1e4), memory_gib=min(row.memory_gib or 1.0, 1e4))
    found = check_workload(workload_of_row(bounded, {ANY_GPU_MODEL: 8}))
    assert [problem for problem in found if problem.field != "jobs[0].resources.gpus"] == []


def test_a_virtual_cluster_always_maps_to_the_same_tenant() -> None:
    tenants = [TenantId(name) for name in ("a", "b", "c")]
    assert tenant_of_trace(TenantId("b"), tenants) == "b"
    names = [TenantId(f"vc{n}") for n in range(50)]
    mapped = [tenant_of_trace(name, tenants) for name in names]
    assert mapped == [tenant_of_trace(name, tenants) for name in names]
    assert set(mapped) == set(tenants)


def test_knows_the_largest_machines_of_a_fleet() -> None:
    assert greatest_gpus_per_machine(read_fleet(EXAMPLES / "fleet.yaml")) == {"any": 8, "A100": 8, "V100": 8}
