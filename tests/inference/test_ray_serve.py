"""The inference side that watches Ray Serve, before a real deployment."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from services.inference.demand import NoDemand
from tests.inference.command_process import TOPMAST, InferenceCommand

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

_PATIENCE_REAL_S = 240.0


class ServedModels:
    """The process of `tests.inference.served_models`."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.inference.served_models"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.ray_address = self._line()

    def do(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        # Ray prints there as well.
        while (printed := self._line()) != "done":
            assert printed, "it has ended"

    def end(self) -> None:
        """Its Ray ends with it."""
        self.process.terminate()
        self.process.wait(_PATIENCE_REAL_S)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[ServedModels]:
    pytest.importorskip("ray.serve", reason="Ray Serve is not installed: pip install 'topmast[serve]'")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    models = ServedModels()
    try:
        yield models
    finally:
        models.end()


def watching(served: ServedModels, *options: str) -> InferenceCommand:
    size = ("--gpus-per-machine", "2", "--cpus-per-machine", "8")
    return InferenceCommand("--ray-serve", "--ray-address", served.ray_address, *size, *options)


def until(condition: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + _PATIENCE_REAL_S
    while not condition():
        assert time.monotonic() < deadline_s, what
        time.sleep(0.1)


def silence(command: InferenceCommand) -> str:
    """Why it says nothing; empty: it says something."""
    try:
        command.ask()
    except NoDemand as error:
        return str(error)
    return ""


def test_replicas_of_a_real_deployment_say_how_many_machines_inference_needs(served: ServedModels) -> None:
    with watching(served, "--reclaim-within-s", "90") as command, watching(served, "--application", "none") as wrong:
        demand = command.ask()
        assert (demand.needed_machines, demand.lends_machines, demand.reclaim_within_s) == (1, None, 90.0)
        served.do("scale 7")
        # Seven halves of a GPU; machines with two.
        assert command.ask().needed_machines == 2
        served.do("group")
        # Two whole GPUs together have a machine of their own.
        assert command.ask().needed_machines == 3
        served.do("scale 1")
        until(lambda: command.ask().needed_machines == 2, "replicas that have stopped take nothing")
        assert "Ray Serve has no application none; it has: large, small" in silence(wrong)
        served.do("shutdown")
        assert "Ray Serve does not run there; start it" in silence(command)


def test_says_nothing_when_ray_has_gone_and_starts_none(served: ServedModels) -> None:
    with watching(served) as command:
        assert command.ask().needed_machines == 1
        served.process.kill()
        served.process.wait()
        until(lambda: "does not answer" in silence(command), "silence")
        children = subprocess.run(
            ["ps", "--ppid", str(command.process.pid), "-o", "args="], capture_output=True, text=True, check=False
        ).stdout
        assert "gcs_server" not in children


def test_a_command_without_ray_serve_says_what_to_install() -> None:
    try:
        import ray.serve  # noqa: F401 (only whether it is there)
    except ModuleNotFoundError:
        pass
    else:
        pytest.skip("Ray Serve is installed")
    command = [*TOPMAST, "inference-scheduler", "--ray-serve"]
    ended = subprocess.run(
        [*command, "--gpus-per-machine", "8"], capture_output=True, text=True, check=False, env={**os.environ}
    )
    assert ended.returncode == 4
    assert "--ray-serve: watching Ray Serve needs 'ray[serve]'" in ended.stderr
    assert "pip install 'topmast[serve]'" in ended.stderr
