"""Pipes are read as files are, by each command that reads a file, and written as files are."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from tests.client.loopback_server import LoopbackServer
from tests.command_line.conftest import Topmast
from tests.command_line.test_command_changing import FLEET, TENANTS, WORKLOAD

TRACE = "workload_id,tenant,submit_s,duration_s,gpus\na,ads,0,100,4\nb,vision,10,200,8\nc,ads,20,50,2\n"


class Pipes:
    """Named pipes with a writer each, as the shell makes them for `<(...)`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._folder.mkdir()
        self._threads: list[threading.Thread] = []

    def of(self, name: str, content: str) -> str:
        """The name of a pipe through which the content comes once."""
        pipe = self._folder / f"{len(self._threads)}-{name}"
        os.mkfifo(pipe)
        writer = threading.Thread(target=pipe.write_text, args=(content,), daemon=True)
        writer.start()
        self._threads.append(writer)
        return str(pipe)


@pytest.fixture
def pipes(tmp_path: Path) -> Pipes:
    return Pipes(tmp_path / "pipes")


def test_what_is_submitted_and_applied(server: LoopbackServer, topmast: Topmast, pipes: Pipes) -> None:
    submitted = topmast("submit", "-f", pipes.of("workload.yaml", WORKLOAD))
    assert (submitted.exit_code, submitted.stdout) == (0, "w1\n"), submitted.stderr
    applied = topmast("apply", "-f", pipes.of("fleet", FLEET), "-f", pipes.of("tenants", TENANTS))
    assert applied.exit_code == 0, applied.stderr
    assert server.topmast.calls["ApplyFleet"] == 1


def test_a_folder_is_no_file(topmast: Topmast, tmp_path: Path) -> None:
    for arguments in (("submit", "-f", str(tmp_path)), ("trace", "inspect", str(tmp_path))):
        refused = topmast(*arguments)
        assert refused.exit_code == 2
        assert f"{tmp_path} is a folder; name a file" in refused.stderr


def test_what_is_simulated_validated_and_reported(topmast: Topmast, pipes: Pipes, tmp_path: Path) -> None:
    """Files that are read more than once, also by other processes."""
    log = tmp_path / "log.jsonl"
    run = topmast("simulate", "--trace", pipes.of("t.csv", TRACE), "--gpus", "16", "--events", str(log))
    assert run.exit_code == 0, run.stderr
    fleet, tenants = ((tmp_path / f"log.{name}.yaml").read_text() for name in ("fleet", "tenants"))

    def both() -> tuple[str, str, str, str]:
        return ("--fleet", pipes.of("fleet.yaml", fleet), "--tenants", pipes.of("tenants.yaml", tenants))

    again = topmast("simulate", "--trace", pipes.of("t.csv", TRACE), *both())
    assert again.exit_code == 0, again.stderr
    compared = topmast("compare", "--trace", pipes.of("t.csv", TRACE), "--policies", "fifo,srtf", *both())
    assert compared.exit_code == 0, compared.stderr
    valid = topmast("validate", pipes.of("log.jsonl", log.read_text()), *both())
    assert valid.exit_code == 0, valid.stderr
    page = tmp_path / "page.html"
    page.symlink_to(tmp_path / "elsewhere.html")
    reported = topmast("report", pipes.of("log", log.read_text()), *both()[:2], "-o", str(page))
    assert reported.exit_code == 0, reported.stderr
    assert page.is_symlink()
    assert "<html" in (tmp_path / "elsewhere.html").read_text()


def test_what_is_written_into_a_pipe(topmast: Topmast, tmp_path: Path) -> None:
    topmast("run", "--tenant", "vision", "--gpus", "1", "--", "train")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    written = topmast("events", "-o", str(pipe))
    assert written.exit_code == 0, written.stderr
    reader.join(timeout=60)
    assert '"event":"submitted"' in read[0]
    assert pipe.is_fifo()
