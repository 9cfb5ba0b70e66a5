"""Static demands of CPUs and memory by a real service: PostgreSQL, Ray, a process per tier, and training processes."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from domain.fleet import NO_GPU_MODEL, Cluster, Fleet, Machine, Rack, Region
from domain.identifiers import ClusterId, GpuModel, MachineId, RackId
from domain.sensitivity import SensitivityProfile
from domain.workload import WorkloadSpecification
from formats.scheduler_file import EstimatesSection
from services.configuration import Configuration
from services.database.embedded import EmbeddedLayout
from services.profiling.stored import keep_profiles
from tests.live.real_service import PATIENCE_REAL_S, RealService, real_service
from tests.live.real_workloads import CLOCK_SPEED, TWO_TENANTS, training
from tests.live.test_actions_on_ray import has
from tests.live.test_tuning import cpus
from tests.live.world import EAST, V100, WEST
from topmast import Event

pytestmark = pytest.mark.live

PROFILES = {
    "hungry": SensitivityProfile((1.0, 4.5, 8.0), (20.0,), ((0.2,), (1.0,), (2.0,))),
    "lean": SensitivityProfile((1.0,), (20.0,), ((1.0,),)),
}
AMOUNTS = {"hungry": (8.0, 20.0), "lean": (1.0, 20.0)}


def one_machine(name: str, model: GpuModel, gpus: int, cpus_there: float, memory_gib: float) -> Cluster:
    machine = Machine(MachineId(f"{name}-m0"), model, gpus, cpus_there, memory_gib)
    return Cluster(ClusterId(name), (Rack(RackId("r"), (machine,)),))


FLEET = Fleet(
    (
        Region(EAST, (one_machine("east-a", NO_GPU_MODEL, 0, 1.0, 1.0),)),
        Region(WEST, (one_machine("west-a", V100, 2, 9.0, 60.0),)),
    )
)


def trained(name: str, model: str, release: Path) -> WorkloadSpecification:
    wanted = training(name, release)
    (job,) = wanted.jobs
    resources = job.resources._replace(gpu_model=V100)
    return replace(wanted, jobs=(replace(job, resources=resources),), labels=(("model", model),))


def waits(workload: str) -> Callable[[Sequence[Event]], bool]:
    return lambda events: any((event.event, event.workload) == ("waiting", workload) for event in events)


def check_process(service: RealService, workload: str, model: str) -> None:
    """The process knows, and keeps to, what was decided."""
    process = service.until_task_process(workload)
    file = Path(psutil.Process(process).environ()["TOPMAST_TASK_FILE"])
    held = json.loads(file.read_text(encoding="utf-8"))
    assert (held["cpus"], held["memory_gib"]) == AMOUNTS[model]
    on_cpus = min(len(os.sched_getaffinity(0)), int(AMOUNTS[model][0]))
    deadline_s = time.monotonic() + PATIENCE_REAL_S
    while len(os.sched_getaffinity(process)) != on_cpus:
        assert time.monotonic() < deadline_s, f"it may run on {os.sched_getaffinity(process)}"
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("tuning", "first", "second"),
    [
        # As they were submitted.
        ("synergy_greedy", "lean", "hungry"),
        # Half of the GPUs is less than eight ninths of the CPUs.
        pytest.param("drf_packing", "lean", "hungry", marks=pytest.mark.nightly),
        # What is free is CPUs above all, and both are taken to have as much left to do for their size.
        pytest.param("tetris_packing", "hungry", "lean", marks=pytest.mark.nightly),
    ],
)
def test_processes_hold_what_is_best_for_them_and_start_in_the_order_of_the_mechanism(
    tmp_path: Path, tuning: str, first: str, second: str
) -> None:
    configuration = Configuration(tuning=tuning, estimates=EstimatesSection())
    with real_service(FLEET, TWO_TENANTS, CLOCK_SPEED, configuration) as service:
        keep_profiles(EmbeddedLayout.of(service.home).url(), PROFILES)
        (stays,) = service.submit([trained("stays", "lean", tmp_path / "stays")])
        (goes,) = service.submit([trained("goes", "lean", tmp_path / "goes")])
        for workload in (stays, goes):
            service.until(has("started", workload), "runs")
            check_process(service, workload, "lean")
        # The one that is to start last is submitted first, but where that alone decides.
        names: dict[str, str] = {}
        for model in (first, second) if tuning == "synergy_greedy" else (second, first):
            (names[model],) = service.submit([trained(model, model, tmp_path / model)])
            service.until(waits(names[model]), "waits")
        (tmp_path / "goes").touch()
        service.until(has("started", names[first]), "runs on the one GPU that is free")
        check_process(service, names[first], first)
        assert service.count("started") == 3
        (tmp_path / first).touch()
        service.until(has("started", names[second]), "runs after it")
        check_process(service, names[second], second)
        for name in ("stays", second):
            (tmp_path / name).touch()
        service.until_all_ended()
        started = {event.workload: cpus(event) for event in service.events if event.event == "started"}
        assert {started[names[model]][0] for model in names} == {8.0, 1.0}
        assert service.count("tuned", "evicted") == 0
        service.check()
