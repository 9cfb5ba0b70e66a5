"""A command beside a task and a forwarded port, as somebody types them, on a real service."""

from __future__ import annotations

import asyncio
import os
import pty
import random
import re
import select
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import pytest

from tests.live.interrupts import COMMAND_THAT_HEEDS_INTERRUPTS
from tests.live.real_service import PATIENCE_REAL_S, real_service
from tests.live.real_workloads import SMALL_FLEET, TWO_TENANTS
from topmast import AsyncClient, Client, Workload, WorkloadState

pytestmark = pytest.mark.live

_REPOSITORY = Path(__file__).resolve().parents[2]
_COMMAND = (sys.executable, "-c", "from services.command_line.main import main; main()")


def test_what_is_typed_beside_a_task() -> None:
    with real_service(SMALL_FLEET, TWO_TENANTS, 1.0) as service:
        client, address = service.client, service.client.address
        script = f"{sys.executable} -m http.server --bind 127.0.0.1 0"
        workload = client.submit(tenant="ranking", command=["sh", "-c", script], cpus=1, memory_gib=1).workload
        _until_running(client, workload)
        _streams(client, address, workload)
        asyncio.run(_on_a_loop(address, workload))
        _port(client, address, workload)
        _shell_of_its_own(client, address)
        _ended_while_it_waits(client, address)


def _streams(client: Client, address: str, workload: str) -> None:
    """Through the command and through the client: bytes as they are, and the exit code."""
    data = random.Random(2).randbytes(20 * 2**20)
    typed = subprocess.run(
        [*_COMMAND, "exec", workload, "--", "sh", "-c", "cat; echo said >&2; exit 7"],
        input=data,
        capture_output=True,
        env=_environment(address),
        timeout=PATIENCE_REAL_S,
        check=False,
    )
    assert (typed.stdout == data, typed.stderr, typed.returncode) == (True, b"said\n", 7)
    refused = subprocess.run(
        [*_COMMAND, "exec", workload, "-it"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=_environment(address),
        check=False,
    )
    assert refused.returncode == 2
    assert "needs a terminal at standard input" in refused.stderr
    kept = client.execute(workload, ["sh", "-c", "cat; echo $TOPMAST_WORKLOAD >&2; exit 5"], stdin=BytesIO(b"given"))
    assert (kept.exit_code, kept.output, kept.error_output) == (5, b"given", f"{workload}\n".encode())
    file = BytesIO()
    assert client.execute(workload, ["echo", "there"], stdout=file).output == b""
    assert file.getvalue() == b"there\n"


async def _on_a_loop(address: str, workload: str) -> None:
    async with AsyncClient(address) as client:
        done = await client.execute(workload, ["wc", "-c"], stdin=b"x" * 200_000)
    assert (done.exit_code, done.output.strip()) == (0, b"200000")


def _port(client: Client, address: str, workload: str) -> None:
    said = ""
    for chunk in client.logs(workload, follow=True):
        said += chunk.chunk.decode()
        if "port" in said:
            break
    found = re.search(r"port (\d+)", said)
    assert found is not None
    client.execute(workload, ["sh", "-c", "echo from the task > page"])
    with _forwarding(address, workload, f":{found[1]}", ":1") as (there, nowhere):
        for _ in range(3):
            with urllib.request.urlopen(f"http://127.0.0.1:{there}/page") as answer:
                assert answer.read() == b"from the task\n"
        with pytest.raises(OSError, match=r"."):
            urllib.request.urlopen(f"http://127.0.0.1:{nowhere}/page")


@contextmanager
def _forwarding(address: str, workload: str, *ports: str) -> Iterator[tuple[int, ...]]:
    typed = [*COMMAND_THAT_HEEDS_INTERRUPTS, "port-forward", workload, *ports]
    with subprocess.Popen(typed, stderr=subprocess.PIPE, text=True, env=_environment(address)) as process:
        assert process.stderr is not None
        try:
            lines = [process.stderr.readline() for _ in ports]
            yield tuple(int(line.split()[0].rpartition(":")[2]) for line in lines)
            assert "nothing listens at port 1 of the task's machine" in process.stderr.readline()
        finally:
            process.send_signal(signal.SIGINT)
            try:
                assert process.wait(PATIENCE_REAL_S) == 130
            finally:
                process.kill()


def _shell_of_its_own(client: Client, address: str) -> None:
    with _at_a_terminal(address, "--cpus", "1") as (process, terminal):
        os.write(terminal, b"echo hi-$((1+1)); exit 3\r")
        shown = _shown_until(terminal, "hi-2")
        assert process.wait(PATIENCE_REAL_S) == 3, shown
        workload = _last(client)
    assert workload.state == WorkloadState.CANCELLED
    assert workload.reason == "its shell has ended with exit code 3"


def _ended_while_it_waits(client: Client, address: str) -> None:
    """Nobody is left who could come to its shell."""
    with _at_a_terminal(address, "--cpus", "1", "--hold") as (process, terminal):
        _shown_until(terminal, "PENDING: held")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_REAL_S) == 128 + signal.SIGTERM
        workload = _last(client)
    assert (workload.state, workload.reason) == (WorkloadState.CANCELLED, "its terminal was closed")


@contextmanager
def _at_a_terminal(address: str, *options: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    ours, theirs = pty.openpty()
    typed = [*_COMMAND, "run", "-it", "--tenant", "ranking", "--no-workdir", "--memory-gib", "1", *options]
    environment = _environment(address, SHELL="/bin/sh")
    try:
        with subprocess.Popen(
            typed, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
        ) as process:
            os.close(theirs)
            try:
                yield process, ours
            finally:
                process.kill()
    finally:
        os.close(ours)


def _last(client: Client) -> Workload:
    return max(client.list(tenant="ranking"), key=lambda workload: workload.submitted_s)


def _shown_until(terminal: int, wanted: str) -> str:
    shown = ""
    while wanted not in shown:
        assert select.select([terminal], [], [], PATIENCE_REAL_S)[0], f"{wanted} was not shown: {shown}"
        try:
            shown += os.read(terminal, 65_536).decode()
        except OSError as closed:
            raise AssertionError(f"{wanted} was not shown: {shown}") from closed
    return shown


def _until_running(client: Client, workload: str) -> None:
    for now in client.watch(workload):
        if now.state == WorkloadState.RUNNING:
            return
    raise AssertionError("it has ended")


def _environment(address: str, **more: str) -> dict[str, str]:
    path = os.pathsep.join([str(_REPOSITORY), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "TOPMAST_ADDRESS": address, "PYTHONPATH": path, "TERM": "dumb", **more}
