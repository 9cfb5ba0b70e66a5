"""Machines that a running service is given are used at once: PostgreSQL, Ray, a process per tier."""

from __future__ import annotations

from pathlib import Path

import pytest

from domain.fleet import Fleet, Region
from domain.workload import Emulated
from services.wire.fleets import fleet_to_proto
from tests.live.real_service import patiently, real_service
from tests.live.real_workloads import CLOCK_SPEED, TWO_TENANTS, training
from tests.live.world import A100, EAST, RANKING, gpu_cluster, one_job

pytestmark = pytest.mark.live

_ONE_MACHINE = Fleet((Region(EAST, (gpu_cluster("east-a", A100, 1),)),))
_TWO_MACHINES = Fleet((Region(EAST, (gpu_cluster("east-a", A100, 2),)),))


def test_processes_and_emulated_work_start_on_a_machine_that_was_added(tmp_path: Path) -> None:
    release = tmp_path / "release"
    with real_service(_ONE_MACHINE, TWO_TENANTS, CLOCK_SPEED) as service:
        (filler,) = service.submit([one_job("filler", RANKING, Emulated(1e6), gpus=8)])
        service.until(lambda events: any(e.event == "started" for e in events), "the first machine is full")
        trained, emulated = service.submit(
            [training("trained", release), one_job("emulated", RANKING, Emulated(60.0), gpus=7)]
        )
        service.until(lambda events: sum(e.event == "waiting" for e in events) >= 2, "both wait")
        service.fleet = _TWO_MACHINES
        patiently(lambda: service.client.apply_fleet(fleet_to_proto(_TWO_MACHINES, ())))
        service.until_task_process(trained)
        service.until(
            lambda events: any((e.event, e.workload) == ("completed", emulated) for e in events),
            "emulated work is done on the new machine",
        )
        release.touch()
        patiently(lambda: service.client.cancel(filler))
        service.until_all_ended()
        service.check()
