"""Elastic training loses processes: a real service with PostgreSQL, Ray and a process per tier."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import pytest

from domain.workload import RetryPolicy
from services.configuration import Configuration
from tests.live.real_service import patiently, real_service
from tests.live.real_workloads import CLOCK_SPEED, SMALL_FLEET, TWO_TENANTS
from tests.live.test_actions_on_ray import (
    data_parallel,
    has,
    losses,
    task_process,
    until_joined,
    until_logged,
    until_processes,
)

pytestmark = pytest.mark.live

WAIT_S, MOST_WAIT_S = 120.0, 240.0
KILLS = 4


@pytest.mark.nightly
def test_base_and_flexible_tasks_killed_at_once_are_one_loss() -> None:
    with real_service(SMALL_FLEET, TWO_TENANTS, CLOCK_SPEED) as service:
        (workload,) = service.submit([data_parallel()])
        service.until(has("started", workload), "runs")
        patiently(lambda: service.client.resize(workload, "train", 3))
        until_logged(service, workload, "tasks 3")
        before = losses(until_logged(service, workload, "loss"))
        for process in until_processes(service, workload, 3):
            os.kill(process, signal.SIGKILL)
        service.until(has("started", workload, attempt=2), "starts again")
        second = next(e for e in service.events if (e.event, e.attempt) == ("started", 2))
        assert float(str(second.details["progress"])) > 0
        until_processes(service, workload, 1)
        patiently(lambda: service.client.resize(workload, "train", 2))
        service.until(has("resized", workload, attempt=2), "grows as before")
        until_processes(service, workload, 2)
        assert losses(until_logged(service, workload, "tasks 2"))[-1] < before[0]
        patiently(lambda: service.client.cancel(workload))
        service.until_all_ended()
        ends = [(e.event, e.attempt) for e in service.events if e.event in {"failed", "evicted"}]
        assert ends in ([("failed", 1)], [("evicted", 1)])
        service.check()


@pytest.mark.nightly
def test_a_flexible_task_that_is_killed_again_and_again_comes_back_ever_later() -> None:
    wanted = replace(data_parallel(), retry=RetryPolicy(1, WAIT_S, MOST_WAIT_S))
    elastic = replace(wanted, jobs=(replace(wanted.jobs[0], max_tasks=2),))
    with real_service(SMALL_FLEET, TWO_TENANTS, CLOCK_SPEED, Configuration(elastic="lyra", round_s=30.0)) as service:
        (workload,) = service.submit([elastic])
        for number in range(KILLS):
            service.until(has("resized", workload, count=2 * number + 1), "has grown")
            until_joined(service, workload, 2 * number + 2)
            os.kill(task_process(service, workload, 1), signal.SIGKILL)
            service.until(has("resized", workload, count=2 * number + 2), "goes on without it")
        assert service.count("evicting", "failed", "evicted") == 0
        patiently(lambda: service.client.cancel(workload))
        service.until_all_ended()
        resized = [event for event in service.events if event.event == "resized"]
        grown, shrunk = resized[0::2], resized[1::2]
        assert [event.details.get("cause") for event in shrunk] == ["task_lost"] * KILLS
        waited_s = [later.t - earlier.t for earlier, later in zip(shrunk, grown[1:], strict=False)]
        assert len(waited_s) >= KILLS - 1
        for times, waited in enumerate(waited_s):
            # It counts from the report of the loss, a moment before the resize is carried out.
            assert waited >= 0.9 * min(MOST_WAIT_S, WAIT_S * 2.0**times), waited_s
        service.check()
