"""Running training processes are resized, retuned and migrated by a real service: PostgreSQL, Ray, a process per tier."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from domain.identifiers import JobName
from domain.resources import TaskResources
from domain.workload import Command, JobSpecification, RetryPolicy, WorkloadSpecification
from services.runtime.tier_place import TierProcesses
from tests.live.real_service import PATIENCE_REAL_S, RealService, patiently, real_service
from tests.live.real_workloads import CLOCK_SPEED, SMALL_FLEET, TWO_TENANTS, training
from tests.live.world import A100, RANKING
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


def oom_score(process: int) -> int:
    return int(Path(f"/proc/{process}/oom_score_adj").read_text())


def test_training_grows_shrinks_and_is_retuned_while_it_runs(tmp_path: Path) -> None:
    release = tmp_path / "release"
    with real_service(SMALL_FLEET, TWO_TENANTS, CLOCK_SPEED) as service:
        (workload,) = service.submit([elastic(release)])
        first = service.until_task_process(workload)
        # Should the machine run out of memory, the kernel ends the task before any tier.
        tiers = {tier.process_id for tier in patiently(service.client.status).tiers}
        assert tiers
        assert max(map(oom_score, tiers)) < oom_score(first)
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
    "killed",
    [
        pytest.param(None, id="whole"),
        pytest.param(("regional", "east"), id="region", marks=pytest.mark.nightly),
        pytest.param(("cluster", "east-a"), id="cluster", marks=pytest.mark.nightly),
    ],
)
def test_training_migrates_with_its_work_whatever_dies_meanwhile(
    tmp_path: Path, killed: tuple[str, str] | None
) -> None:
    release = tmp_path / "release"
    with real_service(SMALL_FLEET, TWO_TENANTS, CLOCK_SPEED, tiers=TierProcesses.SEPARATE) as service:
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


def data_parallel() -> WorkloadSpecification:
    """The example, on one task, up to three."""
    example = Path(__file__).parents[2] / "examples" / "training" / "numpy_data_parallel.py"
    options = ("--steps", "100000", "--seconds-per-step", "0.02", "--print-every", "10")
    job = JobSpecification(
        JobName("train"),
        1,
        TaskResources(gpus=1, gpu_model=A100),
        Command(("python", str(example), *options)),
        max_tasks=3,
    )
    return WorkloadSpecification("parallel", RANKING, (job,), retry=RetryPolicy(1, 10.0, 10.0))


def until_logged(service: RealService, workload: str, words: str) -> str:
    """Waits until rank 0 has printed that; returns all that it has printed."""
    deadline_s = time.monotonic() + PATIENCE_REAL_S
    while words not in (text := _log(service, workload)):
        assert time.monotonic() < deadline_s, f"{words}: {text}"
        time.sleep(0.1)
    return text


def _log(service: RealService, workload: str) -> str:
    chunks = patiently(lambda: tuple(service.client.logs(workload)))
    return b"".join(chunk.chunk for chunk in chunks if chunk.task == 0).decode()


def losses(log: str) -> list[float]:
    return [float(line.split()[3]) for line in log.splitlines() if " loss " in line]


def task_process(service: RealService, workload: str, task: int) -> int:
    (process,) = [
        process
        for process in service.task_processes(workload)
        if psutil.Process(process).environ().get("TOPMAST_TASK") == str(task)
    ]
    return process


def test_the_loss_goes_on_when_a_job_is_resized_and_a_flexible_task_is_killed() -> None:
    with real_service(SMALL_FLEET, TWO_TENANTS, CLOCK_SPEED) as service:
        (workload,) = service.submit([data_parallel()])
        service.until(has("started", workload), "runs")
        until_logged(service, workload, "tasks 1")
        patiently(lambda: service.client.resize(workload, "train", 3))
        until_logged(service, workload, "tasks 3")
        patiently(lambda: service.client.resize(workload, "train", 2))
        before = losses(until_logged(service, workload, "tasks 2"))
        service.until(has("resized", workload, count=2), "shrunk")
        until_processes(service, workload, 2)
        os.kill(task_process(service, workload, 1), signal.SIGKILL)
        service.until(has("resized", workload, count=3), "goes on without it")
        lost = [e for e in service.events if e.event == "resized"][-1]
        assert lost.details["cause"] == "task_lost"
        assert lost.details["lost"] == [{"job": "train", "task": 1}]
        assert len(str(lost.details["placement"]).split("'task'")) == 2, "its base task is left"
        assert service.until_task_process(workload) == task_process(service, workload, 0)
        text = until_logged(service, workload, "lost a task")
        joined = until_joined(service, workload, 4)
        assert joined[-1].endswith("rank 0 of 1")
        assert step_of(joined[-1]) >= step_of(joined[-2]), "nothing is done twice"
        patiently(lambda: service.client.resize(workload, "train", 2))
        service.until(has("resized", workload, count=4), "grown again")
        until_joined(service, workload, 5)
        after = losses(until_logged(service, workload, "tasks 2"))
        assert max(after[len(losses(text)) :]) < before[0] / 2
        assert service.count("evicting", "failed") == 0
        # Of its base task the attempt needs every one.
        os.kill(task_process(service, workload, 0), signal.SIGKILL)
        service.until(has("started", workload, attempt=2), "starts again")
        second = next(e for e in service.events if (e.event, e.attempt) == ("started", 2))
        assert float(str(second.details["progress"])) > 0
        patiently(lambda: service.client.cancel(workload))
        service.until_all_ended()
        service.check()


def until_joined(service: RealService, workload: str, count: int) -> list[str]:
    """Waits until rank 0 has met the others so many times; returns what it said of that."""
    deadline_s = time.monotonic() + PATIENCE_REAL_S
    while len(joined := [line for line in _log(service, workload).splitlines() if line.startswith("joined")]) < count:
        assert time.monotonic() < deadline_s, _log(service, workload)
        time.sleep(0.1)
    return joined


def step_of(joined: str) -> int:
    return int(joined.split()[3])


def _machine(event: Event) -> str:
    placement = event.details["placement"]
    assert isinstance(placement, list)
    (task,) = placement
    assert isinstance(task, dict)
    return str(task["machine"])
