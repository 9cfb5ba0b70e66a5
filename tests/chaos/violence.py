"""What can be done to the processes of a running service."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import psutil

from services.database.embedded import EmbeddedLayout, start_embedded, supervisor_process_id
from services.database.server_processes import find_server_processes
from services.runtime.host_lock import HostLockTaken, host_lock
from tests.live.real_service import PATIENCE_REAL_S, RealService, Tier

_LOOK_INTERVAL_REAL_S = 0.05


def kill_task(service: RealService, workload: str) -> None:
    """Kills the user's process of a workload with one task."""
    (process_id,) = service.task_processes(workload)
    os.kill(process_id, signal.SIGKILL)


def kill_runner(service: RealService, workload: str) -> None:
    """Kills what runs beside the task: the actor above the reaper of the user's process and that one's guard."""
    (process_id,) = service.task_processes(workload)
    _reaper, _guard, runner, *_ = psutil.Process(process_id).parents()
    assert "TaskRunner" in " ".join(runner.cmdline()), runner
    runner.kill()


@contextmanager
def stopped(process_id: int) -> Iterator[None]:
    """The process does nothing, and does not know it, as long as the context lasts."""
    os.kill(process_id, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process_id, signal.SIGCONT)


@contextmanager
def no_postgres(service: RealService) -> Iterator[None]:
    """There is no database, and nothing starts it again until the context ends: this process is in its supervisor's place."""
    layout = EmbeddedLayout.of(service.home)
    try:
        with _in_the_place_of_the_supervisor(layout):
            processes = find_server_processes(layout.data)
            assert processes
            for process in processes:
                process.kill()
            psutil.wait_procs(processes, timeout=PATIENCE_REAL_S)
            yield
            assert not find_server_processes(layout.data), "something has started it"
    finally:
        start_embedded(service.home)


@contextmanager
def _in_the_place_of_the_supervisor(layout: EmbeddedLayout) -> Iterator[None]:
    """Kills it, and whatever is started in its place, until there is none and can be none."""
    deadline_s = time.monotonic() + PATIENCE_REAL_S
    with ExitStack() as held:
        while True:
            supervisor = supervisor_process_id(layout)
            if supervisor is not None:
                with suppress(ProcessLookupError):
                    os.kill(supervisor, signal.SIGKILL)
            try:
                held.enter_context(host_lock(layout.lock, _LOOK_INTERVAL_REAL_S))
                break
            except HostLockTaken:
                assert time.monotonic() < deadline_s, "there is always another one"
        yield


@contextmanager
def one_more_regional_scheduler(service: RealService, region: str) -> Iterator[int]:
    """Another process for the same region, started as containers start it; yields its id. It ends with the context."""
    program = "from services.command_line.main import main; main()"
    command = [sys.executable, "-c", program, "serve", "regional", "--region", region, "--home", str(service.home)]
    command += ["--config", str(service.home / "configuration.yaml")]
    with (
        (service.home / "logs" / "one-more.log").open("ab") as log,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log) as process,
    ):
        try:
            yield process.pid
        finally:
            process.kill()


def until_process(service: RealService, tier: Tier, process_id: int) -> None:
    """Waits until this very process holds the tier's lease."""
    deadline_s = time.monotonic() + PATIENCE_REAL_S
    while service.process_id(tier) != process_id:
        assert time.monotonic() < deadline_s, f"process {process_id} does not become {tier}"
        time.sleep(_LOOK_INTERVAL_REAL_S)


def until_in_log(service: RealService, log: str, text: str) -> None:
    """Waits until a tier's log has the text in it."""
    path = service.home / "logs" / log
    deadline_s = time.monotonic() + PATIENCE_REAL_S
    while not (path.exists() and text in path.read_text(encoding="utf-8", errors="replace")):
        assert time.monotonic() < deadline_s, f"{log} never says {text}"
        time.sleep(_LOOK_INTERVAL_REAL_S)
