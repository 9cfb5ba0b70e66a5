"""What goes wrong is one sentence that says what to do, an exit code, and never a traceback."""

from __future__ import annotations

import os
import pty
import socket
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
from google.protobuf import duration_pb2
from google.rpc import error_details_pb2
from typer.testing import CliRunner

from services.command_line.main import app
from tests.client.loopback_server import LoopbackServer
from tests.command_line.conftest import Topmast
from topmast import Client, Emulated
from topmast.v1 import workload_pb2

COMMAND = (sys.executable, "-c", "from services.command_line.main import main; main()")


def test_what_is_not_there_is_not_found(topmast: Topmast) -> None:
    for command in ("get", "watch", "logs", "cancel"):
        result = topmast(command, "w9")
        assert result.exit_code == 3, command
        assert result.stderr == "topmast: there is no workload w9\n"
        assert result.stdout == ""


def test_a_size_that_no_job_can_have_is_wrong_usage(topmast: Topmast) -> None:
    result = topmast("resize", "w9", "main=99999999999")
    assert result.exit_code == 2
    assert "more tasks than a job can have" in result.stderr


def test_nobody_there_says_how_to_start(topmast: Topmast) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    result = topmast("status", "--address", address)
    assert result.exit_code == 5
    assert result.stderr.startswith(f"topmast: Topmast at {address} does not answer")
    assert "start it with 'topmast up', or say where it is with --address or TOPMAST_ADDRESS" in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_home_without_a_service_asks_nobody_else(tmp_path: Path) -> None:
    for command in (("status",), ("cancel", "w1"), ("queue",)):
        result = Topmast({"TOPMAST_HOME": str(tmp_path)})(*command)
        assert result.exit_code == 5, result.stderr
        assert result.stderr == (
            f"topmast: no Topmast is up from {tmp_path}; start it with 'topmast up', or say where it is with --address or"
            " TOPMAST_ADDRESS\n"
        )


def test_the_default_address_is_no_secret(tmp_path: Path) -> None:
    """Where nothing says where Topmast is, a command says whom it asks."""
    result = Topmast({"HOME": str(tmp_path), "TOPMAST_HOME": ""})("queue", "--limit", "1")
    assert f"no Topmast is up from {tmp_path}/.topmast; asking the one at 127.0.0.1:7460" in result.stderr


def test_an_empty_address_is_refused(server: LoopbackServer) -> None:
    """As where the variable of a script is not set."""
    result = Topmast({"TOPMAST_ADDRESS": server.address})("status", "--address", "")
    assert result.exit_code == 2
    assert "is empty, as from a variable that is not set" in result.stderr


def test_the_address_may_stand_before_the_command(server: LoopbackServer) -> None:
    nowhere = Topmast({"TOPMAST_ADDRESS": "127.0.0.1:1"})
    assert nowhere("--address", server.address, "status").exit_code == 0
    assert nowhere("--address", "127.0.0.1:1", "status", "--address", server.address).exit_code == 0


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, 4),
        (grpc.StatusCode.FAILED_PRECONDITION, 4),
        (grpc.StatusCode.ALREADY_EXISTS, 4),
        (grpc.StatusCode.INTERNAL, 70),
        (grpc.StatusCode.DEADLINE_EXCEEDED, 5),
    ],
)
def test_each_refusal_has_its_exit_code(
    server: LoopbackServer, topmast: Topmast, code: grpc.StatusCode, exit_code: int
) -> None:
    server.do(lambda: server.topmast.fail("GetStatus", code, "as things are"))
    result = topmast("status")
    assert result.exit_code == exit_code
    assert result.stderr.startswith("topmast: ")


def test_an_overloaded_server_says_when_to_try_again(server: LoopbackServer, topmast: Topmast) -> None:
    advice = error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(seconds=2_000))
    server.do(lambda: server.topmast.fail("GetStatus", grpc.StatusCode.RESOURCE_EXHAUSTED, "too many calls", advice))
    assert topmast("status").stderr == "topmast: too many calls; try again in 2000 s\n"


def test_what_nobody_foresaw_is_a_sentence_too(
    server: LoopbackServer, topmast: Topmast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TOPMAST_DEBUG", raising=False)
    # JSON has no infinity: it was not foreseen that the server would send one.
    server.do(lambda: server.topmast.add_event(t=float("inf"), event="ranked"))
    result = topmast("events", "--json")
    assert result.exit_code == 70
    assert result.stderr.startswith("topmast: internal error (ValueError: ")
    assert "Traceback" not in result.stderr
    monkeypatch.setenv("TOPMAST_DEBUG", "1")
    assert "Traceback" in topmast("events", "--json").stderr


@pytest.mark.parametrize(
    "arguments",
    [("fly",), ("list", "--state", "FLYING"), ("list", "--submitted-after", "soon"), ("submit",), ("get",)],
    ids=["command", "state", "time", "no_file", "no_workload"],
)
def test_wrong_usage_is_reported_as_such(topmast: Topmast, arguments: tuple[str, ...]) -> None:
    result = topmast(*arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_a_file_that_is_not_there_is_wrong_usage(topmast: Topmast, tmp_path: Path) -> None:
    assert topmast("submit", "-f", str(tmp_path / "none.yaml")).exit_code == 2
    assert topmast("events", "--output", str(tmp_path / "none" / "events.jsonl")).exit_code == 2


def test_a_reader_that_has_enough_is_no_error(server: LoopbackServer) -> None:
    def add_events() -> None:
        for _ in range(5_000):
            server.topmast.add_event(t=1.0, event="ranked", workload="w1")

    server.do(add_events)
    environment = {**os.environ, "TOPMAST_ADDRESS": server.address}
    with subprocess.Popen(
        [*COMMAND, "events"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == 141


@pytest.mark.parametrize(
    ("arguments", "part"), [(("status",), "Regions"), (("watch", "w1"), "COMPLETED"), (("list",), "[bold]load")]
)
def test_a_terminal_gets_tables_and_no_markup(server: LoopbackServer, arguments: tuple[str, ...], part: str) -> None:
    with Client(server.address) as client:
        client.submit(tenant="vision", name="[bold]load", gpus=1, emulated=Emulated(duration_s=60.0))
    server.do(lambda: server.topmast.move("w1", workload_pb2.WORKLOAD_STATE_COMPLETED))
    environment = {**os.environ, "TOPMAST_ADDRESS": server.address, "TERM": "xterm", "COLUMNS": "120"}
    ours, theirs = pty.openpty()
    try:
        with os.fdopen(theirs, "wb") as terminal:
            subprocess.run([*COMMAND, *arguments], env=environment, stdout=terminal, timeout=60, check=True)
        shown = os.read(ours, 100_000).decode()
    finally:
        os.close(ours)
    assert part in shown
    assert "─" in shown


def test_the_shell_completes_workloads(server: LoopbackServer) -> None:
    with Client(server.address) as client:
        client.submit(tenant="vision", name="load", gpus=1, emulated=Emulated(duration_s=60.0))
    asked = {"_TOPMAST_COMPLETE": "complete_bash", "COMP_WORDS": "topmast get w", "COMP_CWORD": "2"}
    for address, offered in ((server.address, "w1"), ("127.0.0.1:1", "")):
        answer = CliRunner(env={**asked, "TOPMAST_ADDRESS": address}).invoke(app, [], prog_name="topmast")
        assert answer.stdout.strip() == offered
        assert answer.stderr == ""


def test_nothing_heavy_is_imported_for_a_quick_answer() -> None:
    program = (
        "import sys\n"
        "from services.command_line.main import app\n"
        "app(['version'], standalone_mode=False)\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}), file=sys.stderr)\n"
    )
    quick = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert quick.stdout.startswith("topmast ")
    loaded = set(quick.stderr.split())
    assert "services" in loaded
    assert not loaded & {"ray", "numba", "numpy", "sqlalchemy", "psycopg", "grpc", "google", "alembic", "yaml"}
