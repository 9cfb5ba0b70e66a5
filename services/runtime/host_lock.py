"""One host process for each home, and one watcher of it: each holds a lock as long as it lives, however it ends."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

HOME_TAKEN = 3
"""The exit code of a host, or a watcher, that found another one in its home: nothing has happened."""

_POLL_REAL_S = 0.05


class HostLockTaken(Exception):
    """Another process holds the lock of this home."""


@contextmanager
def host_lock(path: Path, patience_real_s: float = 0.0) -> Iterator[None]:
    """Holds the lock until the context, or the process, ends; our process id is in it. Raises HostLockTaken.

    `patience_real_s`: for so long it is waited for one whose holder is just ending.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + patience_real_s
    # Not inherited by what is started: what outlives the holder would hold the home.
    with path.open("ab") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                if time.monotonic() >= deadline:
                    raise HostLockTaken(f"another process holds {path}") from error
                time.sleep(_POLL_REAL_S)
            else:
                break
        lock.truncate(0)
        lock.write(str(os.getpid()).encode("ascii"))
        lock.flush()
        yield


def host_lock_is_held(path: Path) -> bool:
    """Whether the home has a host (or a watcher) that lives."""
    try:
        with path.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def host_lock_holder(path: Path) -> int | None:
    """The process that holds the lock; None when none does, or it has not said yet which it is."""
    if host_lock_is_held(path):
        with suppress(FileNotFoundError, ValueError):
            return int(path.read_text(encoding="ascii"))
    return None
