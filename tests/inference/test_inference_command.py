"""topmast inference-scheduler as a process: a small series, asked by gRPC, and what it refuses."""

from __future__ import annotations

import signal
import socket
import subprocess
from pathlib import Path

import pytest

from services.command_line.exit_code import ExitCode
from services.inference.demand import NoDemand
from tests.inference.command_process import TOPMAST, InferenceCommand


def series_in(directory: Path, content: str = "t_s,busy_pod_fraction\n0,0.55\n") -> Path:
    file = directory / "load.csv"
    file.write_text(content, encoding="utf-8")
    return file


def refusal(*options: str) -> tuple[int, str]:
    """Exit code, and what was said in one line."""
    command = [*TOPMAST, "inference-scheduler", *options]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert not ended.stdout
    return ended.returncode, " ".join(ended.stderr.split())


def test_a_series_is_answered_from_until_the_command_is_interrupted(tmp_path: Path) -> None:
    file = series_in(tmp_path)
    with InferenceCommand("--series", str(file), "--reclaim-within-s", "90") as command:
        demand = command.ask(machines=10)
        assert (demand.needed_machines, demand.lends_machines, demand.reclaim_within_s) == (6, None, 90.0)
        # It was read once.
        file.unlink()
        assert command.ask(machines=100).needed_machines == 55
        with pytest.raises(NoDemand, match="INVALID_ARGUMENT"):
            command.ask(machines=0)
        command.process.send_signal(signal.SIGTERM)
        assert command.process.wait(30) == 0
        with pytest.raises(NoDemand, match="UNAVAILABLE"):
            command.ask()


def test_a_command_that_hangs_says_nothing(tmp_path: Path) -> None:
    with InferenceCommand("--series", str(series_in(tmp_path))) as command:
        command.process.send_signal(signal.SIGSTOP)
        with pytest.raises(NoDemand, match="DEADLINE_EXCEEDED"):
            command.ask(patience_real_s=0.5)
        command.process.send_signal(signal.SIGCONT)
        assert command.ask(machines=2).needed_machines == 2


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("t_s,busy_pod_fraction\n0,nan\n", "line 2, column busy_pod_fraction"),
        ("t_s,busy_pod_fraction\n0,-1\n", "line 2, column busy_pod_fraction"),
        ("t_s,busy_pod_fraction\n0,1.2\n", "line 2, column busy_pod_fraction: must be at most 1, not 1.2"),
        ("t_s,busy_pod_fraction\n", "has no point of a curve"),
        ("t_s\n0\n", "has none of the columns busy_pod_fraction, requests, gpu_instances"),
    ],
)
def test_a_series_that_is_none_is_refused_at_the_start(tmp_path: Path, content: str, says: str) -> None:
    file = series_in(tmp_path, content)
    code, said = refusal("--series", str(file))
    assert code == ExitCode.REFUSED
    assert str(file) in said
    assert says in said


def test_a_series_that_is_not_there_is_wrong_usage(tmp_path: Path) -> None:
    code, said = refusal("--series", str(tmp_path / "nowhere.csv"))
    assert code == ExitCode.USAGE
    assert "Invalid value for '--series'" in said


def test_what_cannot_be_asked_of_it_is_refused_with_the_option(tmp_path: Path) -> None:
    series = ("--series", str(series_in(tmp_path)))
    for options, says in (
        ((), "give either --series FILE or --ray-serve"),
        ((*series, "--ray-serve"), "give either --series FILE or --ray-serve"),
        (("--ray-serve",), "--ray-serve: say what a machine has"),
        ((*series, "--listen", "127.0.0.1:http"), "--listen: is '127.0.0.1:http'; give host:port"),
        ((*series, "--listen", "127.0.0.1:70000"), "with a port from 0 (any free one) to 65535"),
        ((*series, "--reclaim-within-s", "inf"), "--reclaim-within-s: is inf; give a number of seconds"),
    ):
        code, said = refusal(*options)
        assert (code, says in said) == (ExitCode.USAGE, True), said
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, said = refusal(*series, "--listen", f"127.0.0.1:{port}")
        assert (code, f"nothing can listen at 127.0.0.1:{port}" in said) == (ExitCode.REFUSED, True), said
    code, said = refusal(*series, "--reclaim-within-s", "-1")
    assert (code, "--reclaim-within-s" in said) == (ExitCode.USAGE, True)
