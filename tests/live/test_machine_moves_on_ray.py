"""Machines change their cluster under real processes, and under kill -9: PostgreSQL, Ray, a process per tier."""

from __future__ import annotations

from pathlib import Path

import pytest

from domain.fleet import Fleet, Region
from domain.workload import Emulated
from services.runtime.tier_place import TierProcesses
from tests.live.real_service import patiently, real_service
from tests.live.real_workloads import CLOCK_SPEED, TWO_TENANTS, training
from tests.live.world import A100, EAST, RANKING, gpu_cluster, one_job

pytestmark = pytest.mark.live

_FLEET = Fleet((Region(EAST, (gpu_cluster("east-a", A100, 3), gpu_cluster("east-b", A100, 1))),))
_REQUESTS = """
requests:
- {cluster: east-a, capacity: [{gpu_model: A100, machines: 1}]}
- {cluster: east-b, capacity: [{gpu_model: A100, machines: 3}]}
"""


@pytest.mark.nightly
def test_machines_move_beside_running_processes_and_through_the_death_of_the_region(tmp_path: Path) -> None:
    release = tmp_path / "release"
    with real_service(_FLEET, TWO_TENANTS, CLOCK_SPEED, tiers=TierProcesses.SEPARATE) as service:
        (trained,) = service.submit([training("trained", release)])
        process = service.until_task_process(trained)
        patiently(lambda: service.client.apply_machine_requests(_REQUESTS))
        service.until(lambda events: any(e.event == "machine_draining" for e in events), "a machine drains")
        former = service.kill(("regional", "east"))
        service.until_held(("regional", "east"), but_not_by=former)
        service.until(lambda events: sum(e.event == "machine_moved" for e in events) == 2, "two machines have moved")
        # Three machines of one cluster, of which it had one: only there is room for this.
        (gang,) = service.submit([one_job("gang", RANKING, Emulated(60.0), gpus=8, tasks=2, model=A100)])
        service.until(lambda events: any((e.event, e.workload) == ("completed", gang) for e in events), "they are used")
        assert service.task_processes(trained) == [process], "what runs elsewhere was not touched"
        release.touch()
        service.until_all_ended()
        service.check()
