import asyncio
from collections.abc import Sequence

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from domain.identifiers import ANY_GPU_MODEL, GpuModel, JobName, WorkloadId
from domain.life_cycle import State
from domain.rank import QueuePosition, Standing
from domain.resources import TaskResources
from domain.workload import Command, JobSpecification, WorkloadSpecification
from global_scheduler.scan_pass import scan_pass
from global_scheduler.scan_plan import ScanPlan
from global_scheduler.scan_settings import ScanSettings
from global_scheduler.scan_view import ScanView
from global_scheduler.view_builder import build_scan_view
from services.database import queue_store, workload_store
from services.database.engine import Database
from services.database.queue_store import RankedEntries
from tests.database.small_world import (
    A100,
    ADS,
    FORGET_WORKLOADS,
    TENANTS,
    VISION,
    dispatch,
    new_attempt,
    specification,
    submission,
    submit,
)
from tests.examples import examples


def _ranked(positions: Sequence[QueuePosition]) -> RankedEntries:
    return RankedEntries(
        workloads=[position.workload for position in positions],
        priority=[position.standing.priority for position in positions],
        level=[position.standing.level for position in positions],
        credit=[position.credit for position in positions],
        within_quota=[position.within_quota for position in positions],
    )


def _position(number: int, priority: int, credit: float = 0.0, level: int = 0) -> QueuePosition:
    entry = submission(number)
    return QueuePosition(entry.workload, Standing(priority, level), credit, entry.submitted_s, within_quota=True)


def test_empty_queue_loads_as_empty_columns(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            pending = await database.run(lambda connection: queue_store.load_pending(connection, 0.0))
            running = await database.run(queue_store.load_running)
            assert (list(pending.workloads), list(running.workloads)) == ([], [])
            view = build_scan_view((), {}, running, pending, ScanSettings())
            assert len(view.pending) == 0
            assert await database.run(queue_store.newest_scan_pass) is None
            assert await database.run(lambda connection: queue_store.list_head(connection, 5)) == []
            assert await database.run(lambda connection: queue_store.store_ranks(connection, _ranked([]))) == []

    asyncio.run(scenario())


def test_columns_say_what_was_submitted(database_url: str) -> None:
    mixed = WorkloadSpecification(
        "mixed",
        VISION,
        (
            JobSpecification(JobName("a"), 2, TaskResources(4, A100), Command(("a",))),
            JobSpecification(JobName("b"), 1, TaskResources(1, GpuModel("V100")), Command(("b",))),
            JobSpecification(JobName("c"), 3, TaskResources(0, ANY_GPU_MODEL, 1.5, 8.0), Command(("c",))),
        ),
    )
    batch = [submission(3), submission(1, mixed), submission(2, specification(ADS, gpus=0))]

    async def scenario() -> None:
        async with Database(database_url) as database:
            await database.run(lambda connection: submit(connection, batch))
            await database.run(
                lambda connection: queue_store.store_ranks(connection, _ranked([_position(2, 4, credit=-0.5, level=1)]))
            )
            pending = await database.run(lambda connection: queue_store.load_pending(connection, 0.0), snapshot=True)
        assert list(pending.workloads) == ["w000001", "w000002", "w000003"]
        assert list(pending.tenants) == [VISION, ADS, ADS]
        assert list(pending.gpu_model) == ["A100", "any", "A100"]
        assert_array_equal(pending.submitted_s, [1001.0, 1002.0, 1003.0])
        assert_array_equal(pending.gpus, [8, 0, 8])
        assert_array_equal(pending.cpus, [4.5, 4.0, 0.0])
        assert list(pending.more_gpus) == [{"V100": 1}, None, None]
        assert list(pending.stored_priority) == [None, 4, None]
        assert_array_equal(pending.stored_level, [0, 1, 0])
        assert_array_equal(pending.stored_credit, [0.0, -0.5, 0.0])
        assert_array_equal(pending.stored_within_quota, [False, True, False])

    asyncio.run(scenario())


def test_who_must_wait_is_not_loaded(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            await database.run(lambda connection: submit(connection, [submission(1), submission(2)]))
            async with database.transaction() as connection:
                await connection.execute("UPDATE queue_entries SET not_before_s = 50 WHERE workload = 'w000001'")
            for now, expected in ((49.0, ["w000002"]), (50.0, ["w000001", "w000002"])):
                async with database.transaction() as connection:
                    pending = await queue_store.load_pending(connection, now)
                assert list(pending.workloads) == expected

    asyncio.run(scenario())


def test_ranks_reach_only_entries_that_are_there_and_free(database_url: str) -> None:
    """1. A pass decides on three. 2. One is dispatched, one is being dispatched. 3. The pass writes: only the third."""

    async def scenario() -> None:
        async with Database(database_url) as database:
            await database.run(lambda connection: submit(connection, [submission(n) for n in (1, 2, 3)]))
            ranked = _ranked([_position(n, 1) for n in (1, 2, 3)])
            await database.run(lambda connection: dispatch(connection, new_attempt(WorkloadId("w000001"))))
            async with database.transaction() as dispatching:
                await dispatching.execute("SELECT FROM queue_entries WHERE workload = 'w000002' FOR UPDATE")
                written = await database.run(lambda connection: queue_store.store_ranks(connection, ranked))
                assert written == ["w000003"]
            assert await database.run(queue_store.count_queued) == 2
            written = await database.run(lambda connection: queue_store.store_ranks(connection, ranked))
            assert sorted(written) == ["w000002", "w000003"]

    asyncio.run(scenario())


def test_credits_reach_only_entries_that_stand_as_they_were_seen(database_url: str) -> None:
    """Of five one is as it was; the others have another credit, are not ranked any more, are being dispatched, have left."""

    async def scenario() -> None:
        async with Database(database_url) as database:
            await database.run(lambda connection: submit(connection, [submission(n) for n in range(1, 6)]))
            names = [WorkloadId(f"w{n:06d}") for n in range(1, 6)]
            await database.run(
                lambda connection: queue_store.store_ranks(
                    connection, _ranked([_position(n, 1, 0.1) for n in range(1, 6)])
                )
            )
            async with database.transaction() as connection:
                await connection.execute("UPDATE queue_entries SET credit = 5 WHERE workload = 'w000002'")
                await connection.execute("UPDATE queue_entries SET priority = NULL WHERE workload = 'w000003'")
                await connection.execute("DELETE FROM queue_entries WHERE workload = 'w000005'")
            async with database.transaction() as dispatching:
                await dispatching.execute("SELECT FROM queue_entries WHERE workload = 'w000004' FOR UPDATE")
                await database.run(
                    lambda connection: queue_store.store_credits(connection, names, [1 / 3] * 5, [0.1] * 5)
                )
            pending = await database.run(lambda connection: queue_store.load_pending(connection, 2_000.0))
            assert_array_equal(pending.stored_credit, [1 / 3, 5.0, 0.1, 0.1])
            assert list(pending.stored_priority) == [1, 1, None, 1]

    asyncio.run(scenario())


def test_scan_pass_from_the_database_and_back(database_url: str) -> None:
    """What a pass writes is what the next one loads: nothing changes any more."""
    batch = [submission(n, specification(ADS if n % 2 else VISION, gpus=4)) for n in range(1, 9)]

    async def scenario() -> None:
        async with Database(database_url) as database:
            await database.run(lambda connection: submit(connection, batch))
            changes = []

            async def scan() -> tuple[ScanView, ScanPlan]:
                async with database.transaction() as connection:
                    pending = await queue_store.load_pending(connection, 2_000.0)
                    running = await queue_store.load_running(connection)
                    view = build_scan_view(TENANTS, {}, running, pending, ScanSettings())
                    plan = scan_pass(view, 2_000.0)
                    changed = plan.changed
                    written = await queue_store.store_ranks(
                        connection,
                        RankedEntries(
                            [view.pending.workloads[place] for place in changed.tolist()],
                            plan.priority[changed],
                            plan.level[changed],
                            plan.credit[changed],
                            plan.within_quota[changed],
                        ),
                    )
                    number = await queue_store.store_scan_pass(
                        connection, now=2_000.0, entries=len(view.pending), changed=len(written), reclassified=0
                    )
                changes.append((number, len(written)))
                return view, plan

            await scan()
            view, plan = await scan()
            assert changes == [(1, 8), (2, 0)]
            lines = await database.run(lambda connection: queue_store.list_head(connection, 100))
            assert [line.workload for line in lines] == [view.pending.workloads[place] for place in plan.order.tolist()]
            assert [line.rank for line in lines] == list(range(1, 9))
            assert lines[0].position == plan.position(view, int(plan.order[0]))
            newest = await database.run(queue_store.newest_scan_pass)
            assert newest is not None
            assert (newest.number, newest.entries, newest.changed) == (2, 8, 0)

    asyncio.run(scenario())


def test_running_attempts_load_with_their_standing(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            await database.run(lambda connection: submit(connection, [submission(1), submission(2)]))
            for number in (2, 1):
                attempt = new_attempt(WorkloadId(f"w00000{number}"), machine=f"east-b-r0-m{number}")
                async with database.transaction() as connection:
                    await dispatch(connection, attempt)
            async with database.transaction() as connection:
                await connection.execute("UPDATE attempts SET state = 'PREEMPTING' WHERE workload = 'w000002'")
            running = await database.run(queue_store.load_running)
        assert list(running.workloads) == ["w000001", "w000002"]
        assert_array_equal(running.attempts, [1, 1])
        assert_array_equal(running.leaving, [False, True])
        assert_array_equal(running.started_s, [2000.0, 2000.0])
        assert list(running.charges) == [{"A100": 8}, {"A100": 8}]

    asyncio.run(scenario())


_positions = st.lists(
    st.tuples(
        st.one_of(st.none(), st.integers(0, 6)),
        st.integers(0, 2),
        st.sampled_from([-0.5, 0.0, 0.25]),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=examples(20), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_positions)
def test_never_ranks_differently_than_the_one_order(
    database_url: str, wanted: list[tuple[int | None, int, float, int]]
) -> None:
    """The database's order is that of domain.rank, with names that sort differently in other alphabets."""
    names = [f"w{letter}{number}" for number in range(4) for letter in "aB-_"]

    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await connection.execute(FORGET_WORKLOADS)
                batch = []
                positions = []
                for place, (priority, level, credit, second) in enumerate(wanted):
                    name = WorkloadId(names[place])
                    entry = submission(place, specification(ADS if place % 2 else VISION), submitted_s=float(second))
                    batch.append(
                        workload_store.NewWorkload(name, entry.specification, entry.serialized, entry.submitted_s)
                    )
                    if priority is not None:
                        positions.append(
                            QueuePosition(name, Standing(priority, level), credit, float(second), within_quota=True)
                        )
                await submit(connection, batch)
                await queue_store.store_ranks(connection, _ranked(positions))
            async with database.transaction() as connection:
                lines = await queue_store.list_head(connection, 100)
                expected = sorted(positions, key=lambda position: position.sort_key)
                assert [line.position for line in lines] == expected
                ranks = {position.workload: rank for rank, position in enumerate(expected, 1)}
                assert await queue_store.ranks_of(connection, positions) == ranks
                for some in (positions[::2], *([position] for position in positions)):
                    assert await queue_store.ranks_of(connection, some) == {
                        position.workload: ranks[position.workload] for position in some
                    }
                tenant_of = {entry.workload: entry.specification.tenant for entry in batch}
                own = await queue_store.list_head(connection, 100, [ADS])
                assert [(line.workload, line.rank) for line in own] == [
                    (line.workload, line.rank) for line in lines if tenant_of[line.workload] == ADS
                ]

    asyncio.run(scenario())


def test_old_records_of_passes_are_dropped(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database, database.transaction() as connection:
            await connection.execute(
                """INSERT INTO scan_passes (now_s, entries, changed, reclassified)
                   SELECT 0, 0, 0, 0 FROM generate_series(1, 1279)"""
            )
            number = await queue_store.store_scan_pass(connection, now=1.0, entries=0, changed=0, reclassified=0)
            cursor = await connection.execute("SELECT min(scan_pass), max(scan_pass) FROM scan_passes")
            assert await cursor.fetchone() == (number - queue_store.SCAN_PASSES_KEPT, number)

    asyncio.run(scenario())


def test_one_entry_that_was_put_into_another_state_keeps_it(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            await database.run(lambda connection: submit(connection, [submission(1)]))
            async with database.transaction() as connection:
                await connection.execute("UPDATE queue_entries SET state = 'WAITING', reason = 'no room'")
            await database.run(lambda connection: queue_store.store_ranks(connection, _ranked([_position(1, 2)])))
            (line,) = await database.run(lambda connection: queue_store.list_head(connection, 5))
            assert (line.state, line.reason, line.gpus, line.name) == (State.WAITING, "no room", 8, "night-run")
            assert np.isclose(line.submitted_s, 1001.0)

    asyncio.run(scenario())
