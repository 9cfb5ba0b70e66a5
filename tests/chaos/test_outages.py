"""Database and schedulers are away, for as long as one says: what runs goes on, and what ends meanwhile is told afterwards, once and in order."""

from __future__ import annotations

import os
import signal
import time

import pytest

from domain.identifiers import JobName
from domain.resources import TaskResources
from domain.workload import Command, JobSpecification, WorkloadSpecification
from services.runtime.tier_place import TierProcesses
from tests.chaos.violence import no_postgres
from tests.live.real_service import RealService, Tier, real_service
from tests.live.real_workloads import SMALL_FLEET, TWO_TENANTS, training
from tests.live.running import is_end
from tests.live.world import A100, RANKING

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(0)]
"""Whatever it waits for has an end of its own; how long the outage is, somebody says."""

_BEGUN_REAL_S = 10.0
"""Of what ends in the outage, before it."""


def test_what_runs_goes_on_and_what_ends_is_told_in_order(request: pytest.FixtureRequest) -> None:
    outage_s = float(request.config.getoption("outage_s"))
    with real_service(SMALL_FLEET, TWO_TENANTS, 1.0, tiers=TierProcesses.SEPARATE) as service:
        release = service.home / "release"
        (going_on,) = service.submit([training("goes-on", release)])
        service.until_checkpoint(going_on)
        process = service.until_task_process(going_on)
        failing, completing = service.submit(
            [
                _command("fails", f"sleep {_BEGUN_REAL_S + 0.3 * outage_s}; exit 3"),
                _command("completes", f"sleep {_BEGUN_REAL_S + 0.6 * outage_s}"),
            ]
        )
        for name in (failing, completing):
            service.until_workload(name, lambda now: now.state == "RUNNING", "runs")
        began_s = time.time()
        _without_schedulers_and_database(service, outage_s)
        ended_s = time.time()
        assert service.task_processes(going_on) == [process]
        service.until_progress(going_on, service.workload(going_on).progress + 1)
        assert len(service.workload(going_on).attempts) == 1
        release.touch()
        service.until_all_ended()
        ends = [(str(event.workload), event.event) for event in service.events if is_end(event)]
        assert ends == [(failing, "failed"), (completing, "completed"), (going_on, "completed")]
        failed_s, completed_s = (service.workload(name).attempts[-1].ended_s for name in (failing, completing))
        assert failed_s is not None
        assert completed_s is not None
        assert began_s < failed_s < completed_s < ended_s, "when they ended, and not when that was recorded"
        assert service.count("cluster_reconciled") >= 1
        service.check()


def _without_schedulers_and_database(service: RealService, outage_s: float) -> None:
    """What the host starts again of them meanwhile can do nothing."""
    schedulers: list[Tier] = [("global", ""), *(("regional", region.region) for region in SMALL_FLEET.regions)]
    processes = [service.until_held(tier) for tier in schedulers]
    with no_postgres(service):
        for process_id in processes:
            os.kill(process_id, signal.SIGKILL)
        time.sleep(outage_s)  # the length of the outage is the matter here


def _command(name: str, line: str) -> WorkloadSpecification:
    job = JobSpecification(JobName("main"), 1, TaskResources(gpus=1, gpu_model=A100), Command(("sh", "-c", line)))
    return WorkloadSpecification(name, RANKING, (job,))
