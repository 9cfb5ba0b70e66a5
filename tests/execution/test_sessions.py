"""Commands beside a running task, and connections to ports of its machine, through the cluster manager's server."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import psutil
import pytest

from services.clock import SystemClock
from services.cluster_manager.server import ClusterManagerServer
from services.execution.attempt_sessions import MOST_SESSIONS
from services.execution.emulated_executor import EmulatedExecutor
from services.execution.executor import AttemptPhase, Executor
from services.execution.task_paths import COMMANDS_FILE_NAME, TaskPaths
from tests.execution.conftest import cluster_of
from tests.execution.live import (
    Watched,
    become_true,
    make_executor,
    processes_with,
    until_processes,
    until_text,
    wait_until_gone,
    watchers_of,
)
from tests.execution.orders import emulated, key, order, shell
from topmast.v1 import cluster_manager_pb2 as messages
from topmast.v1 import cluster_manager_pb2_grpc

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("ray_address")]

SLEEPER = "exec sleep 86400.7001"
SIZE = messages.TerminalSize(rows=31, columns=97)


@dataclass
class Said:
    """What a session has answered."""

    output: bytes = b""
    error_output: bytes = b""
    exit_code: int | None = None
    opened: messages.SessionOpened = field(default_factory=messages.SessionOpened)

    def take(self, response: messages.OpenSessionResponse) -> None:
        match response.WhichOneof("part"):
            case "opened":
                self.opened = response.opened
            case "output":
                self.output += response.output
            case "error_output":
                self.error_output += response.error_output
            case "exit_code":
                self.exit_code = response.exit_code
            case _:
                raise AssertionError("an empty response")


@dataclass
class Manager:
    """A cluster manager with its executor, and a caller of it."""

    watched: Watched
    stub: cluster_manager_pb2_grpc.ClusterManagerAsyncStub
    home: Path

    async def run(self, script: str, *inputs: bytes, task: int = 0, job: str = "") -> Said:
        """A shell script beside the task, to its end."""
        return await self.talk(opening("sh", "-c", script, task=task, job=job), inputs)

    async def talk(self, first: messages.SessionOpening, inputs: Iterable[bytes]) -> Said:
        async def requests() -> AsyncIterator[messages.OpenSessionRequest]:
            yield messages.OpenSessionRequest(opening=first)
            for chunk in inputs:
                yield messages.OpenSessionRequest(input=chunk)

        said = Said()
        async for response in self.stub.OpenSession(requests()):
            said.take(response)
        return said

    async def refused(self, first: messages.SessionOpening) -> tuple[grpc.StatusCode, str]:
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await self.talk(first, ())
        return refusal.value.code(), refusal.value.details() or ""


def opening(
    *arguments: str, terminal: bool = False, task: int = 0, job: str = "", workload: str = "w"
) -> messages.SessionOpening:
    command = messages.SessionCommand(
        arguments=arguments, terminal=messages.SessionTerminal(size=SIZE, name="xterm") if terminal else None
    )
    return messages.SessionOpening(workload=workload, job=job, task=task, command=command)


@asynccontextmanager
async def managed(home: Path, executor: Executor | None = None) -> AsyncIterator[Manager]:
    ray_executor = make_executor(home)
    watched = Watched(ray_executor)
    server = ClusterManagerServer(cluster_of(home), executor or ray_executor, SystemClock())
    port = await server.start("127.0.0.1:0")
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield Manager(watched, cluster_manager_pb2_grpc.ClusterManagerStub(channel), home)
    finally:
        await server.stop(0.5)


def with_task(home: Path, story: Callable[[Manager], Awaitable[None]], script: str = SLEEPER, tasks: int = 1) -> None:
    """A story about a workload that runs."""

    async def scenario() -> None:
        async with managed(home) as manager:
            await manager.watched.executor.execute(order(shell(script, tasks=tasks)))
            await manager.watched.phase(key(), AttemptPhase.RUNNING)
            await story(manager)

    asyncio.run(scenario())


def test_a_command_runs_as_the_task_does(home: Path) -> None:
    async def story(manager: Manager) -> None:
        said = await manager.run('echo "$RANK of $WORLD_SIZE in $PWD"; echo wrong >&2; exit 3', task=1)
        (directory,) = {str(Path(process.cwd())) for process in processes_with("86400.7001")}
        assert said.output.decode() == f"1 of 2 in {directory}\n"
        assert (said.error_output, said.exit_code) == (b"wrong\n", 3)
        assert (said.opened.attempt, said.opened.job, said.opened.task) == (1, "train", 1)
        killed = await manager.run("kill -9 $$")
        assert killed.exit_code == 128 + signal.SIGKILL
        code, sentence = await manager.refused(opening("no-such-program"))
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert "could not start" in sentence
        assert "no-such-program" in sentence

    with_task(home, story, tasks=2)


def test_twenty_megabytes_go_in_and_out_unharmed(home: Path) -> None:
    data = random.Random(1).randbytes(20 * 2**20)
    chunks = [data[start : start + 100_000] for start in range(0, len(data), 100_000)]

    async def story(manager: Manager) -> None:
        said = await manager.run("cat", *chunks)
        assert hashlib.sha256(said.output).digest() == hashlib.sha256(data).digest()
        assert said.exit_code == 0
        # A command that takes none of it ends all the same, and its caller is told how: whenever it ends.
        for moment in range(20):
            assert (await manager.run(f"sleep 0.{moment:02}; exit 4", *chunks)).exit_code == 4

    with_task(home, story)


def test_a_terminal_is_one(home: Path) -> None:
    async def story(manager: Manager) -> None:
        first = opening("sh", "-c", "stty size; tty; echo $TERM; read word; stty size; echo got $word", terminal=True)
        said = Said()
        call = manager.stub.OpenSession()
        await call.write(messages.OpenSessionRequest(opening=first))
        typed = False
        async for response in call:
            said.take(response)
            if b"xterm" in said.output and not typed:
                typed = True
                resized = messages.TerminalSize(rows=10, columns=20)
                await call.write(messages.OpenSessionRequest(resized=resized))
                await call.write(messages.OpenSessionRequest(input=b"hi\n"))
        lines = said.output.decode().replace("\r", "").splitlines()
        assert lines[0] == "31 97"
        assert lines[1].startswith("/dev/pts/")
        assert lines[2] == "xterm"
        # Where its echo stands depends on when the shell began to read.
        assert [line for line in lines[3:] if line != "hi"] == ["10 20", "got hi"]
        assert (said.error_output, said.exit_code) == (b"", 0)
        # Ctrl-C is for the command that runs in it, and what was printed last is not lost.
        long = await manager.talk(opening("sh", "-c", "seq 20000; echo end", terminal=True), ())
        assert long.output.replace(b"\r", b"").split()[-2:] == [b"20000", b"end"]

    with_task(home, story)


def test_a_command_ends_with_its_caller_and_with_the_task(home: Path) -> None:
    async def story(manager: Manager) -> None:
        # 1. The caller leaves, while the command takes none of its input.
        call = manager.stub.OpenSession()
        first = opening("sh", "-c", "trap '' HUP; (setsid sleep 86400.7002 &); sleep 86400.7002")
        await call.write(messages.OpenSessionRequest(opening=first))
        await until_processes("sleep 86400.7002", 3)
        commands = TaskPaths(manager.home).task_directory(key(), order(shell("")).placements[0].job, 0)
        await until_text(commands / COMMANDS_FILE_NAME, "1")

        async def flood() -> None:
            while True:
                await call.write(messages.OpenSessionRequest(input=b"x" * 100_000))

        flooding = asyncio.create_task(flood())
        await asyncio.wait({flooding}, timeout=0.5)
        assert not flooding.done()
        flooding.cancel()
        call.cancel()
        await asyncio.to_thread(wait_until_gone, "86400.7002")
        await until_text(commands / COMMANDS_FILE_NAME, "0")
        # 2. The task ends first.
        ending = asyncio.create_task(manager.refused(opening("sleep", "86400.7003")))
        await until_processes("86400.7003", 1)
        await manager.watched.executor.stop(key(), 0.0)
        await manager.watched.end(key())
        assert not processes_with("86400.7003")
        assert await ending == (grpc.StatusCode.FAILED_PRECONDITION, "the task has ended")
        code, sentence = await manager.refused(opening("true"))
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert sentence.startswith("attempt 1 does not run, it is stopped")

    with_task(home, story)


def test_a_killed_runner_leaves_no_command_behind(home: Path) -> None:
    async def story(manager: Manager) -> None:
        ending = asyncio.create_task(manager.refused(opening("sh", "-c", "setsid sleep 86400.7004")))
        await until_processes("86400.7004", 2)
        *_, runner = watchers_of(processes_with("86400.7001")[0])
        os.kill(runner.pid, signal.SIGKILL)
        await asyncio.to_thread(wait_until_gone, "86400.700")
        assert await ending == (grpc.StatusCode.FAILED_PRECONDITION, "the runner of the task is gone")

    with_task(home, story)


def test_a_killed_reaper_of_a_command_leaves_nothing_of_it_behind(home: Path) -> None:
    async def story(manager: Manager) -> None:
        # One that does not die with the shell by itself.
        script = "trap '' HUP; sleep 86400.7006 & wait"
        ending = asyncio.create_task(manager.talk(opening("sh", "-c", script), ()))
        await until_processes("sleep 86400.7006", 2)
        command = next(one for one in processes_with("86400.7006") if one.name() == "sh")
        assert (await manager.run(f"cat /proc/{command.pid}/oom_score_adj")).output == b"1000\n"
        os.kill(command.ppid(), signal.SIGKILL)
        await asyncio.to_thread(wait_until_gone, "86400.7006")
        assert (await ending).exit_code == 128 + signal.SIGKILL
        assert (await manager.run("exit 0")).exit_code == 0

    with_task(home, story)


def test_a_caller_that_does_not_read_costs_no_memory_and_holds_nobody_up(home: Path) -> None:
    async def story(manager: Manager) -> None:
        call = manager.stub.OpenSession()
        await call.write(messages.OpenSessionRequest(opening=opening("sh", "-c", "exec yes 86400.7005")))
        (command,) = await _processes("yes 86400.7005")
        # It comes to a standstill: what it has printed is not stored anywhere without an end.
        await become_true(lambda: command.status() == psutil.STATUS_SLEEPING)
        first = command.io_counters().write_chars
        assert (await manager.run("echo others go on")).output == b"others go on\n"
        assert command.io_counters().write_chars - first < 64 * 2**20
        call.cancel()
        await asyncio.to_thread(wait_until_gone, "86400.7005")

    with_task(home, story)


def test_ports_of_the_machine(home: Path) -> None:
    script = (
        "import http.server, pathlib, functools\n"
        "server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)\n"
        "pathlib.Path('page').write_text('from the task')\n"
        "print('port', server.server_address[1], flush=True)\n"
        "server.serve_forever()\n"
    )

    async def story(manager: Manager) -> None:
        printed = ""
        while "port" not in printed:
            printed = await manager.watched.log(key())
        port = int(printed.split()[1])
        asked = messages.SessionOpening(workload="w", port=port)
        request = b"GET /page HTTP/1.0\r\n\r\n"
        answers = await asyncio.gather(*(manager.talk(asked, [request]) for _ in range(8)))
        assert all(answer.output.endswith(b"from the task") for answer in answers)
        code, sentence = await manager.refused(messages.SessionOpening(workload="w", port=1))
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert sentence.startswith("nothing listens at port 1 of the task's machine")

    with_task(home, story, f'exec python3 -c "{script}"')


def test_what_cannot_be(home: Path) -> None:
    async def story(manager: Manager) -> None:
        code, sentence = await manager.refused(opening("true", workload="nobody"))
        assert (code, "nobody" in sentence) == (grpc.StatusCode.NOT_FOUND, True)
        code, sentence = await manager.refused(opening("true", task=2))
        assert (code, sentence) == (grpc.StatusCode.NOT_FOUND, "there is no task 'task 2'; job train has here: 0, 1")
        code, sentence = await manager.refused(opening("true", job="other"))
        assert code is grpc.StatusCode.NOT_FOUND
        assert "train" in sentence
        code, sentence = await manager.refused(opening())
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert "command.arguments" in sentence
        code, sentence = await manager.refused(messages.SessionOpening(workload="w", port=70_000))
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert "port" in sentence
        code, sentence = await manager.refused(opening("a\0b"))
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert "zero byte" in sentence
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await manager.talk(opening("cat"), [b"x" * (2**20 + 1)])
        assert refusal.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        calls = []
        for _ in range(MOST_SESSIONS):
            call = manager.stub.OpenSession()
            calls.append(call)
            await call.write(messages.OpenSessionRequest(opening=opening("cat")))
            await call.read()
        code, sentence = await manager.refused(opening("true"))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert str(MOST_SESSIONS) in sentence
        for call in calls:
            call.cancel()

    with_task(home, story, tasks=2)


def test_what_is_emulated_has_no_process(home: Path) -> None:
    async def scenario() -> None:
        executor = EmulatedExecutor(SystemClock())
        async with managed(home, executor) as manager:
            await executor.execute(emulated(1e6))
            refused = await manager.refused(opening("true"))
            assert refused == (grpc.StatusCode.FAILED_PRECONDITION, "it is emulated: there is no process")

    asyncio.run(scenario())


async def _processes(mark: str) -> list[psutil.Process]:
    await until_processes(mark, 1)
    return processes_with(mark)
