"""topmast run -it without a terminal: what it refuses, what it checks, and the program that holds its places."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from services.command_line.interactive_run import holder
from services.execution.task_paths import COMMANDS_FILE_NAME, TASK_FILE_NAME
from tests.client.loopback_server import LoopbackServer
from tests.command_line.conftest import Topmast

RUN = ("run", "-it", "--tenant", "vision", "--gpus", "1", "--no-workdir")
PATIENCE_S = 120.0


@pytest.mark.parametrize(
    "options",
    [
        ("--array", "0-3"),
        ("--follow",),
        ("--json",),
        ("--max-retries", "2"),
        ("--idempotency-key", "k"),
    ],
    ids=lambda options: options[0],
)
def test_what_does_not_go_with_a_shell_is_refused_by_its_option(
    server: LoopbackServer, topmast: Topmast, options: tuple[str, ...]
) -> None:
    refused = topmast(*RUN, *options)
    assert refused.exit_code == 2
    told = " ".join(refused.stderr.replace("│", " ").split())
    assert options[0] in told
    assert "does not go with a shell (-it)" in told
    assert not server.topmast.workloads


def test_without_a_terminal_nothing_is_submitted(server: LoopbackServer, topmast: Topmast) -> None:
    refused = topmast(*RUN)
    assert refused.exit_code == 2
    assert "needs a terminal at standard input" in " ".join(refused.stderr.replace("│", " ").split())
    assert not server.topmast.workloads


def test_the_first_task_gives_up_when_nobody_comes_and_the_others_wait_for_it(tmp_path: Path) -> None:
    (tmp_path / COMMANDS_FILE_NAME).write_text("1\n")
    first = _holding(tmp_path, rank=0)
    other = _holding(tmp_path, rank=1)
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            # Somebody is at its shell, for longer than it waits without.
            first.wait(4)
        (tmp_path / COMMANDS_FILE_NAME).write_text("0\n")
        said, _ = first.communicate(timeout=PATIENCE_S)
        assert (first.returncode, said) == (1, "nobody was at its shell for 2 s\n")
        assert other.poll() is None
    finally:
        for process in (first, other):
            process.kill()
            process.communicate()


def test_the_first_task_gives_up_where_no_shell_was_ever_opened(tmp_path: Path) -> None:
    with _holding(tmp_path, rank=0) as first:
        assert first.communicate(timeout=PATIENCE_S)[0] == "nobody was at its shell for 2 s\n"


def _holding(directory: Path, rank: int) -> subprocess.Popen[str]:
    environment = {**os.environ, "RANK": str(rank), "TOPMAST_TASK_FILE": str(directory / TASK_FILE_NAME)}
    return subprocess.Popen(holder(2), env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
