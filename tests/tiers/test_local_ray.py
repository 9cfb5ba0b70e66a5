"""A Ray of our own that does not come up at once, on a real process; Ray's own start is played."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from types import SimpleNamespace

import psutil
import pytest

from services.runtime import local_ray
from services.runtime.local_ray import start_local_ray

SLEEPS = "import time; print('up', flush=True); time.sleep(600)"


class OneProcess:
    """A node of Ray, which keeps the processes that it starts."""

    def __init__(self, _parameters: object) -> None:
        process = subprocess.Popen([sys.executable, "-c", SLEEPS], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        self.all_processes = {"raylet": [SimpleNamespace(process=process)]}


class SlowRay:
    """Starts a process at each try, as Ray does, and gives up waiting for it as often as told."""

    def __init__(self, failures: list[Exception]) -> None:
        self.started: list[subprocess.Popen[bytes]] = []
        self._failures = failures

    def init(self, **options: object) -> None:
        node = import_module("ray._private.node").Node(SimpleNamespace())
        ((process,),) = node.all_processes.values()
        self.started.append(process.process)
        if len(self.started) <= len(self._failures):
            raise self._failures[len(self.started) - 1]

    def running(self) -> list[bool]:
        return [psutil.pid_exists(process.pid) for process in self.started]

    def known_to_have_ended(self) -> list[bool]:
        """Of those that are not, Python says when they are forgotten that they still run."""
        return [process.returncode is not None for process in self.started]

    def end(self) -> None:
        for process in self.started:
            process.kill()
            process.communicate()


def slow() -> Exception:
    return Exception("The current node timed out during startup. This could happen because ...")


def without_port() -> Exception:
    return RuntimeError("Timed out waiting for file /tmp/ray/session_1/gcs_server_port_2")


@pytest.mark.parametrize(
    ("failures", "running"),
    [
        ([], [True]),
        ([slow()], [False, True]),
        ([without_port()], [False, True]),
        ([slow(), without_port()], [False, False, True]),
    ],
)
def test_starts_again_and_leaves_no_process_of_a_start_that_was_too_slow(
    failures: list[Exception], running: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_ray = SlowRay(failures)
    monkeypatch.setattr(local_ray, "ray", slow_ray)
    monkeypatch.setattr("ray._private.node.Node", OneProcess)
    try:
        start_local_ray(num_cpus=2)
        assert slow_ray.running() == running
        assert slow_ray.known_to_have_ended() == [not runs for runs in running]
    finally:
        slow_ray.end()


@pytest.mark.parametrize("failures", [[slow(), slow(), slow()], [ValueError("num_cpus must not be negative")]])
def test_says_what_ray_said_and_leaves_nothing(failures: list[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    slow_ray = SlowRay(failures)
    monkeypatch.setattr(local_ray, "ray", slow_ray)
    monkeypatch.setattr("ray._private.node.Node", OneProcess)
    try:
        with pytest.raises(type(failures[-1]), match=str(failures[-1])[:20]):
            start_local_ray(num_cpus=-2)
        assert slow_ray.running() == [False] * len(failures)
    finally:
        slow_ray.end()
