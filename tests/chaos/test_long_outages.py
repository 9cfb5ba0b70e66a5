"""Ten seconds without a database: every tier says so, nothing that runs is stopped, and then everything goes on."""

from __future__ import annotations

import time
from typing import Any

import grpc
import numpy as np
import psutil
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.database.embedded import EmbeddedLayout
from services.database.server_processes import find_server_processes
from services.runtime.tier_place import TierProcesses
from tests.chaos.violence import no_postgres
from tests.live.real_service import PATIENCE_REAL_S, RealService, real_service
from tests.live.real_workloads import CLOCK_SPEED, SMALL_FLEET, TWO_TENANTS, emulated, training
from topmast import Client, UnavailableError

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

_EMULATED = 40
_OUTAGE_REAL_S = 10.0
_LOOK_INTERVAL_REAL_S = 0.1


def test_ten_seconds_without_postgres(generator: np.random.Generator) -> None:
    with real_service(SMALL_FLEET, TWO_TENANTS, CLOCK_SPEED, tiers=TierProcesses.SEPARATE) as service:
        release = service.home / "release"
        trainings = service.submit([training(f"training-{number}", release) for number in range(2)])
        for name in trainings:
            service.until_checkpoint(name)
        processes = {name: service.until_task_process(name) for name in trainings}
        service.submit(emulated(_EMULATED, generator, shortest_s=300.0, longest_s=900.0))
        service.until_more(4, ("started",))
        tiers = _tier_processes(service)
        with no_postgres(service):
            _until_health(service, serving=False)
            with Client(service.client.address, attempts=1) as hasty, pytest.raises(UnavailableError):
                hasty.status()
            time.sleep(_OUTAGE_REAL_S)  # the length of the outage is the matter here
        _until_health(service, serving=True)
        _check_that_all_went_on(service, processes, tiers)
        release.touch()
        service.until_all_ended()
        report = service.check()
        assert report.events_by_kind["completed"] == _EMULATED + len(trainings)
        assert report.events_by_kind.get("failed", 0) == 0


def test_ten_seconds_with_a_postgres_that_does_not_answer(generator: np.random.Generator) -> None:
    with real_service(SMALL_FLEET, TWO_TENANTS, CLOCK_SPEED, tiers=TierProcesses.SEPARATE) as service:
        release = service.home / "release"
        trainings = service.submit([training(f"training-{number}", release) for number in range(2)])
        for name in trainings:
            service.until_checkpoint(name)
        processes = {name: service.until_task_process(name) for name in trainings}
        service.submit(emulated(_EMULATED, generator, shortest_s=300.0, longest_s=900.0))
        service.until_more(4, ("started",))
        tiers = _tier_processes(service)
        servers = find_server_processes(EmbeddedLayout.of(service.home).data)
        for server in servers:
            server.suspend()
        try:
            time.sleep(_OUTAGE_REAL_S)
        finally:
            for server in servers:
                server.resume()
        _until_health(service, serving=True)
        _check_that_all_went_on(service, processes, tiers)
        release.touch()
        service.until_all_ended()
        report = service.check()
        assert report.events_by_kind["completed"] == _EMULATED + len(trainings)
        assert report.events_by_kind.get("failed", 0) == 0


def _check_that_all_went_on(service: RealService, processes: dict[str, int], tiers: dict[str, int]) -> None:
    for name, process in processes.items():
        assert service.task_processes(name) == [process]
        service.until_progress(name, service.workload(name).progress + 1)
        assert len(service.workload(name).attempts) == 1
    assert all(psutil.pid_exists(process) for process in tiers.values())
    service.until(lambda _: _tier_processes(service) == tiers, "every tier has its lease again, in the same process")


def _tier_processes(service: RealService) -> dict[str, int]:
    return {f"{tier.tier} {tier.name}": tier.process_id for tier in service.client.status().tiers if tier.alive}


def _until_health(service: RealService, *, serving: bool) -> None:
    """Waits until the global scheduler says so of itself."""
    wanted = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
    deadline_s = time.monotonic() + PATIENCE_REAL_S
    with grpc.insecure_channel(service.client.address) as channel:
        health: Any = health_pb2_grpc.HealthStub(channel)
        while health.Check(health_pb2.HealthCheckRequest()).status != wanted:
            assert time.monotonic() < deadline_s, f"serving is not {serving}"
            time.sleep(_LOOK_INTERVAL_REAL_S)
