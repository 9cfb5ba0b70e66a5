"""The queue that is kept from pass to pass is the one that is loaded anew, whatever has happened in between."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cluster_manager.attempt_run.actions import RecordEnd
from domain.identifiers import ANY_GPU_MODEL, AttemptNumber, GpuModel, JobName, WorkloadId
from domain.life_cycle import State
from domain.placement import AttemptKey
from domain.resources import TaskResources
from domain.workload import Command, JobSpecification, WorkloadSpecification
from global_scheduler.view_builder import PendingRows
from services.database import (
    attempt_store,
    cancellation_store,
    promotion_store,
    queue_change_store,
    queue_store,
    user_request_store,
)
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.queue_change_store import Moment, QueueChanges
from services.database.queue_rows import QueueRows, same
from services.database.queue_store import RankedEntries
from services.database.requeue_store import RequeuedEntry, change_importance
from services.global_scheduler.kept_queue import KeptQueue
from tests.database.small_world import (
    A100,
    ADS,
    FORGET_WORKLOADS,
    VISION,
    dispatch,
    new_attempt,
    specification,
    submission,
    submit,
)
from tests.examples import examples

_NOW_S = 2_000.0
_MIXED = WorkloadSpecification(
    "mixed",
    VISION,
    (
        JobSpecification(JobName("a"), 2, TaskResources(4, A100), Command(("a",))),
        JobSpecification(JobName("b"), 1, TaskResources(1, GpuModel("V100")), Command(("b",))),
        JobSpecification(JobName("c"), 3, TaskResources(0, ANY_GPU_MODEL, 1.5, 8.0), Command(("c",))),
    ),
)
_WHAT = (
    "submitted",
    "cancelled",
    "dispatched",
    "preempted",
    "completed",
    "held",
    "released",
    "ranked",
    "kept back",
    "promoted",
    "told",
    "put off",
    "changed class",
    "rolled back",
    "begun in a transaction that stays open",
    "that transaction ends",
    "looked at",
    "taken over",
)
_steps = st.lists(st.tuples(st.sampled_from(_WHAT), st.integers(0, 5)), min_size=1, max_size=30)


class _World:
    """A queue of few names, on which anything may happen in any order."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.open: list[tuple[AsyncExitStack, AnyConnection]] = []
        self.attempts: dict[WorkloadId, int] = {}

    async def names(self, where: str, number: int) -> list[WorkloadId]:
        """Of those in the queue (`q`) or outside of which that holds, at most one: chosen by the number."""
        async with self.database.transaction() as connection:
            cursor = await connection.execute(
                "SELECT w.workload FROM workloads w LEFT JOIN queue_entries q USING (workload) WHERE "
                f"{where} ORDER BY w.workload"
            )
            found = [WorkloadId(row[0]) for row in await cursor.fetchall()]
        locked = {f"w{0:06d}"} if self.open else set()
        free = [name for name in found if name not in locked]
        return [free[number % len(free)]] if free else []

    async def happens(self, what: str, number: int) -> None:
        if what == "submitted":
            await self._submit(number)
        elif what == "begun in a transaction that stays open":
            await self._begin()
        elif what == "that transaction ends":
            await self.end()
        elif what in _QUEUED:
            for name in await self.names("q.workload IS NOT NULL", number):
                await self._do(_QUEUED[what], name, number)
        elif what in _HELD:
            for name in await self.names("w.held_by IS NOT NULL", number):
                await self._do(_HELD[what], name, number)
        elif what == "dispatched":
            for name in await self.names("q.workload IS NOT NULL", number):
                self.attempts[name] = self.attempts.get(name, 0) + 1
                async with self.database.transaction() as connection:
                    await dispatch(connection, new_attempt(name, self.attempts[name]))
        elif what in {"preempted", "completed"}:
            for name in await self.names("w.state IN ('DISPATCHED', 'RUNNING')", number):
                await self._end(name, State.PENDING if what == "preempted" else State.COMPLETED)

    async def _do(
        self, how: Callable[[AnyConnection, WorkloadId, int], Awaitable[object]], name: WorkloadId, number: int
    ) -> None:
        await self.database.run(lambda connection: how(connection, name, number))

    async def _submit(self, number: int) -> None:
        batch = [
            submission(
                100 + number + 10 * step,
                (_MIXED, specification(ADS, gpus=number), specification(VISION))[step],
                submitted_s=1_000.0 + number // 2,
            )
            for step in range(3)
        ]
        async with self.database.transaction() as connection:
            cursor = await connection.execute("SELECT workload FROM workloads")
            known = {row[0] for row in await cursor.fetchall()}
            await submit(connection, [one for one in batch if one.workload not in known])

    async def _begin(self) -> None:
        """It has a number before others, and its rows are seen after theirs."""
        if self.open:
            return
        stack = AsyncExitStack()
        connection = await stack.enter_async_context(self.database.transaction())
        self.open.append((stack, connection))
        await connection.execute("UPDATE queue_entries SET credit = credit + 1 WHERE workload = 'w000000'")
        await connection.execute("SELECT pg_current_xact_id()")

    async def end(self) -> None:
        while self.open:
            stack, connection = self.open.pop()
            await connection.execute("UPDATE queue_entries SET credit = credit + 1 WHERE workload = 'w000000'")
            await stack.aclose()

    async def _end(self, name: WorkloadId, state: State) -> None:
        key = AttemptKey(name, AttemptNumber(self.attempts[name]))
        entry = {name: RequeuedEntry(A100, 8, 0.0, {"V100": 2}, 3)} if state is State.PENDING else {}
        end = RecordEnd(key, "ended", "", 2_500.0, 0.0, 0.0, state)
        await self.database.run(lambda connection: attempt_store.record_ends(connection, [end], entry))


async def _cancel(connection: AnyConnection, name: WorkloadId, _: int) -> None:
    await cancellation_store.cancel(connection, name, "enough", _NOW_S)


async def _hold(connection: AnyConnection, name: WorkloadId, _: int) -> None:
    await user_request_store.hold(connection, [name], "somebody", "")


async def _release(connection: AnyConnection, name: WorkloadId, _: int) -> None:
    await user_request_store.release(connection, [name])
    await user_request_store.enter_queue(connection, {name: RequeuedEntry(A100, 8, 2.0)}, _NOW_S)


async def _rank(connection: AnyConnection, name: WorkloadId, number: int) -> None:
    await queue_store.store_ranks(connection, _ranked(name, number))


async def _keep_back(connection: AnyConnection, name: WorkloadId, number: int) -> None:
    await queue_store.store_ranks(connection, _ranked(name, number, {name: "too many run"}))


async def _promote(connection: AnyConnection, name: WorkloadId, _: int) -> None:
    cursor = await connection.execute(
        "SELECT coalesce(queued_since_s, submitted_s) FROM queue_entries WHERE workload = %s", (name,)
    )
    row = await cursor.fetchone()
    assert row is not None
    await promotion_store.promote(connection, [(name, row[0])])


async def _tell(connection: AnyConnection, name: WorkloadId, _: int) -> None:
    await connection.execute("UPDATE queue_entries SET state = 'WAITING' WHERE workload = %s", (name,))


async def _put_off(connection: AnyConnection, name: WorkloadId, number: int) -> None:
    await queue_store.not_before(connection, [name], _NOW_S + number - 3)


async def _change_class(connection: AnyConnection, name: WorkloadId, _: int) -> None:
    await change_importance(connection, {name: specification()})


async def _roll_back(connection: AnyConnection, name: WorkloadId, _: int) -> None:
    async with connection.transaction(force_rollback=True):
        await connection.execute("DELETE FROM queue_entries WHERE workload = %s", (name,))
        await connection.execute("UPDATE queue_entries SET level = level + 1")


def _ranked(name: WorkloadId, number: int, at_limit: dict[WorkloadId, str] | None = None) -> RankedEntries:
    return RankedEntries([name], [number], [number % 3], [number / 2], [number % 2 == 0], at_limit or {})


_QUEUED: dict[str, Callable[[AnyConnection, WorkloadId, int], Awaitable[object]]] = {
    "cancelled": _cancel,
    "held": _hold,
    "ranked": _rank,
    "kept back": _keep_back,
    "promoted": _promote,
    "told": _tell,
    "put off": _put_off,
    "changed class": _change_class,
    "rolled back": _roll_back,
}
_HELD = {"released": _release}


def _is_pending(one: PendingRows, other: PendingRows) -> bool:
    pairs = [(getattr(one, field.name), getattr(other, field.name)) for field in fields(PendingRows)]
    return all(np.array_equal(np.asarray(first), np.asarray(second)) for first, second in pairs)


async def _look(database: Database, kept: KeptQueue) -> None:
    async def both(connection: AnyConnection) -> tuple[QueueRows, QueueRows]:
        return await kept.rows(connection), await queue_change_store.load_all(connection)

    rows, fresh = await database.run(both, snapshot=True)
    assert same(rows, fresh)
    for now in (0.0, _NOW_S, _NOW_S + 1.0, 1e9):
        assert _is_pending(rows.due(now), fresh.due(now))
        assert rows.next_due_s(now) == fresh.next_due_s(now)


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_steps)
def test_never_differs_from_the_queue_that_is_loaded_anew(database_url: str, steps: Sequence[tuple[str, int]]) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await connection.execute("DELETE FROM placements; DELETE FROM attempts; " + FORGET_WORKLOADS)
                await submit(connection, [submission(0, submitted_s=1_001.0)])
            world, kept, loads = _World(database), KeptQueue(), 0
            begun_anew = True
            try:
                for what, number in steps:
                    if what == "looked at":
                        await _look(database, kept)
                        loads, begun_anew = loads + begun_anew, False
                    elif what == "taken over":
                        kept.forget()
                        begun_anew = True
                    else:
                        await world.happens(what, number)
                await _look(database, kept)
                await world.end()
                await _look(database, kept)
                assert kept.loads == loads + begun_anew
            finally:
                await world.end()

    asyncio.run(scenario())


@pytest.mark.parametrize("changed_is", ["forgotten", "told twice"])
def test_what_does_not_come_to_what_is_queued_is_loaded_anew(
    database_url: str, monkeypatch: pytest.MonkeyPatch, changed_is: str
) -> None:
    """Whatever was missed of what has changed, the pass sees the queue as it is."""

    async def wrong(connection: AnyConnection, since: Moment) -> QueueChanges:
        right = await load_changes(connection, since)
        rows = right.changed
        if changed_is == "forgotten":
            return replace(right, changed=rows.where(np.arange(len(rows)) > 0))
        return replace(right, changed=rows.where(np.repeat(np.arange(len(rows)), 2)))

    load_changes = queue_change_store.load_changes
    monkeypatch.setattr(queue_change_store, "load_changes", wrong)

    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await submit(connection, [submission(number) for number in range(3)])
            kept = KeptQueue()
            await _look(database, kept)
            async with database.transaction() as connection:
                await submit(connection, [submission(number) for number in range(3, 5)])
            await _look(database, kept)
            assert kept.loads == 2

    asyncio.run(scenario())


def test_after_another_server_has_begun_all_is_loaded_anew(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same numbers of transactions may stand for others there."""
    moments = iter(["the first", "the first", "another"])

    async def moment(connection: AnyConnection) -> Moment:
        return replace(await present(connection), server=next(moments))

    present = queue_change_store.moment
    monkeypatch.setattr(queue_change_store, "moment", moment)

    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await submit(connection, [submission(0)])
            kept, loads = KeptQueue(), []
            for _ in range(3):
                await _look(database, kept)
                loads.append(kept.loads)
            assert loads == [1, 1, 2]

    asyncio.run(scenario())


def test_now_and_then_all_is_loaded_in_any_case(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await submit(connection, [submission(0)])
            kept, loads = KeptQueue(checked_every=3), []
            for _ in range(7):
                await _look(database, kept)
                loads.append(kept.loads)
            assert loads == [1, 1, 1, 2, 2, 2, 3]

    asyncio.run(scenario())
