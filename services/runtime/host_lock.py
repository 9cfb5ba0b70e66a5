"""One host process for each home: it holds a lock as long as it lives, however it ends."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HOME_TAKEN = 3
"""The exit code of a host that found another one in its home: nothing has happened."""


class HostLockTaken(Exception):
    """Another process is the host of this home."""


@contextmanager
def host_lock(path: Path) -> Iterator[None]:
    """Makes this process the host of the home until the context, or the process, ends. Raises HostLockTaken."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not inherited by what is started: what outlives the host would hold the home.
    with path.open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise HostLockTaken(f"another process holds {path}") from error
        yield


def host_lock_is_held(path: Path) -> bool:
    """Whether the home has a host that lives."""
    try:
        with path.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
