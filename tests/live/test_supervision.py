"""Each part of a local service is killed, together with what watches over it, and comes back; down finds whatever is left."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from domain.identifiers import JobName
from domain.resources import TaskResources
from domain.workload import Command, JobSpecification, WorkloadSpecification
from services.command_line.exit_code import ExitCode
from services.database.embedded import EmbeddedLayout, is_running
from services.database.server_processes import read_postmaster_id
from services.runtime.home import HomeLayout
from services.runtime.home_processes import processes_of
from services.runtime.home_state import look_at
from services.runtime.host_lock import host_lock_holder
from services.runtime.host_record import HostRecord, read_host_record, read_whole_host_record
from services.runtime.local import down, up
from services.runtime.tier_place import TierProcesses
from services.wire.workloads import specification_to_proto
from tests.live.interrupts import COMMAND_THAT_HEEDS_INTERRUPTS
from tests.live.real_service import PATIENCE_REAL_S, RealService, real_service
from tests.live.real_workloads import CLOCK_SPEED, SMALL_FLEET, TWO_TENANTS, training
from tests.live.world import A100, RANKING

pytestmark = pytest.mark.live

_LOOK_INTERVAL_REAL_S = 0.05


_ESCAPING = WorkloadSpecification(
    "escaping",
    RANKING,
    (
        JobSpecification(
            JobName("main"),
            1,
            TaskResources(gpus=1, gpu_model=A100),
            Command(("bash", "-c", "setsid sleep 100000 & exec sleep 100000")),
        ),
    ),
)


def _ready_record(home: Path) -> HostRecord:
    """The first one that says that the service is up, with no time in between."""
    deadline_s = time.monotonic() + PATIENCE_REAL_S
    path = HomeLayout(home).host_record
    while time.monotonic() < deadline_s:
        if path.exists() and (record := read_host_record(path)) is not None and record.is_ready:
            return record
    raise AssertionError("it does not come up")


def _until(condition: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + PATIENCE_REAL_S
    while not condition():
        assert time.monotonic() < deadline_s, what
        time.sleep(_LOOK_INTERVAL_REAL_S)


def _record(home: Path) -> HostRecord:
    record = read_whole_host_record(HomeLayout(home).host_record)
    assert record is not None
    return record


def _part(home: Path, name: str) -> int:
    """The process of a part."""
    (process_id,) = (part.process_id for part in _record(home).parts if part.name == name)
    return process_id


def _lost(home: Path) -> set[str]:
    """The parts that were lost since the host began."""
    return {part.name for part in _record(home).parts if part.losses}


def _kill(*process_ids: int) -> None:
    for process_id in process_ids:
        os.kill(process_id, signal.SIGKILL)


def _mended(service: RealService) -> HostRecord:
    """Brings it up, whatever of it is down: it is whole when that returns, and where it was."""
    again = up(service.options)
    assert (again.address, again.was_running) == (service.client.address, True)
    assert look_at(HomeLayout(service.home)).is_whole
    return _record(service.home)


def test_what_dies_of_a_service_is_started_again_and_its_tasks_run_once() -> None:
    with real_service(SMALL_FLEET, TWO_TENANTS, CLOCK_SPEED, tiers=TierProcesses.SHARED) as service:
        home, release = service.home, service.home / "release"
        (name,) = service.submit([training("training", release)])
        saved = service.until_checkpoint(name).checkpoint_progress
        task = service.until_task_process(name)
        # 1. The supervisor of the database, and then its server: the host starts another supervisor. The task does not notice.
        postmaster = read_postmaster_id(EmbeddedLayout.of(home).data)
        assert postmaster is not None
        _kill(_part(home, "database supervisor"), postmaster)
        _until(lambda: "database supervisor" in _lost(home), "nobody notices")
        _mended(service)
        service.until_progress(name, saved + 1)
        assert service.task_processes(name) == [task]
        # 2. The watcher of the host: the host starts another one.
        watcher = _record(home).watcher_id
        _kill(watcher)
        _until(lambda: host_lock_holder(HomeLayout(home).watcher_lock) not in {None, watcher}, "nobody watches")
        # 3. Ray's GCS: host, Ray and tiers begin anew. What ran has ended before it goes on from its checkpoint.
        host = _record(home).process_id
        _kill(_part(home, "ray gcs_server"))
        _until(
            lambda: not psutil.pid_exists(task) or psutil.Process(task).status() == psutil.STATUS_ZOMBIE, "it runs on"
        )
        assert _mended(service).process_id != host
        service.until_task_process(name)
        release.touch()
        service.until_all_ended()
        assert [attempt.attempt for attempt in service.workload(name).attempts] == [1, 2]
        service.check()
        # 4. Watcher, host and what watched over a task at once: nobody is left to start or end anything, and down finds what they
        # leave, what has escaped from the task too.
        (escaping,) = service.client.submit_many([specification_to_proto(_ESCAPING)])
        _until(lambda: len(service.task_processes(escaping.workload)) == 2, "it does not escape")
        service.closing.set()
        tasks = service.task_processes(escaping.workload)
        (reaper,) = {psutil.Process(one).ppid() for one in tasks} - {1, *tasks}
        _kill(_record(home).watcher_id, _record(home).process_id, reaper)
        _until(lambda: "nobody watches over it" in "".join(look_at(HomeLayout(home)).down), "somebody is there")
        HomeLayout(home).host_record.write_text("{")


def test_a_home_has_one_service_and_its_host_is_watched() -> None:
    with tempfile.TemporaryDirectory(prefix="topmast-") as folder:
        home = Path(folder)
        layout = HomeLayout(home)
        command = [*COMMAND_THAT_HEEDS_INTERRUPTS, "up", "--emulate", "--port", "0", "--home", folder]
        try:
            with subprocess.Popen([*command, "--foreground"]) as staying:
                # 1. Who comes second is told whose the home is, and changes nothing.
                _until(lambda: host_lock_holder(layout.watcher_lock) == staying.pid, "it does not begin")
                second = subprocess.run(command, capture_output=True, text=True, check=False)
                assert second.returncode == ExitCode.UNAVAILABLE, second.stdout
                assert f"start the service of {home}" in second.stderr or "is starting the service" in second.stderr
                # 2. The host is killed at the moment it is up: its watcher starts another one, where it was.
                first = _ready_record(home)
                _kill(first.process_id)
                _until(lambda: look_at(layout).is_whole and _record(home).process_id != first.process_id, "no other")
                assert (_record(home).address, _record(home).watcher_id) == (first.address, staying.pid)
                # 3. Its record is damaged: it writes it anew.
                layout.host_record.write_text("{")
                again = subprocess.run(command, capture_output=True, text=True, check=False)
                assert again.stdout == f"Topmast was already up at {first.address}\n", again.stderr
                # 4. As service managers end it.
                staying.terminate()
            assert staying.returncode == 0
            assert not processes_of(home)
            assert not look_at(layout).watcher_lives
            assert not is_running(home)
        finally:
            down(home)
