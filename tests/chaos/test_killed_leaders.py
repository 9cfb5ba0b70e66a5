"""`topmast up --standby`: the process of all leading tiers is killed, and the other one goes on with what runs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest

from services.runtime.tier_place import TierProcesses
from tests.live.real_service import RealService, real_service
from tests.live.real_workloads import CLOCK_SPEED, SMALL_FLEET, TWO_TENANTS, emulated, training
from topmast import Event

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

_EMULATED = 20
_GLOBAL = ("global", "")
_TIERS = 5
"""That one process has: the global one, and two in each of two regions."""


def test_what_runs_goes_on_under_whoever_stood_by(generator: np.random.Generator) -> None:
    with real_service(SMALL_FLEET, TWO_TENANTS, CLOCK_SPEED, tiers=TierProcesses.SHARED, standby=True) as service:
        release = service.home / "release"
        (name,) = service.submit([training("training", release)])
        service.until_checkpoint(name)
        process = service.until_task_process(name)
        service.submit(emulated(_EMULATED, generator, shortest_s=300.0, longest_s=900.0))
        service.until_more(4, ("started",))
        for _ in range(2):
            killed = service.kill(_GLOBAL)
            service.until_held(_GLOBAL, but_not_by=killed)
            # Who was started again in its place may be as soon as whoever stood by.
            service.until(partial(_all_lead_but, service, killed), "others lead all tiers")
            assert service.task_processes(name) == [process]
            service.until_progress(name, service.workload(name).progress + 1)
        assert len(service.workload(name).attempts) == 1
        release.touch()
        service.until_all_ended()
        report = service.check()
        assert report.events_by_kind["completed"] == _EMULATED + 1
        assert report.events_by_kind.get("failed", 0) == 0


def _all_lead_but(service: RealService, killed: int, _events: Sequence[Event]) -> bool:
    tiers = service.client.status().tiers
    return len(tiers) >= _TIERS and all(tier.alive and tier.process_id != killed for tier in tiers)
