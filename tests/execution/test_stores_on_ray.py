"""Attempts leave their checkpoints and logs in stores, and the next one finds them, whatever the home of its tier: real processes."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from domain.identifiers import ClusterId
from domain.workload import Command, JobSpecification
from services.clock import SystemClock
from services.cluster_manager.server import ClusterManagerServer
from services.execution.executor import AttemptPhase, LogRequest
from services.execution.ray_executor import RayExecutor
from tests.execution.conftest import cluster_of
from tests.execution.live import REPOSITORY, become_true, make_executor, own_runners, running, until_text
from tests.execution.orders import job, key, order, placement, shell
from topmast.training.checkpoints import newest_progress

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("ray_address")]

STEPS = 120


@pytest.fixture
def other_home(tmp_path: Path) -> Path:
    """TOPMAST_HOME of another tier."""
    return tmp_path / "elsewhere" / "home"


class Stores:
    """All that the tiers have in common."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def executor(self, home: Path, cluster: ClusterId | None = None) -> RayExecutor:
        checkpoints, logs = f"file://{self.folder / 'checkpoints'}", f"file://{self.folder / 'printed'}"
        return make_executor(home, checkpoints=checkpoints, logs=logs, cluster=cluster)


@pytest.fixture
def stores(tmp_path: Path) -> Stores:
    return Stores(tmp_path)


def training(seconds_per_step: float, save_every: int) -> JobSpecification:
    script = str(REPOSITORY / "examples" / "training" / "numpy_regression.py")
    options = (
        *("--steps", str(STEPS), "--save-every", str(save_every)),
        *("--seconds-per-step", str(seconds_per_step)),
    )
    return job(Command(("python", script, *options)))


def test_a_preempted_training_resumes_where_nothing_but_the_stores_is_shared(
    home: Path, other_home: Path, stores: Stores
) -> None:
    """Also a cluster manager of the other home reads what the first attempt has printed."""

    async def scenario() -> tuple[float, str, str, str, str]:
        executor = stores.executor(home)
        server = ClusterManagerServer(cluster_of(home), executor, SystemClock())
        port = await server.start("127.0.0.1:0")
        try:
            async with running(executor, f"127.0.0.1:{port}") as watched:
                first = order(training(0.05, 5))
                await executor.execute(first)
                told = await watched.until(lambda status: status.checkpoint_progress > 0)
                assert told.phase is AttemptPhase.RUNNING
                await executor.stop(first.key, 60.0)
                stopped = await watched.phase(first.key, AttemptPhase.STOPPED)
                log = await watched.log(first.key)
        finally:
            await server.stop(1.0)
        async with running(stores.executor(other_home)) as watched:
            second = order(training(0.0, 1000), attempt=2, progress=stopped.checkpoint_progress)
            await watched.executor.execute(second)
            await watched.phase(second.key, AttemptPhase.COMPLETED)
            tail = LogRequest(first.key.workload, first.key.attempt, tail_lines=1)
            last = b"".join([chunk.chunk async for chunk in watched.executor.read_logs(tail)]).decode()
            return (
                stopped.checkpoint_progress,
                log,
                await watched.log(first.key),
                last,
                await watched.log(second.key),
            )

    progress, log, log_elsewhere, last, resumed = asyncio.run(scenario())
    assert 0 < progress < STEPS
    assert f"resumed at step {progress:.0f}\n" in resumed
    assert f"finished at step {STEPS}" in resumed
    assert log == log_elsewhere != ""
    assert log.endswith(last)
    assert last.count("\n") == 1
    assert not (other_home / "logs" / "w" / "1").exists()


def test_files_of_a_plain_command_come_along_and_its_last_words_are_read_from_the_store(
    home: Path, other_home: Path, stores: Stores
) -> None:
    write = 'echo first > "$TOPMAST_CHECKPOINT_DIRECTORY/state.txt"; echo done here'
    read = 'cat "$TOPMAST_CHECKPOINT_DIRECTORY/state.txt"; env | grep -c printed; echo it breaks; exit 3'

    async def scenario() -> tuple[str, str]:
        async with running(stores.executor(home)) as watched:
            first = order(shell(write))
            await watched.executor.execute(first)
            await watched.phase(first.key, AttemptPhase.COMPLETED)
        async with running(stores.executor(other_home)) as watched:
            second = order(shell(read), attempt=2)
            await watched.executor.execute(second)
            failed = await watched.phase(second.key, AttemptPhase.FAILED)
            return await watched.log(second.key), failed.reason

    log, reason = asyncio.run(scenario())
    # Where the stores are is not for tasks.
    assert log.splitlines() == ["first", "0", "it breaks"]
    assert reason.endswith("it breaks")


def test_a_runner_that_is_killed_leaves_what_was_told(home: Path, other_home: Path, stores: Stores) -> None:
    """Of the checkpoint that was not told the next attempt may have all, but never half."""

    async def scenario() -> tuple[float, float, str]:
        executor = stores.executor(home)
        async with running(executor) as watched:
            first = order(training(0.05, 5))
            await executor.execute(first)
            told = await watched.until(lambda status: status.checkpoint_progress > 0)
            for runner in own_runners():
                runner.send_signal(signal.SIGKILL)
            lost = await watched.phase(first.key, AttemptPhase.LOST)
        async with running(stores.executor(other_home)) as watched:
            second = order(training(0.0, 1000), attempt=2, progress=lost.checkpoint_progress)
            await watched.executor.execute(second)
            await watched.phase(second.key, AttemptPhase.COMPLETED)
            return told.checkpoint_progress, lost.checkpoint_progress, await watched.log(second.key)

    told, lost, log = asyncio.run(scenario())
    assert 0 < told <= lost
    assert f"resumed at step {lost:.0f}\n" in log


def test_a_store_that_is_not_there_ends_the_attempt_as_a_lost_machine_does(home: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    async def scenario() -> str:
        async with running(make_executor(home, checkpoints=f"file://{tmp_path / 'file' / 'store'}")) as watched:
            await watched.executor.execute(order(shell("true")))
            return (await watched.phase(key(), AttemptPhase.LOST)).reason

    reason = asyncio.run(scenario())
    assert "its checkpoint cannot be fetched: the store of checkpoints, file://" in reason


def test_what_was_printed_is_followed_from_another_home(home: Path, other_home: Path, stores: Stores) -> None:
    """By the manager of the same cluster that has come after the first one, on another machine."""
    cluster = ClusterId("common")
    words = shell(f"echo one; while [ ! -e {home}/go ]; do sleep 0.05; done; echo two")

    async def scenario() -> str:
        first = stores.executor(home, cluster)
        await first.start("127.0.0.1:9")
        await first.execute(order(words))
        await until_text(home / "logs" / "w" / "1" / "train-0.log", "one")
        await first.close()
        async with running(stores.executor(other_home, cluster)) as watched:
            read = b""
            async for chunk in watched.executor.read_logs(LogRequest(key().workload, follow=True)):
                read += chunk.chunk
                (home / "go").touch()
            return read.decode()

    assert asyncio.run(scenario()) == "one\ntwo\n"


def test_tasks_that_share_a_folder_store_it_once(home: Path, stores: Stores, tmp_path: Path) -> None:
    placements = (placement(machine="m0"), placement(task=1, machine="m1"))
    gang = order(replace(training(0.02, 10), tasks=2), placements=placements)

    async def scenario() -> float:
        async with running(stores.executor(home)) as watched:
            await watched.executor.execute(gang)
            ended = await watched.phase(gang.key, AttemptPhase.COMPLETED)
            return ended.checkpoint_progress

    assert asyncio.run(scenario()) > 0
    assert len(list((tmp_path / "checkpoints" / "w" / "contents").iterdir())) == 1


def test_what_is_not_stored_within_the_grace_is_not_told(
    home: Path, other_home: Path, stores: Stores, tmp_path: Path
) -> None:
    """The store hangs in the middle: the task ends all the same, and the next attempt begins with what was told last."""
    fence = tmp_path / "checkpoints" / "w" / "fence"

    async def scenario() -> tuple[float, float, str]:
        async with running(stores.executor(home)) as watched:
            first = order(training(0.05, 5))
            await watched.executor.execute(first)
            await watched.until(lambda status: status.checkpoint_progress > 0)
            kept = fence.read_bytes()
            fence.unlink()
            os.mkfifo(fence)
            told = max(status.checkpoint_progress for status in watched.executor.statuses())
            await until_newer(home, told)
            await watched.executor.stop(first.key, 2.0)
            stopped = await watched.phase(first.key, AttemptPhase.STOPPED)
            fence.unlink()
            fence.write_bytes(kept)
        async with running(stores.executor(other_home)) as watched:
            second = order(training(0.0, 1000), attempt=2, progress=stopped.checkpoint_progress)
            await watched.executor.execute(second)
            await watched.phase(second.key, AttemptPhase.COMPLETED)
            on_disk = newest_progress(home / "checkpoints" / "w", 1)
            assert on_disk is not None
            return stopped.checkpoint_progress, on_disk, await watched.log(second.key)

    told, on_disk, log = asyncio.run(scenario())
    assert 0 < told < on_disk
    assert f"resumed at step {told:.0f}\n" in log


async def until_newer(home: Path, progress: float) -> None:
    """Waits until a checkpoint is on the disk that has come after that progress, and one more: it cannot be on its way any more."""
    directory = home / "checkpoints" / "w"
    await become_true(lambda: (newest_progress(directory, 1) or 0.0) >= min(progress + 30, STEPS - 10))
