"""Tasks outlive the leases that allow them to run by a stated time at most, whatever becomes of their cluster manager."""

from __future__ import annotations

import asyncio
import ctypes
import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.clock import SystemClock
from services.cluster_manager.task_guard import TaskGuard
from services.cluster_manager.task_permission import TaskPermission
from services.configuration import LeaseConfiguration
from services.database.engine import Database
from services.execution.emulated_executor import EmulatedExecutor
from services.execution.executor import AttemptPhase
from services.execution.runner_messages import RunnerState, StopCause, TaskStart
from services.execution.task_environment import Rendezvous
from services.execution.task_runner import TaskRunner
from services.storage.store_urls import StoreUrls
from tests.execution.orders import emulated, key, order, shell
from tests.regional_scheduler_service.test_races import FIRST, dispatch_over_quota

PATIENCE_REAL_S = 240.0
"""A guard against hangs, not a measure of speed."""

_PR_GET_CHILD_SUBREAPER = 37

STUBBORN = shell("trap '' TERM; while :; do sleep 1; done")

# ---------------------------------------------------------------- how long


SHORT = st.floats(0.0, 100.0)


@given(st.lists(st.tuples(SHORT, st.floats(-100.0, 100.0)), min_size=1, max_size=5), SHORT)
def test_nothing_is_ever_allowed_for_longer_than_the_lease_and_the_stated_time(
    renewals: Sequence[tuple[float, float]], stop_after_s: float
) -> None:
    now_s = held_until_s = longest_s = 0.0
    permission = TaskPermission(lambda: held_until_s, stop_after_s, lambda: now_s)
    for later_s, left_s in renewals:
        now_s += later_s
        held_until_s = now_s + left_s
        longest_s = max(longest_s, held_until_s)
        assert now_s + permission.left_s() <= longest_s + stop_after_s + 1e-6


# ---------------------------------------------------------------- tasks with processes


def started(allowed_until_s: float, home: Path) -> TaskStart:
    return TaskStart(Rendezvous("127.0.0.1", 1), "127.0.0.1:1", 1.0, home, StoreUrls(f"file://{home}"), allowed_until_s)


def runner() -> TaskRunner:
    one = order(STUBBORN, stop_grace_s=0.0)
    return TaskRunner(one, one.placements[0], "")


async def ended(task: TaskRunner) -> float:
    """Waits for its end; the runner's clock then."""
    async with asyncio.timeout(PATIENCE_REAL_S):
        report = (await task.describe()).report
        while report.state is not RunnerState.ENDED:
            report = await task.report_after(report.version)
        ended_s = time.monotonic()
        if task._reaper is not None:  # of a runner that ends with its loop, as none does in the service
            await task._reaper.wait()
    return ended_s


def test_a_task_that_nobody_allows_to_run_on_stops_itself(tmp_path: Path) -> None:
    async def scenario() -> None:
        task = runner()
        until_s = time.monotonic() + 1.0
        report = await task.start(started(until_s, tmp_path))
        assert report.state is RunnerState.RUNNING
        assert await ended(task) >= until_s
        report = (await task.describe()).report
        assert (report.stop_cause, report.stopped_early) == (StopCause.NO_LEASE, True)

    asyncio.run(scenario())


def test_a_task_that_is_allowed_to_run_on_does(tmp_path: Path) -> None:
    async def scenario() -> None:
        task = runner()
        began_s = time.monotonic()
        await task.start(started(began_s + 2.0, tmp_path))
        clock_s = await task.allow(began_s, 3.0)
        assert clock_s >= began_s
        assert await ended(task) >= began_s + 3.0

    asyncio.run(scenario())


def test_a_late_call_allows_no_more_than_a_call_in_time_would_have(tmp_path: Path) -> None:
    async def scenario() -> None:
        task = runner()
        began_s = time.monotonic()
        await task.start(started(began_s + 1.0, tmp_path))
        # What its sender has read off the lease is an hour old.
        await task.allow(began_s - 3600.0, 3600.5)
        await ended(task)
        await task.allow(began_s, 3600.0)
        assert (await task.describe()).report.state is RunnerState.ENDED

    asyncio.run(scenario())


def test_a_task_whose_manager_was_away_for_longer_than_its_lease_is_not_started(tmp_path: Path) -> None:
    async def scenario() -> None:
        task = runner()
        report = await task.start(started((await task.describe()).clock_s - 0.001, tmp_path))
        assert (report.state, report.started_s, report.exit_code) == (RunnerState.ENDED, 0.0, None)

    asyncio.run(scenario())


def test_a_runner_changes_nothing_of_a_process_that_it_has_not_for_itself() -> None:
    score = Path("/proc/self/oom_score_adj")
    before = score.read_text(encoding="ascii")
    runner()
    assert score.read_text(encoding="ascii") == before
    adopts_orphans = ctypes.c_int(-1)
    assert ctypes.CDLL(None).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(adopts_orphans), 0, 0, 0) == 0
    assert adopts_orphans.value == 0


# ---------------------------------------------------------------- the guard


def test_what_is_emulated_is_lost_when_no_lease_allows_it_and_keeps_its_checkpoint() -> None:
    async def scenario() -> None:
        executor = EmulatedExecutor(SystemClock())
        await executor.execute(replace(emulated(1e6, 10.0), started_s=SystemClock().now() - 1_005.0))
        await executor.lose_all("nothing allows it")
        (status,) = executor.statuses()
        assert (status.phase, status.checkpoint_progress, status.reason) == (
            AttemptPhase.LOST,
            1_000.0,
            "nothing allows it",
        )
        assert status.progress == pytest.approx(1_005.0, abs=60.0)
        await executor.close()

    asyncio.run(scenario())


def test_a_manager_stops_everything_when_its_lease_has_ended_for_too_long(database_url: str) -> None:
    configuration = LeaseConfiguration(duration_real_s=0.2, tasks_stop_after_real_s=0.5, lost_grace_real_s=0.2)

    async def scenario() -> None:
        async with Database(database_url) as database:
            held_until_s = asyncio.get_running_loop().time() + 1.0
            guard = TaskGuard(database, lambda: held_until_s, configuration)
            assert guard.left_s() <= 1.5
            executor = EmulatedExecutor(SystemClock())
            with executor.subscribe() as watch:
                await executor.execute(emulated(1e6))
                guarding = asyncio.ensure_future(guard.run(executor))
                async with asyncio.timeout(PATIENCE_REAL_S):
                    while not executor.statuses()[0].ended:
                        await watch.next()
                assert executor.statuses()[0].phase is AttemptPhase.LOST
            assert guard.left_s() <= 0.0
            guarding.cancel()
            await executor.close()

    asyncio.run(scenario())


def test_what_is_over_for_the_database_is_killed_before_anything_is_answered(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await dispatch_over_quota(connection)
            guard = TaskGuard(database, lambda: math.inf, LeaseConfiguration())
            executor = EmulatedExecutor(SystemClock())
            await executor.execute(replace(emulated(1e6, workload=FIRST.workload), key=FIRST))
            await executor.execute(emulated(1e6, workload="elsewhere"))
            await guard.end_what_is_over(executor)
            phases = {status.key: status.phase for status in executor.statuses()}
            assert phases == {FIRST: AttemptPhase.RUNNING, key("elsewhere"): AttemptPhase.STOPPED}
            await executor.close()

    asyncio.run(scenario())
