"""The processes of a PostgreSQL server, found by the data folder they work in."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import psutil
import structlog

_log = structlog.get_logger(__name__)

_PROGRAM = "postgres"
_POLL_S = 0.02


def find_server_processes(data: Path) -> list[psutil.Process]:
    """Every live PostgreSQL process of the data folder, oldest first: all of them work in that folder."""
    found = []
    wanted = str(data)
    for process in psutil.process_iter():
        try:
            # A process that retitled itself ("postgres: checkpointer") still has the program's name here.
            if (
                process.name() == _PROGRAM
                and process.status() != psutil.STATUS_ZOMBIE
                and process.cwd().removesuffix(" (deleted)") == wanted
            ):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return sorted(found, key=lambda process: (process.create_time(), process.pid))


def read_postmaster_id(data: Path) -> int | None:
    """The process id in postmaster.pid; None when there is no such file or nothing in it yet."""
    return _first_number(data / "postmaster.pid")


def _first_number(file: Path) -> int | None:
    """What stands in the first line; None when there is no such file or no number in it (yet)."""
    try:
        first_line = file.read_text().split("\n", 1)[0].strip()
    except FileNotFoundError:
        return None
    return int(first_line) if first_line.isdigit() else None


def end_server_processes(data: Path, patience_s: float = 30.0) -> int:
    """Ends whatever still runs on the data folder; returns how many processes there were.

    A postmaster is shut down cleanly. Processes that lost their postmaster are killed: they cannot commit any more,
    but they keep a new server from starting (it refuses while the old shared memory is in use).
    Raises TimeoutError when something survives even that.
    """
    processes = find_server_processes(data)
    postmaster_id = read_postmaster_id(data)
    for process in processes:
        if process.pid == postmaster_id:
            _log.info("stopping a server without a supervisor", process=process.pid)
            _send(process, signal.SIGINT)
            _wait_until_gone(data, patience_s)
    for process in find_server_processes(data):
        _log.warning("killing a left-over process of the server", process=process.pid)
        _send(process, signal.SIGKILL)
    if not _wait_until_gone(data, patience_s):
        alive = [process.pid for process in find_server_processes(data)]
        raise TimeoutError(f"processes of the database server could not be ended: {alive}")
    return len(processes)


def remove_stale_locks(data: Path, socket_folder: Path) -> None:
    """Removes postmaster.pid, and the locks of sockets, when their process id is in use: by another program by now, or by a server
    that has ended and whose end nobody has looked at yet (its parent was killed).

    PostgreSQL would take that for a running server and refuse to start. When no process has the id,
    PostgreSQL finds out itself. Only call this while nothing runs on the data folder.
    """
    for lock in (data / "postmaster.pid", *sorted(socket_folder.glob(".s.PGSQL.*.lock"))):
        process_id = _first_number(lock)
        if process_id is not None and psutil.pid_exists(process_id):
            _log.warning("removing the lock of a server that is gone", lock=lock.name, process=process_id)
            lock.unlink()


def _wait_until_gone(data: Path, patience_s: float) -> bool:
    deadline = time.monotonic() + patience_s
    while find_server_processes(data):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _send(process: psutil.Process, number: signal.Signals) -> None:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return
