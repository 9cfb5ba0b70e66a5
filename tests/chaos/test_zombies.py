"""A regional scheduler that sleeps longer than its lease: another one takes over, and when it wakes up it has no lease."""

from __future__ import annotations

import numpy as np
import psycopg
import pytest

from services.database.embedded import EmbeddedLayout
from services.runtime.tier_place import TierProcesses
from tests.chaos.violence import one_more_regional_scheduler, stopped, until_in_log, until_process
from tests.live.real_service import RealService, Tier, real_service
from tests.live.real_workloads import CLOCK_SPEED, SMALL_FLEET, TWO_TENANTS, emulated, training

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

_EMULATED = 60
_EAST: Tier = ("regional", "east")
_IN_EAST = ("started", "completed")


def test_a_zombie_that_wakes_up_changes_nothing(generator: np.random.Generator) -> None:
    with real_service(SMALL_FLEET, TWO_TENANTS, CLOCK_SPEED, tiers=TierProcesses.SEPARATE) as service:
        release = service.home / "release"
        (name,) = service.submit([training("training", release)])
        service.until_checkpoint(name)
        process = service.until_task_process(name)
        service.submit(emulated(_EMULATED, generator, shortest_s=300.0, longest_s=900.0))
        first = service.until_held(_EAST)
        with one_more_regional_scheduler(service, "east") as second:
            until_in_log(service, "one-more.log", "standing by")
            assert service.process_id(_EAST) == first
            with stopped(first):
                until_process(service, _EAST, second)
                tokens = _tokens(service)
                # The other one has the region in hand: it dispatches, and what ran goes on.
                _until_more_in_east(service)
                sleeping = len(service.events)
            # Awake again, it finds out that it has lost its lease, and stands by. (Its own log says so.)
            until_in_log(service, "tiers/regional-east.log", "standing by")
            _until_more_in_east(service)
            assert service.process_id(_EAST) == second
            assert _tokens(service) == tokens, "the lease stays with the one that has it"
            assert len(service.events) > sleeping
        # When that one is killed, it has the lease again.
        until_process(service, _EAST, first)
        _until_more_in_east(service)
        assert service.task_processes(name) == [process]
        release.touch()
        service.until_all_ended()
        report = service.check()
        assert report.events_by_kind["completed"] == _EMULATED + 1
        assert report.events_by_kind.get("failed", 0) == 0
        assert [attempt.attempt for attempt in service.workload(name).attempts] == [1]


def _until_more_in_east(service: RealService) -> None:
    """Until something new has happened there, and been recorded by the holder of the region's lease."""
    known = len(service.events)
    service.until(
        lambda events: any(event.event in _IN_EAST and event.region == "east" for event in events[known:]),
        "something happens in the east",
    )


def _tokens(service: RealService) -> int:
    with psycopg.connect(EmbeddedLayout.of(service.home).url()) as connection:
        row = connection.execute("SELECT token FROM leases WHERE name = 'regional/east'").fetchone()
    assert row is not None
    return int(row[0])
