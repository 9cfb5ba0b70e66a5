"""A won plan that scales in what runs: written with its dispatch, and what it gives up is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from domain.clock import ManualClock
from domain.identifiers import AttemptNumber, WorkloadId
from domain.life_cycle import State
from domain.placement import AttemptKey, TaskPlacement
from domain.placement_changes import ChangeKind, ImpossibleAction, name_of
from domain.plan import Retune, ScaleIn, TaskAmounts
from domain.rank import Standing
from domain.workload import WorkloadSpecification
from services.database import attempt_store, fleet_store, placement_change_store
from services.database.channels import SCAN_CHANNEL
from services.database.connection import AnyConnection, PooledConnection
from services.database.engine import Database
from services.execution.executor import AttemptPhase, AttemptStatus
from services.regional_scheduler.plan_writing import PlanWriting, write_changes
from services.regional_scheduler.recording import record_reports
from services.regional_scheduler.region_memory import RegionMemory
from services.wire.workloads import specification_to_proto
from tests.database.small_world import (
    EAST,
    FLEET,
    award_to_east,
    dispatch,
    new_attempt,
    placement,
    specification,
    submission,
    submit,
)
from tests.regional_scheduler_service.test_races import FIRST, NEWCOMER, W1, W2
from tests.regional_scheduler_service.won_in_the_east import dispatch_won, loaded, take_over

W3 = WorkloadId("w000003")
NOW_S = 3000.0
TASKS = tuple(
    placement()._replace(task=task, gpu_indices=(2 * task, 2 * task + 1), millicpus=8_000) for task in range(4)
)
"""Of the elastic workload: base tasks 0 and 1, two GPUs each, all on one machine."""


def elastic() -> WorkloadSpecification:
    wanted = specification(gpus=2, tasks=2)
    return replace(wanted, jobs=tuple(replace(job, max_tasks=4) for job in wanted.jobs))


async def set_up(connection: AnyConnection, won: Sequence[WorkloadId] = (W2,), priority: int = 3) -> None:
    """The elastic workload runs with all its tasks on the only machine that takes work; the region has won the others."""
    await fleet_store.apply_fleet(connection, FLEET)
    await connection.execute("UPDATE machines SET state = 'draining' WHERE machine <> %s", (TASKS[0].machine,))
    for number, wanted in ((1, elastic()), *((2 + place, specification(gpus=4)) for place in range(len(won)))):
        serialized = specification_to_proto(wanted).SerializeToString()
        await submit(connection, [replace(submission(number, wanted), serialized=serialized)])
    await dispatch(connection, replace(new_attempt(W1), standing=Standing(3, 0), placements=TASKS))
    await attempt_store.record_started(connection, [(FIRST, 2100.0)])
    await connection.execute(
        "UPDATE queue_entries SET priority = %s, level = 0, credit = 1, within_quota = false WHERE workload = ANY(%s)",
        (priority, list(won)),
    )
    await award_to_east(connection, *won)


def held(memory: RegionMemory, key: AttemptKey) -> tuple[TaskPlacement, ...]:
    holding = memory.inventory.holding(key)
    assert holding is not None
    return holding.placements


@pytest.mark.parametrize("restarted", [False, True])
def test_what_a_won_plan_scales_in_is_waited_for(database_url: str, restarted: bool) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await set_up(connection)
                memory = await loaded(connection)
                dispatched = await dispatch_won(connection, memory, ManualClock(NOW_S))
            assert dispatched.writes.evictions == []
            (new,) = dispatched.attempts
            assert new.key == NEWCOMER == AttemptKey(W2, AttemptNumber(1))
            if restarted:
                async with database.transaction() as connection:
                    memory = await loaded(connection)
                    assert (await placement_change_store.load_revisions(connection, EAST))[FIRST].revision == 1
            else:
                for change in dispatched.writes.changes:
                    memory.live.begin_change(change.key, change.placements, change.change)
                memory.live.add(new)
            assert held(memory, FIRST) == TASKS[:2]
            assert [placed.gpu_indices for placed in held(memory, NEWCOMER)] == [(4, 5, 6, 7)]
            memory.inventory.check()
            newcomer, shrinking = memory.live.get(NEWCOMER), memory.live.get(FIRST)
            assert newcomer is not None
            assert shrinking is not None
            assert (newcomer.state, shrinking.state) == (State.DISPATCHED, State.RUNNING)
            assert memory.live.blocked(newcomer), "its GPUs are not free before the other tasks are gone"
            cluster = shrinking.clusters[0]
            assert NEWCOMER in memory.live.end_change(FIRST, {cluster: (NOW_S + 5.0, 100.0)})
            assert not memory.live.blocked(newcomer)
            assert not memory.inventory.voluntary.all(), "only base tasks are left"

    asyncio.run(scenario())


def test_what_one_won_plan_scales_in_another_one_may_evict(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await set_up(connection, (W2, W3), priority=2)
                memory = await loaded(connection)
                dispatched = await dispatch_won(connection, memory, ManualClock(NOW_S))
            assert [attempt.key.workload for attempt in dispatched.attempts] == [W2, W3]
            assert [change.key for change in dispatched.writes.changes] == [FIRST]
            assert [key for key, _ in dispatched.writes.evictions] == [FIRST]
            take_over(memory, dispatched, ManualClock(NOW_S))
            async with database.transaction() as connection:
                again = await loaded(connection)
            for one in (memory, again):
                one.inventory.check()
                assert (held(one, FIRST), one.inventory.is_leaving(FIRST)) == (TASKS[:2], True)
                for newcomer in (NEWCOMER, NEWCOMER._replace(workload=W3)):
                    waiting = one.live.get(newcomer)
                    assert waiting is not None
                    assert one.live.blocked(waiting)

    asyncio.run(scenario())


def test_one_plan_may_take_tasks_of_an_attempt_and_cpus_of_the_rest(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database, database.transaction() as connection:
            await set_up(connection)
            memory = await loaded(connection)
            less = tuple(TaskAmounts(name_of(task), 4_000, task.mebibytes) for task in TASKS[:2])
            actions: list[ScaleIn | Retune] = [
                ScaleIn(FIRST, (name_of(TASKS[2]), name_of(TASKS[3]))),
                Retune(FIRST, less),
            ]
            writing = PlanWriting(EAST, memory.live, NOW_S)
            writing.add_actions(actions)
            (new,) = writing.writes.changes
            assert [placed.millicpus for placed in new.placements] == [4_000, 4_000]
            assert (new.revision, new.change.kind, new.change.released) == (1, ChangeKind.RESIZED, TASKS)
            with pytest.raises(ImpossibleAction, match="not carried out yet"):
                writing.add_actions(actions[1:])
            await write_changes(connection, EAST, writing.writes, NOW_S)
            assert held(await loaded(connection), FIRST) == new.placements

    asyncio.run(scenario())


def test_what_is_given_up_is_news_for_those_who_wait(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await set_up(connection)
            async with database.transaction() as connection:
                memory = await loaded(connection)
                await dispatch_won(connection, memory, ManualClock(NOW_S))
                assert isinstance(connection, PooledConnection)
                assert SCAN_CHANNEL in connection.channels_to_wake
            async with database.transaction() as connection:
                memory = await loaded(connection)
                shrinking = memory.live.get(FIRST)
                assert shrinking is not None
                shrinking.reports[shrinking.clusters[0]] = AttemptStatus(
                    FIRST,
                    AttemptPhase.RUNNING,
                    NOW_S,
                    progress=100.0,
                    emulated=True,
                    started_s=2100.0,
                    revision=1,
                    changed_s=NOW_S,
                    changed_progress=100.0,
                )
                recorded = await record_reports(connection, EAST, [shrinking], (), NOW_S)
                assert [key for key, _ in recorded.changed] == [FIRST]
                assert isinstance(connection, PooledConnection)
                assert SCAN_CHANNEL in connection.channels_to_wake

    asyncio.run(scenario())
