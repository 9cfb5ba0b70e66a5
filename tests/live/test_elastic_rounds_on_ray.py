"""Elastic training grows and shrinks by itself in a real service: PostgreSQL, Ray, a process per tier (Lyra §5.2, §6)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from domain.fleet import Fleet, Region
from domain.workload import Emulated
from services.configuration import Configuration
from services.runtime.tier_place import TierProcesses
from tests.live.real_service import patiently, real_service
from tests.live.real_workloads import CLOCK_SPEED, TWO_TENANTS
from tests.live.test_actions_on_ray import data_parallel, has, losses, until_logged, until_processes
from tests.live.world import A100, EAST, RANKING, gpu_cluster, one_job

pytestmark = pytest.mark.live

ONE_MACHINE = Fleet((Region(EAST, (gpu_cluster("east-a", A100, 1),)),))
ROUNDS = Configuration(elastic="lyra", round_s=60.0)


@pytest.mark.nightly
def test_training_grows_into_an_idle_region_and_makes_room_for_others() -> None:
    wanted = data_parallel()
    job = wanted.jobs[0]
    # Four tasks of two GPUs fill the machine.
    elastic = replace(wanted, jobs=(replace(job, resources=job.resources._replace(gpus=2), max_tasks=4),))
    with real_service(ONE_MACHINE, TWO_TENANTS, CLOCK_SPEED, ROUNDS, tiers=TierProcesses.SEPARATE) as service:
        (workload,) = service.submit([elastic])
        service.until(has("started", workload), "runs")
        service.until(has("resized", workload), "grown by itself")
        until_processes(service, workload, 4)
        small = losses(until_logged(service, workload, "tasks 4"))
        service.kill(("regional", "east"))
        (other,) = service.submit([one_job("other", RANKING, Emulated(900.0, 60.0), gpus=4, model=A100)])
        service.until(has("started", other), "has got a place")
        service.until(has("resized", workload, count=2), "made room")
        until_logged(service, workload, "tasks 2")
        assert service.count("evicting") == 0
        service.until(has("completed", other), "is over")
        service.until(has("resized", workload, count=3), "grown again")
        until_processes(service, workload, 4)
        after = losses(until_logged(service, workload, "tasks 4"))
        assert len(after) > len(small)
        assert after[-1] < small[0] / 2
        patiently(lambda: service.client.cancel(workload))
        service.until_all_ended()
        report = service.check()
        assert report.attempts == 2
        assert report.events_by_kind["resized"] >= 3
