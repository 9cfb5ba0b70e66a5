"""The processes of a home's service, found by a mark in their environment: whatever happened to those that had started them.

The mark is inherited by all that the service starts, tasks and what they start too; only PostgreSQL's own processes are without
(`services.database.server_processes` finds them by their data). What runs on a Ray of others does not have it.

Host, watcher and database supervisor hold locks by which they are found, and are not meant here: one that does not hold its lock is
about to find that out, and ends by itself.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psutil

from services.execution.task_environment import SERVICE_HOME_VARIABLE
from services.runtime.home import HomeLayout
from services.runtime.process_identity import lives

_WITH_LOCKS = ("services.runtime.host", "services.runtime.host_watcher", "services.database.supervisor")
_POLL_REAL_S = 0.05


class ProcessesLeft(Exception):
    """Processes of a home could not be ended; the message names them."""


def marked(home: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment with which a service of this home is started."""
    return {**environment, SERVICE_HOME_VARIABLE: str(home)}


def processes_of(home: Path) -> list[psutil.Process]:
    """All living processes of the home's service that we may look at and that have no locks of their own, by their ids."""
    found: dict[int, psutil.Process] = {}
    sessions = f"{HomeLayout(home).ray_sessions}{os.sep}"
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            if process.environ().get(SERVICE_HOME_VARIABLE) == str(home) or _writes_to(process).startswith(sessions):
                found[process.pid] = process
                if not _has_lock(process):
                    found.update({child.pid: child for child in process.children(recursive=True)})
    return [found[number] for number in sorted(found) if number != os.getpid() and _counts(found[number])]


def _writes_to(process: psutil.Process) -> str:
    """Where its output goes: Ray's workers write their names over their environment, and their output below its sessions."""
    try:
        return str(Path(f"/proc/{process.pid}/fd/1").readlink())
    except OSError:
        return ""


def _has_lock(process: psutil.Process) -> bool:
    return bool(set(_WITH_LOCKS) & set(process.cmdline()))


def _counts(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        return lives(process) and not _has_lock(process)
    return False


def end_processes_of(home: Path, *, alone_real_s: float = 0.0, patience_real_s: float = 30.0) -> int:
    """Returns when none of these processes is left; how many had to be killed. Hold the lock of the host, so that none is added.

    For `alone_real_s` they may end by themselves. Raises ProcessesLeft when some outlive even SIGKILL for `patience_real_s`.
    """
    alone_until = time.monotonic() + alone_real_s
    killed: set[int] = set()
    while left := processes_of(home):
        now = time.monotonic()
        if now > alone_until + patience_real_s:
            raise ProcessesLeft(f"these processes of {home} do not end: {', '.join(str(one.pid) for one in left)}")
        if now >= alone_until:
            for process in left:
                _kill(process, killed)
        time.sleep(_POLL_REAL_S)
    return len(killed)


def _kill(process: psutil.Process, killed: set[int]) -> None:
    with suppress(psutil.NoSuchProcess):
        process.kill()
        killed.add(process.pid)
