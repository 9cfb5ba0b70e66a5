"""A Ray of our own on this machine.

Ray waits 30 s for its own processes and then gives up, whatever it is told; a machine that stood still for as long gets
another try.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import psutil
import ray
import structlog

_TRIES = 3
_TOO_SLOW = "timed out during startup"
"""In the message of the Exception (Ray has no class for it) when its processes did not answer in time."""

_END_PATIENCE_REAL_S = 10.0

_log = structlog.get_logger(__name__)


def start_local_ray(**options: Any) -> None:
    """Starts a Ray with `ray.init(**options)` and connects this process to it.

    Where Ray gives up waiting for its own processes, these are ended and it is started again, three times in all. Raises
    what `ray.init` raises.
    """
    for tries_left in reversed(range(_TRIES)):
        before = _children()
        try:
            ray.init(**options)
            return
        except Exception as failure:
            _end(_children() - before)
            if not tries_left or _TOO_SLOW not in str(failure):
                raise
            _log.warning("Ray did not answer in time; it is started again", tries_left=tries_left)


def _children() -> set[psutil.Process]:
    return set(psutil.Process().children())


def _end(children: set[psutil.Process]) -> None:
    """Kills these and what they started."""
    processes = sorted(children, key=lambda process: process.pid)
    for child in tuple(processes):
        with suppress(psutil.NoSuchProcess):
            processes += child.children(recursive=True)
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=_END_PATIENCE_REAL_S)
