"""The real thing, killed: each kind of process of a running service in turn, with kill -9."""

from __future__ import annotations

import numpy as np
import pytest

from services.runtime.tier_place import TierProcesses
from tests.live.real_service import RealService, Tier, real_service
from tests.live.real_workloads import CLOCK_SPEED, SMALL_FLEET, TWO_TENANTS, emulated, training

pytestmark = [pytest.mark.live, pytest.mark.chaos]

_EMULATED = 32
_KILLED: tuple[Tier, ...] = (("global", ""), ("regional", "east"), ("cluster", "east-a"))
_HAPPENINGS = ("started", "completed")


def test_kill_9_of_everything_in_turn(generator: np.random.Generator) -> None:
    with real_service(SMALL_FLEET, TWO_TENANTS, CLOCK_SPEED, tiers=TierProcesses.SEPARATE) as service:
        release = service.home / "release"
        trainings = service.submit([training(f"training-{number}", release) for number in range(2)])
        processes = {name: _process_that_has_saved(service, name) for name in trainings}
        service.submit(emulated(_EMULATED, generator))
        for tier in _KILLED:
            service.until_more(2, _HAPPENINGS)
            former = service.kill(tier)
            service.until_more(1, _HAPPENINGS)
            service.until_held(tier, but_not_by=former)
        former = service.kill_postgres()
        service.until_postgres_replaced(former)
        service.until_more(2, _HAPPENINGS)
        # What ran was neither stopped nor restarted; and it is still heard.
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
