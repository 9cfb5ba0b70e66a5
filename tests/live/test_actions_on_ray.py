"""Running training processes are resized, retuned and migrated by a real service: PostgreSQL, Ray, a process per tier."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from domain.workload import WorkloadSpecification
from tests.live.real_service import PATIENCE_REAL_S, RealService, patiently, real_service
from tests.live.real_workloads import CLOCK_SPEED, SMALL_FLEET, TWO_TENANTS, training
from topmast import Event

pytestmark = pytest.mark.live


def elastic(release: Path) -> WorkloadSpecification:
    """One task, up to three; each trains until the file is there."""
    one = training("elastic", release)
    return replace(one, jobs=(replace(one.jobs[0], max_tasks=3),))


def has(kind: str, workload: str, attempt: int = 1, count: int = 1) -> Callable[[object], bool]:
    """Whether there are so many such events."""

    def condition(events: object) -> bool:
        assert isinstance(events, list)
        found = [e for e in events if (e.event, e.workload, e.attempt) == (kind, workload, attempt)]
        return len(found) >= count

    return condition


def until_processes(service: RealService, workload: str, count: int) -> list[int]:
    deadline_s = time.monotonic() + PATIENCE_REAL_S
    while len(processes := service.task_processes(workload)) != count:
        assert time.monotonic() < deadline_s, f"{workload} has the processes {processes}, not {count}"
        time.sleep(0.05)
    return processes


def until_affinity(process: int, count: int) -> None:
    deadline_s = time.monotonic() + PATIENCE_REAL_S
    while len(os.sched_getaffinity(process)) != count:
        assert time.monotonic() < deadline_s, f"it may run on {os.sched_getaffinity(process)}"
        time.sleep(0.05)


def test_training_grows_shrinks_and_is_retuned_while_it_runs(tmp_path: Path) -> None:
    release = tmp_path / "release"
    with real_service(SMALL_FLEET, TWO_TENANTS, CLOCK_SPEED) as service:
        (workload,) = service.submit([elastic(release)])
        first = service.until_task_process(workload)
        service.until_checkpoint(workload)
        patiently(lambda: service.client.resize(workload, "train", 3))
        service.until(has("resized", workload), "grown")
        assert first in until_processes(service, workload, 3)
        patiently(lambda: service.client.resize(workload, "train", 1))
        service.until(has("resized", workload, count=2), "shrunk")
        assert service.task_processes(workload) == [first]
        patiently(lambda: service.client.retune(workload, "train", cpus=1.0, memory_gib=2.0))
        service.until(has("tuned", workload), "retuned")
        until_affinity(first, 1)
        patiently(lambda: service.client.retune(workload, "train", cpus=64.0))
        service.until(has("tuned", workload, count=2), "retuned again")
        until_affinity(first, len(os.sched_getaffinity(0)))
        release.touch()
        service.until_all_ended()
        report = service.check()
        assert (report.events_by_kind["resized"], report.events_by_kind["tuned"]) == (2, 2)


@pytest.mark.parametrize(
    "killed", [None, ("regional", "east"), ("cluster", "east-a")], ids=["whole", "region", "cluster"]
)
def test_training_migrates_with_its_work_whatever_dies_meanwhile(
    tmp_path: Path, killed: tuple[str, str] | None
) -> None:
    release = tmp_path / "release"
    with real_service(SMALL_FLEET, TWO_TENANTS, CLOCK_SPEED) as service:
        (workload,) = service.submit([training("moving", release)])
        service.until_task_process(workload)
        saved = service.until_checkpoint(workload).checkpoint_progress
        patiently(lambda: service.client.migrate(workload))
        if killed is not None:
            service.kill(killed)
        service.until(has("started", workload, attempt=2), "goes on")
        service.until_task_process(workload)
        started = next(e for e in service.events if (e.event, e.attempt) == ("started", 2))
        assert float(str(started.details["progress"])) >= saved
        assert _machine(started) != _machine(next(e for e in service.events if e.event == "started"))
        assert service.count("ranked") == 1
        release.touch()
        service.until_all_ended()
        report = service.check()
        assert report.attempts == 2


def _machine(event: Event) -> str:
    placement = event.details["placement"]
    assert isinstance(placement, list)
    (task,) = placement
    assert isinstance(task, dict)
    return str(task["machine"])
