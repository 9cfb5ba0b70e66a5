"""The real thing, ended while one of its processes does not listen."""

from __future__ import annotations

import os
import signal

import pytest

from services.runtime.tier_place import TierProcesses
from tests.live.real_service import real_service
from tests.live.real_workloads import CLOCK_SPEED, SMALL_FLEET, TWO_TENANTS

pytestmark = pytest.mark.live


def test_nothing_is_left_of_a_service_of_which_two_tiers_hang() -> None:
    with real_service(SMALL_FLEET, TWO_TENANTS, CLOCK_SPEED, tiers=TierProcesses.SEPARATE) as service:
        for tier in (("regional", "east"), ("cluster", "west-a")):
            process_id = service.until_held(tier)
            assert process_id in {process.pid for process in service.processes()}, "only our own are stopped"
            os.kill(process_id, signal.SIGSTOP)
