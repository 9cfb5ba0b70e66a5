"""A plan of tables is made by a Ray task, and a task that dies is a sentence and blocks no later plan."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from data_placement.warehouse_generator import generate_warehouse
from domain.fleet import Fleet, Region
from domain.identifiers import RegionId
from formats.warehouse_folder import write_warehouse
from tests.live.real_service import PATIENCE_REAL_S, RealService, real_service
from tests.live.real_workloads import TWO_TENANTS
from tests.live.world import A100, gpu_cluster
from topmast.warehouses import PlacementChoices, PlacementPlan

pytestmark = pytest.mark.live

_FLEET = Fleet(
    tuple(Region(RegionId(f"region0{place}"), (gpu_cluster(f"c{place}", A100, 1),)) for place in range(2)),
)


@pytest.mark.nightly
def test_a_plan_is_made_by_a_ray_task(tmp_path: Path) -> None:
    write_warehouse(tmp_path / "warehouse", generate_warehouse(300, 2, np.random.default_rng(1)))
    with real_service(_FLEET, TWO_TENANTS, 1.0) as service:
        service.client.data.import_folder(tmp_path / "warehouse")
        patient = PlacementChoices(solver="late_acceptance", time_limit_s=600.0)
        steps = service.client.data.make_plan(patient)
        next(iter(steps))
        task = _planning_task(service)
        task.kill()
        (failed,) = [step.result for step in steps if step.result is not None]
        assert failed.state == "failed"
        assert failed.problem == "the process that made it ended without a result; the log of the service may say why"
        plan = _plan(service, PlacementChoices(solver="hill_climbing"))
        assert (plan.state, plan.problem) == ("ready", "")
        assert plan.figures["tables"] == 300
        assert plan.all_moves > 0


def _plan(service: RealService, choices: PlacementChoices) -> PlacementPlan:
    (plan,) = [step.result for step in service.client.data.make_plan(choices) if step.result is not None]
    return plan


def _planning_task(service: RealService) -> psutil.Process:
    """The process of the Ray task, as soon as there is one."""
    deadline_s = time.monotonic() + PATIENCE_REAL_S
    while True:
        for process in service.processes():
            try:
                if any(word.startswith("ray::data-plan-") for word in process.cmdline()):
                    return process
            except psutil.NoSuchProcess:
                continue
        assert time.monotonic() < deadline_s, "no task of Ray makes the plan"
        time.sleep(0.05)
