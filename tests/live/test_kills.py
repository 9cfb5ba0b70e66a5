"""The real thing, killed: each kind of process of a running service in turn, with kill -9."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from domain.fleet import Fleet, Region
from domain.identifiers import ANY_GPU_MODEL, JobName
from domain.resources import Quota, TaskResources
from domain.tenant import Tenant
from domain.workload import Emulated, JobSpecification, PythonCallable, WorkloadSpecification
from tests.live.patient_training import RELEASE_VARIABLE
from tests.live.real_service import RealService, Tier, real_service
from tests.live.world import A100, EAST, RANKING, RESEARCH, V100, WEST, gpu_cluster, one_job

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]

_CLOCK_SPEED = 60.0
_EMULATED = 32
_FLEET = Fleet((Region(EAST, (gpu_cluster("east-a", A100, 2),)), Region(WEST, (gpu_cluster("west-a", V100, 2),))))
_TENANTS = (Tenant(RANKING, 1, Quota.of({ANY_GPU_MODEL: 16})), Tenant(RESEARCH, 3, Quota.of({ANY_GPU_MODEL: 16})))
_KILLED: tuple[Tier, ...] = (("global", ""), ("regional", "east"), ("cluster", "east-a"))
_HAPPENINGS = ("started", "completed")


def training(name: str, release: Path, *, gpus: int = 1, **environment: str) -> WorkloadSpecification:
    """A real process in the east that trains until the file is there. Nobody may preempt it."""
    job = JobSpecification(
        JobName("train"),
        1,
        TaskResources(gpus=gpus, gpu_model=A100),
        PythonCallable("tests.live.patient_training:train"),
        environment=((RELEASE_VARIABLE, str(release)), *environment.items()),
    )
    return WorkloadSpecification(name, RANKING, (job,))


def test_kill_9_of_everything_in_turn(generator: np.random.Generator) -> None:
    with real_service(_FLEET, _TENANTS, _CLOCK_SPEED) as service:
        release = service.home / "release"
        trainings = service.submit([training(f"training-{number}", release) for number in range(2)])
        processes = {name: _process_that_has_saved(service, name) for name in trainings}
        service.submit(_emulated(generator))
        for tier in _KILLED:
            service.until_more(2, _HAPPENINGS)
            former = service.kill(tier)
            service.until_more(1, _HAPPENINGS)
            service.until_replaced(tier, former)
        former = service.kill_postgres()
        service.until_postgres_replaced(former)
        service.until_more(2, _HAPPENINGS)
        # Nobody has stopped or restarted what ran; and it can still be told to whom it reports.
        for name, process_id in processes.items():
            assert service.task_processes(name) == [process_id]
            service.until_progress(name, service.workload(name).progress + 1)
        release.touch()
        service.until_all_ended()
        report = service.check()
        assert report.events_by_kind["completed"] == _EMULATED + len(trainings)
        assert report.events_by_kind.get("failed", 0) == 0
        for name in trainings:
            assert [attempt.attempt for attempt in service.workload(name).attempts] == [1]


def _process_that_has_saved(service: RealService, name: str) -> int:
    service.until_checkpoint(name)
    (process_id,) = service.task_processes(name)
    return process_id


def _emulated(rng: np.random.Generator) -> list[WorkloadSpecification]:
    return [
        one_job(
            f"emulated-{number}",
            (RANKING, RESEARCH)[number % 2],
            Emulated(float(rng.uniform(120.0, 360.0)), 60.0),
            gpus=int(rng.integers(1, 9)),
        )
        for number in range(_EMULATED)
    ]
