"""Training that is stopped, resumed, left alone by a killed cluster manager: the whole path, with real gradients."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from domain.workload import Command, JobSpecification
from services.execution.executor import AttemptPhase
from services.execution.runner_messages import TaskStart
from services.runtime.local_ray import ON_LOOPBACK_ONLY
from services.storage.store_urls import StoreUrls
from tests.execution.calls import Stub, calling, end_of, execute, forget, reach, statuses, stop, watch_until
from tests.execution.live import (
    REPOSITORY,
    become_true,
    make_executor,
    own_runners,
    processes_with,
    running,
    until_processes,
    until_text,
    wait_until_gone,
    watchers_of,
)
from tests.execution.orders import job, key, order, placement, shell
from topmast.v1 import cluster_manager_pb2

pytestmark = pytest.mark.live

COMPLETED = cluster_manager_pb2.ATTEMPT_PHASE_COMPLETED
STOPPED = cluster_manager_pb2.ATTEMPT_PHASE_STOPPED

STEPS = 120


def is_held(status: cluster_manager_pb2.AttemptStatus) -> bool:
    return status.workload == "held" and status.phase == cluster_manager_pb2.ATTEMPT_PHASE_HELD


def training_job(seconds_per_step: float) -> JobSpecification:
    script = str(REPOSITORY / "examples" / "training" / "numpy_regression.py")
    options = ("--steps", str(STEPS), "--save-every", "1000", "--seconds-per-step", str(seconds_per_step))
    return job(Command(("python", script, *options)))


@dataclass
class ServerProcess:
    """A cluster manager that can be killed."""

    process: subprocess.Popen[str]
    port: int

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@contextmanager
def server_process(ray_address: str, home: Path) -> Iterator[ServerProcess]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.execution.server_process", ray_address, str(home)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=REPOSITORY,
        env={**os.environ, **ON_LOOPBACK_ONLY},
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            yield ServerProcess(process, int(process.stdout.readline()))
        finally:
            process.kill()


def test_a_preempted_training_resumes_and_ends_as_if_nothing_had_happened(ray_address: str, home: Path) -> None:
    async def scenario(port: int) -> tuple[str, str]:
        async with calling(port) as stub:
            await execute(stub, order(training_job(0.0), workload="undisturbed"), order(training_job(0.02)))
            await reach(stub, key(), 10)
            await stop(stub, key())
            stopped = await end_of(stub, key())
            assert stopped.phase == STOPPED
            # It saves only when it is told to stop: all that it had done.
            assert 0 < stopped.checkpoint_progress == stopped.progress < STEPS
            await execute(stub, order(training_job(0.0), attempt=2, progress=stopped.checkpoint_progress))
            assert (await end_of(stub, key(attempt=2))).phase == COMPLETED
            assert (await end_of(stub, key("undisturbed"))).phase == COMPLETED
            resumed_log = await read_log(stub, "w", 2)
            assert f"resumed at step {stopped.checkpoint_progress:.0f}\n" in resumed_log
            answer = resumed_log.splitlines()[-1], (await read_log(stub, "undisturbed", 1)).splitlines()[-1]
            await forget(stub, key(), key(attempt=2), key("undisturbed"))
            return answer

    with server_process(ray_address, home) as server:
        resumed, undisturbed = asyncio.run(scenario(server.port))
    assert resumed == undisturbed
    assert resumed.startswith(f"finished at step {STEPS} digest ")


async def read_log(stub: Stub, workload: str, attempt: int) -> str:
    request = cluster_manager_pb2.ReadLogsRequest(workload=workload, attempt=attempt)
    return b"".join([answer.chunk async for answer in stub.ReadLogs(request)]).decode()


def test_a_killed_cluster_manager_leaves_running_what_runs_and_the_next_one_adopts_it(
    ray_address: str, home: Path
) -> None:
    """Running: goes on and reports to the new address. Ended meanwhile: its end is told. Held: is still held."""
    meanwhile = shell(f"while [ ! -e {home}/go ]; do sleep 0.05; done; exit 4")

    async def before(port: int) -> None:
        async with calling(port) as stub:
            await execute(
                stub,
                order(training_job(0.1)),
                order(meanwhile, workload="meanwhile"),
                order(shell("true"), workload="held", hold=True),
            )
            await reach(stub, key(), 5)
            await watch_until(stub, lambda status: status.workload == "meanwhile" and status.started_s > 0)
            # It has its place: before that nothing of it could be found.
            await watch_until(stub, is_held)

    async def after(port: int) -> None:
        async with calling(port) as stub:
            adopted = {status.workload: status for status in await statuses(stub)}
            assert adopted["w"].phase == cluster_manager_pb2.ATTEMPT_PHASE_RUNNING
            assert adopted["w"].started_s > 0
            # Told again once its files are known to be there.
            await watch_until(stub, is_held)
            assert adopted["meanwhile"].phase == cluster_manager_pb2.ATTEMPT_PHASE_FAILED
            assert adopted["meanwhile"].reason.startswith("task 0 of job train on machine m0: exit code 4")
            # The order is given again, as after every restart: nothing starts twice.
            await execute(stub, order(training_job(0.1), started_s=adopted["w"].started_s))
            await reach(stub, key(), 10)
            await execute(stub, order(shell("true"), workload="held"))
            assert (await end_of(stub, key("held"))).phase == COMPLETED
            await stop(stub, key())
            stopped = await end_of(stub, key())
            assert (stopped.phase, stopped.checkpoint_progress) == (STOPPED, stopped.progress)
            await forget(stub, key(), key("held"), key("meanwhile"))

    home.mkdir()
    with server_process(ray_address, home) as first:
        asyncio.run(before(first.port))
        (trainer,) = (
            process
            for process in processes_with("numpy_regression.py --steps")
            if process.environ().get("TOPMAST_TASK_FILE", "").startswith(str(home))
        )
        first.kill()
    (home / "go").touch()
    with server_process(ray_address, home) as second:
        assert trainer.is_running()
        asyncio.run(after(second.port))
    wait_until_gone(str(home))


def test_the_orphan_of_an_older_attempt_is_killed_on_start(ray_address: str, home: Path) -> None:
    """Two cluster managers that know nothing of each other have each started one; the start of the newer one or the third manager
    puts it right."""
    assert ray_address

    async def scenario() -> None:
        oblivious = [make_executor(home), make_executor(home)]
        await oblivious[0].execute(order(shell("exec sleep 86400.6666")))
        await oblivious[1].execute(order(shell("exec sleep 86400.6667"), attempt=2))
        await until_processes("86400.6667", 1)
        for executor in oblivious:
            await executor.close()
        async with running(make_executor(home)) as watched:
            await asyncio.to_thread(wait_until_gone, "86400.6666")
            await watched.phase(key(attempt=2), AttemptPhase.RUNNING)
            assert [process.cmdline()[-1] for process in processes_with("86400.666")] == ["86400.6667"]
            survivor = watched.executor.statuses()[-1]
            assert (survivor.key, survivor.phase) == (key(attempt=2), AttemptPhase.RUNNING)

    asyncio.run(scenario())


def test_an_older_attempt_that_was_never_started_makes_way_for_the_newer_one_on_start(
    ray_address: str, home: Path
) -> None:
    assert ray_address

    async def scenario() -> None:
        oblivious = [make_executor(home), make_executor(home)]
        await oblivious[0].execute(order(shell("exec sleep 86400.6668"), hold=True))
        await become_true(lambda: bool(own_runners()))
        await oblivious[1].execute(order(shell("exec sleep 86400.6669"), attempt=2))
        await until_processes("86400.6669", 1)
        for executor in oblivious:
            await executor.close()
        async with running(make_executor(home)) as watched:
            older = await watched.phase(key(), AttemptPhase.STOPPED)
            assert "attempt 2" in older.reason
            await watched.phase(key(attempt=2), AttemptPhase.RUNNING)
            assert not processes_with("86400.6668")

    asyncio.run(scenario())


def test_a_gang_that_was_never_whole_is_cleared_away_on_start(ray_address: str, home: Path) -> None:
    """The cluster manager was killed while it made the runners: the order comes again, and starts from nothing."""
    assert ray_address
    made = order(shell("echo once", tasks=2), hold=True)

    async def scenario() -> None:
        broken = make_executor(home)
        await broken._pool.create(made, made.placements[:1])
        await broken.close()
        await become_true(lambda: bool(own_runners()))
        async with running(make_executor(home)) as watched:
            assert watched.executor.statuses() == ()
            await watched.executor.execute(order(shell("echo once", tasks=2)))
            await watched.phase(key(), AttemptPhase.COMPLETED)

    asyncio.run(scenario())


def test_a_gang_that_was_started_in_part_is_started_as_a_whole(ray_address: str, home: Path) -> None:
    """The cluster manager was killed between the starts of two tasks; each waits for the other."""
    assert ray_address
    script = f"touch {home}/$TOPMAST_TASK; while [ ! -e {home}/0 ] || [ ! -e {home}/1 ]; do sleep 0.05; done"
    made = order(shell(script, tasks=2))

    async def scenario() -> None:
        broken = make_executor(home)
        first, second = await broken._pool.create(made, made.placements)
        start = TaskStart(await first.rendezvous(), "127.0.0.1:9", 1000.0, home, StoreUrls(f"file://{home}"))
        await first.start(start)
        await second.describe()
        await broken.close()
        async with running(make_executor(home)) as watched:
            completed = await watched.phase(key(), AttemptPhase.COMPLETED)
            assert completed.started_s == 1000.0

    home.mkdir()
    asyncio.run(scenario())


def test_an_adopted_gang_can_grow(ray_address: str, home: Path) -> None:
    assert ray_address
    waiting = shell("echo ready; exec sleep 86400.8888", max_tasks=2)

    async def scenario() -> None:
        first = make_executor(home)
        await first.execute(order(waiting))
        await until_processes("86400.8888", 1)
        await first.close()
        async with running(make_executor(home)) as watched:
            await watched.phase(key(), AttemptPhase.RUNNING)
            await watched.executor.resize(key(), (placement(), placement(task=1)), 1)
            await until_processes("86400.8888", 2)
            await until_text(home / "tasks/w/1/train-1/task.json", '"rank": 1, "world_size": 2')

    asyncio.run(scenario())


def test_a_runner_that_died_unseen_is_lost_on_adoption(ray_address: str, home: Path) -> None:
    assert ray_address

    async def scenario() -> None:
        first = make_executor(home)
        await first.execute(order(shell("exec sleep 86400.7777", tasks=2)))
        await until_processes("86400.7777", 2)
        await first.close()
        *_, runner = watchers_of(processes_with("86400.7777")[0])
        os.kill(runner.pid, signal.SIGKILL)
        await asyncio.to_thread(runner.wait)
        async with running(make_executor(home)) as watched:
            lost = await watched.phase(key(), AttemptPhase.LOST)
            assert lost.reason.endswith("its runner is gone") or "was lost" in lost.reason
            assert not processes_with("86400.7777")

    asyncio.run(scenario())
