import asyncio
import time
from pathlib import Path

import pytest

from domain.identifiers import ClusterId, JobName, MachineId, WorkloadId
from services.clock import CompressedClock, SystemClock
from services.execution.change_feed import ChangeReader
from services.execution.emulated_executor import EmulatedExecutor
from services.execution.executor import (
    AttemptPhase,
    AttemptStatus,
    Change,
    LogRequest,
    MachineStatus,
    TaskReference,
    TaskReport,
    UnknownAttempt,
)
from services.execution.ray_attempt import RayExecutorConfiguration
from services.execution.ray_executor import RayExecutor
from services.execution.routing_executor import RoutingExecutor
from services.security.secret_sessions import ForeignSession
from services.storage.store_urls import StoreUrls
from tests.execution.orders import emulated, key

FAST = 100_000.0


def fast_clock() -> CompressedClock:
    return CompressedClock(origin_real_s=time.time(), origin_s=1_000_000.0, speed=FAST)


async def ends(subscription: ChangeReader[Change], count: int) -> list[AttemptStatus]:
    """The first so many ends that are told."""
    ended: list[AttemptStatus] = []
    async with asyncio.timeout(60):
        while len(ended) < count:
            published = await subscription.next()
            ended += [change for change in published if isinstance(change, AttemptStatus) and change.ended]
    return ended


def test_thousands_of_attempts_end_when_they_are_due() -> None:
    async def scenario() -> None:
        executor = EmulatedExecutor(fast_clock())
        with executor.subscribe() as subscription:
            for number in range(3_000):
                await executor.execute(emulated(1_000.0 + 10 * (number * 7919 % 3_000), workload=f"w{number}"))
            ended = await ends(subscription, 3_000)
        assert len({status.key for status in ended}) == 3_000
        assert all(status.phase is AttemptPhase.COMPLETED for status in ended)
        assert [status.since_s for status in ended] == sorted(status.since_s for status in ended)
        assert all(status.since_s - status.started_s == pytest.approx(status.progress) for status in ended)
        await executor.forget([status.key for status in ended])
        assert executor.statuses() == ()
        await executor.close()

    asyncio.run(scenario())


def test_the_timer_follows_the_one_that_is_due_first() -> None:
    async def scenario() -> None:
        executor = EmulatedExecutor(fast_clock())
        with executor.subscribe() as subscription:
            await executor.execute(emulated(1e9, workload="long"))
            await executor.execute(emulated(100.0, workload="short"))
            (first,) = await ends(subscription, 1)
            assert first.key == key("short")
            await executor.stop(key("long"), 10.0)
            (second,) = await ends(subscription, 1)
            assert (second.key, second.phase) == (key("long"), AttemptPhase.STOPPED)
            assert second.checkpoint_progress == second.progress > 0
        await executor.close()

    asyncio.run(scenario())


def test_never_does_who_shows_no_token_learn_which_attempts_there_are(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = fast_clock()
        configuration = RayExecutorConfiguration(tmp_path, StoreUrls(f"file://{tmp_path}"))
        processes = RayExecutor(ClusterId("c"), [], clock, configuration)
        emulating = EmulatedExecutor(clock)
        executor = RoutingExecutor(emulating, processes)
        await executor.execute(emulated(1e9, workload="there"))
        told = []
        for workload in ("there", "gone"):
            task = TaskReference(key(workload), JobName("main"), 0)
            for reporting in (executor.heartbeat(task, TaskReport(1.0, 1.0)), executor.checkpoint_saved(task, 1.0, "")):
                with pytest.raises(ForeignSession, match=r"task.token is missing") as refused:
                    await reporting
                told.append(str(refused.value).replace(workload, "..."))
        assert len(set(told)) == 1
        await emulating.close()

    asyncio.run(scenario())


def test_a_lost_machine_is_reported_before_what_was_on_it() -> None:
    async def scenario() -> None:
        executor = EmulatedExecutor(SystemClock())
        with executor.subscribe() as subscription:
            await executor.execute(emulated(1e6))
            executor.set_machine(MachineId("m0"), up=False, reason="test")
            published = await subscription.next()
        assert [change.phase if isinstance(change, AttemptStatus) else change for change in published] == [
            AttemptPhase.RUNNING,
            MachineStatus(MachineId("m0"), False, "test"),
            AttemptPhase.LOST,
        ]
        assert executor.machines() == (MachineStatus(MachineId("m0"), False, "test"),)
        await executor.close()

    asyncio.run(scenario())


def test_emulated_attempts_have_no_tasks_and_print_nothing() -> None:
    async def scenario() -> None:
        executor = EmulatedExecutor(SystemClock())
        await executor.execute(emulated(1e6))
        task = TaskReference(key(), emulated(1.0).specification.jobs[0].name, 0)
        with pytest.raises(UnknownAttempt):
            await executor.heartbeat(task, TaskReport(1.0, 1.0))
        with pytest.raises(UnknownAttempt):
            await executor.checkpoint_saved(task, 1.0, "")
        assert [chunk async for chunk in executor.read_logs(LogRequest(WorkloadId("w")))] == []
        with pytest.raises(UnknownAttempt):
            _ = [chunk async for chunk in executor.read_logs(LogRequest(WorkloadId("nobody")))]
        await executor.close()

    asyncio.run(scenario())


def test_clocks_refuse_to_stand_still_or_run_backwards() -> None:
    for speed in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="clock"):
            CompressedClock(0.0, 0.0, speed)


def test_a_compressed_clock_says_how_long_to_wait_for_it() -> None:
    clock = CompressedClock(origin_real_s=time.time() - 2.0, origin_s=500.0, speed=100.0)
    assert 700.0 <= clock.now() < 1_000.0
    assert clock.real_seconds(50.0) == 0.5


def test_all_machines_of_an_emulated_cluster_are_reported_and_new_ones_when_they_come() -> None:
    one, two, three = (MachineId(name) for name in ("m1", "m2", "m3"))

    async def scenario() -> None:
        executor = EmulatedExecutor(fast_clock(), [one, two])
        executor.set_machine(two, up=False, reason="it burns")
        assert executor.machines() == (MachineStatus(one, up=True), MachineStatus(two, up=False, reason="it burns"))
        with executor.subscribe() as subscription:
            await executor.set_machines([two, three])
            assert subscription.take() == (MachineStatus(three, up=True),)
        assert executor.machines() == (MachineStatus(two, up=False, reason="it burns"), MachineStatus(three, up=True))

    asyncio.run(scenario())


def test_one_that_stands_beside_another_executor_reports_only_what_it_lost() -> None:
    async def scenario() -> None:
        executor = EmulatedExecutor(fast_clock())
        with executor.subscribe() as subscription:
            await executor.set_machines([MachineId("m1")])
            assert subscription.take() == executor.machines() == ()

    asyncio.run(scenario())
