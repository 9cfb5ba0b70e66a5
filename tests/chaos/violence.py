"""What can be done to the processes of a running service."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from services.database.embedded import EmbeddedLayout, start_embedded, supervisor_process_id
from services.database.server_processes import find_server_processes
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
    """There is no database, and nothing starts it again until the context ends."""
    layout = EmbeddedLayout.of(service.home)
    supervisor = supervisor_process_id(layout)
    assert supervisor is not None
    os.kill(supervisor, signal.SIGKILL)
    processes = find_server_processes(layout.data)
    assert processes
    for process in processes:
        process.kill()
    psutil.wait_procs(processes, timeout=PATIENCE_REAL_S)
    try:
        yield
    finally:
        start_embedded(service.home)


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
