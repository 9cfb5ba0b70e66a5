"""The host process is killed, and with it everything but the database: its watcher starts another one, and the service goes on."""

from __future__ import annotations

import numpy as np
import psutil
import pytest

from services.runtime.home import HomeLayout
from services.runtime.host_record import read_host_record
from services.runtime.local import up
from services.runtime.tier_place import TierProcesses
from tests.live.real_service import PATIENCE_REAL_S, RealService, real_service
from tests.live.real_workloads import CLOCK_SPEED, SMALL_FLEET, TWO_TENANTS, emulated, training

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

_EMULATED = 24


def test_what_a_lost_host_left_behind_is_taken_up_again(generator: np.random.Generator) -> None:
    with real_service(SMALL_FLEET, TWO_TENANTS, CLOCK_SPEED, tiers=TierProcesses.SEPARATE) as service:
        release = service.home / "release"
        (name,) = service.submit([training("training", release)])
        saved = service.until_checkpoint(name).checkpoint_progress
        service.submit(emulated(_EMULATED, generator, shortest_s=600.0, longest_s=1800.0))
        service.until_more(4, ("started",))
        _kill_host(service)
        assert not service.task_processes(name), "nothing would watch over it"
        again = up(service.options)
        assert (again.address, again.was_running) == (service.client.address, True)
        service.until_task_process(name)
        service.until_progress(name, saved + 1)
        release.touch()
        service.until_all_ended()
        report = service.check()
        assert report.events_by_kind["completed"] == _EMULATED + 1
        # The processes died with the host; what is emulated had nothing to lose.
        failed = [event for event in service.events if event.event == "failed"]
        assert [(event.workload, event.attempt, event.details["final"]) for event in failed] == [(name, 1, False)]
        attempts = service.workload(name).attempts
        assert [attempt.attempt for attempt in attempts] == [1, 2]


def _kill_host(service: RealService) -> None:
    record = read_host_record(HomeLayout(service.home).host_record)
    assert record is not None
    host = record.process
    assert host is not None
    watching = ("services.database.supervisor", "services.runtime.host_watcher")
    died_with_it = [process for process in service.processes() if not set(watching) & set(process.cmdline())]
    host.kill()
    _, alive = psutil.wait_procs(died_with_it, timeout=PATIENCE_REAL_S)
    assert not alive, f"outlived their host: {alive}"
