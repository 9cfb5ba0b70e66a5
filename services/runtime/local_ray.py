"""A Ray of our own on this machine, for this machine: what runs actors, and nothing else of what Ray would start beside it.

Ray waits 30 s for its own processes and then gives up, whatever it is told; a machine that stood still for as long gets
another try.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

import psutil
import ray
import structlog

_TRIES = 3
_TOO_SLOW = ("timed out during startup", "Timed out waiting for file")
"""One of these is in the message of the Exception (Ray has no class for it) when its processes did not answer in time: the first of its
raylet, the second of its GCS."""

_END_PATIENCE_REAL_S = 10.0

ON_LOOPBACK_ONLY = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""In the environment of a process that joins a Ray of ours: it looks for it on loopback, and not at the machine's address."""

_log = structlog.get_logger(__name__)


def start_local_ray(**options: Any) -> None:
    """Starts a Ray with `ray.init(**options)` and connects this process to it, whatever other Ray is on this machine. Nobody reaches
    it from another machine.

    Where Ray gives up waiting for its own processes, these are ended and it is started again, three times in all. Raises
    what `ray.init` raises.
    """
    for tries_left in reversed(range(_TRIES)):
        before = _children()
        nodes: list[Any] = []
        try:
            with _without_what_nobody_uses(nodes), _on_loopback_only():
                ray.init(address="local", **options)
            return
        except Exception as failure:
            _end(_children() - before)
            _note_ended(nodes)
            if not tries_left or not any(words in str(failure) for words in _TOO_SLOW):
                raise
            _log.warning("Ray did not answer in time; it is started again", tries_left=tries_left)


@contextmanager
def _without_what_nobody_uses(nodes: list[Any]) -> Iterator[None]:
    """Ray starts no dashboard, no autoscaler and nothing that reads logs: each is a process that takes a second to start, 50 MiB,
    and wakes up all the time. `ray.init` has no option for it; `ray start` has. `nodes`: gets what Ray has of each node that it makes.
    """
    module = import_module("ray._private.node")
    whole: Any = module.Node

    class LeanNode(whole):  # type: ignore[misc]  # Ray's own has no types
        def __init__(self, ray_params: Any, *arguments: Any, **further: Any) -> None:
            nodes.append(self)
            ray_params.no_monitor = True
            ray_params.include_log_monitor = False
            super().__init__(ray_params, *arguments, **further)

        def start_api_server(self, **_options: Any) -> None:
            """Not at all: with `include_dashboard=False` Ray would still start it, for the statistics of its makers."""

    module.Node = LeanNode  # type: ignore[attr-defined]  # for `ray.init`, which looks it up there
    try:
        yield
    finally:
        module.Node = whole  # type: ignore[attr-defined]  # as it was


@contextmanager
def _on_loopback_only() -> Iterator[None]:
    """Ray replaces 127.0.0.1 by an address that others reach, and then listens on all of them: whoever reaches it can run anything.
    Where it makes no clusters, as on macOS, it stays on loopback.
    """
    constants = import_module("ray._private.ray_constants")
    ((name, value),) = ON_LOOPBACK_ONLY.items()
    before = constants.ENABLE_RAY_CLUSTER, os.environ.get(name)
    constants.ENABLE_RAY_CLUSTER = False  # type: ignore[attr-defined]  # read when it was imported
    os.environ[name] = value  # for the processes that it starts
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before[0]  # type: ignore[attr-defined]  # as it was
        if before[1] is None:
            del os.environ[name]
        else:
            os.environ[name] = before[1]


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


def _note_ended(nodes: Sequence[Any]) -> None:
    """Ray keeps the processes of a node that did not come up: they know now that they have ended, and do not complain when they are
    forgotten."""
    for node in nodes:
        for processes in getattr(node, "all_processes", {}).values():
            for one in processes:
                one.process.poll()
