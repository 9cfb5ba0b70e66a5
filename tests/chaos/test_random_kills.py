"""Rounds of violence, drawn at random: whatever dies, everything goes on, and the log tells a story without a fault."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from domain.fleet import Fleet, Region
from services.runtime.tier_place import TierProcesses
from tests.chaos.violence import kill_runner, kill_task, stopped
from tests.live.real_service import RealService, Tier, real_service
from tests.live.real_workloads import CLOCK_SPEED, TWO_TENANTS, emulated, training
from tests.live.world import A100, EAST, V100, WEST, cpu_cluster, gpu_cluster

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

_ROUNDS = 8
_AT_ONCE = 2
_EMULATED = 70
_TRAININGS = 3
_PAUSE_REAL_S = 5.0
"""Longer than a lease."""

_FLEET = Fleet(
    (
        Region(EAST, (gpu_cluster("east-a", A100, 2), cpu_cluster("east-b", 1))),
        Region(WEST, (gpu_cluster("west-a", V100, 2),)),
    )
)
_TIERS: tuple[Tier, ...] = (
    ("global", ""),
    ("regional", "east"),
    ("regional", "west"),
    ("cluster", "east-a"),
    ("cluster", "east-b"),
    ("cluster", "west-a"),
)
_RETRIES = _ROUNDS * _AT_ONCE

Recovery = Callable[[], None]
"""Waits until the harm is repaired."""


def test_never_does_random_violence_break_a_promise(generator: np.random.Generator) -> None:
    with real_service(_FLEET, TWO_TENANTS, CLOCK_SPEED, tiers=TierProcesses.SEPARATE) as service:
        release = service.home / "release"
        trainings = service.submit(
            [training(f"training-{number}", release, retries=_RETRIES) for number in range(_TRAININGS)]
        )
        for name in trainings:
            service.until_checkpoint(name)
        service.submit(emulated(_EMULATED, generator, shortest_s=300.0, longest_s=900.0))
        for number in range(_ROUNDS):
            service.until_more(1, ("started", "completed"))
            harms = _draw(service, trainings, generator)
            recoveries = []
            for name, harm in harms.items():
                print(f"round {number}: {name}")
                recoveries.append(harm())
            for recover in recoveries:
                recover()
        release.touch()
        service.until_all_ended()
        report = service.check()
        assert report.events_by_kind["completed"] == _EMULATED + _TRAININGS


def _draw(service: RealService, trainings: list[str], rng: np.random.Generator) -> dict[str, Callable[[], Recovery]]:
    """Some different harms, to be done at once."""
    numbered = list(enumerate(trainings))
    harms: dict[str, Callable[[], Recovery]] = {
        **{f"kill {' '.join(tier)}": partial(_kill_tier, service, tier) for tier in _TIERS},
        "kill postgres": partial(_kill_postgres, service),
        "pause regional east": partial(_pause, service, ("regional", "east")),
        "pause cluster east-a": partial(_pause, service, ("cluster", "east-a")),
        **{f"kill the runner of {i}": partial(_kill_one, service, name, kill_runner) for i, name in numbered},
        **{f"kill the process of {i}": partial(_kill_one, service, name, kill_task) for i, name in numbered},
    }
    names = [str(name) for name in rng.choice(sorted(harms), size=_AT_ONCE, replace=False)]
    if len({name.rsplit(" ", 1)[-1] for name in names}) < _AT_ONCE:
        names = names[:1]  # one cannot be killed twice
    return {name: harms[name] for name in names}


def _kill_tier(service: RealService, tier: Tier) -> Recovery:
    former = service.kill(tier)
    return partial(_until_held, service, tier, former)


def _until_held(service: RealService, tier: Tier, former: int | None) -> None:
    service.until_held(tier, but_not_by=former)


def _kill_postgres(service: RealService) -> Recovery:
    return partial(service.until_postgres_replaced, service.kill_postgres())


def _pause(service: RealService, tier: Tier) -> Recovery:
    """Its lease ends while it does nothing; there is no standby, so that it gets it back."""
    with stopped(service.until_held(tier)):
        time.sleep(_PAUSE_REAL_S)
    return partial(_until_held, service, tier, None)


def _kill_one(service: RealService, name: str, kill: Callable[[RealService, str], None]) -> Recovery:
    attempts = len(service.workload(name).attempts)
    kill(service, name)

    def recover() -> None:
        service.until_workload(
            name, lambda now: len(now.attempts) > attempts and now.state == "RUNNING", "is tried again"
        )
        service.until_task_process(name)

    return recover
