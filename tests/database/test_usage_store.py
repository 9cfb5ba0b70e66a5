import asyncio
from dataclasses import dataclass, replace
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cluster_manager.attempt_run.actions import RecordEnd
from domain.identifiers import TenantId, WorkloadId
from domain.life_cycle import State
from domain.placement_changes import ChangeKind, PlacementChange
from global_scheduler.usage_window import window_averages
from services.database import attempt_store, fleet_store, usage_store
from services.database.attempt_store import NewAttempt
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.gpu_use_store import UseFilter, UseKey, UsePeriod, counted_since_s, load_use
from services.database.placement_change_store import begin_change
from services.database.usage_store import STRETCH_S
from tests.database.small_world import (
    ADS,
    FLEET,
    FORGET_WORKLOADS,
    VISION,
    dispatch,
    new_attempt,
    placement,
    submission,
    submit,
)
from tests.examples import examples


@dataclass(frozen=True)
class UsageRun:
    """An attempt's life, in seconds; it is told as ended `late_s` after it has."""

    tenant: TenantId
    start_s: float
    length_s: float
    late_s: float
    gpus: int

    @property
    def end_s(self) -> float:
        return self.start_s + self.length_s

    def used(self, begin_s: float, end_s: float) -> float:
        """GPU-seconds within that time."""
        return self.gpus * max(min(end_s, self.end_s) - max(begin_s, self.start_s), 0.0)


def _attempt(number: int, run: UsageRun) -> NewAttempt:
    return new_attempt(
        WorkloadId(f"w{number:06d}"),
        dispatched_s=run.start_s,
        machine=f"east-b-r0-m{number}",
        gpus=run.gpus,
        tenant=run.tenant,
    )


async def _end(connection: AnyConnection, number: int, run: UsageRun) -> None:
    end = RecordEnd(_attempt(number, run).key, "completed", "", run.end_s, 0.0, 0.0, State.COMPLETED)
    await attempt_store.record_ends(connection, [end], {})


async def _used_gpu_seconds(database: Database, now: float, window_s: float) -> dict[str, float]:
    stretches = await database.run(lambda connection: usage_store.load_use(connection, now, window_s))
    return {tenant: use.gpus * window_s for tenant, use in window_averages(stretches, now, window_s).items()}


def test_nothing_was_used_yet(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            await database.run(lambda connection: usage_store.count_use(connection, 5_000.0))
            assert await _used_gpu_seconds(database, 5_000.0, 3_600.0) == {}

    asyncio.run(scenario())


def test_use_is_the_same_before_and_after_it_is_counted(database_url: str) -> None:
    run = UsageRun(ADS, 1_000.0, 10_000.0, 0.0, 8)

    async def scenario() -> None:
        async with Database(database_url) as database:
            await database.run(lambda connection: submit(connection, [submission(1)]))
            await database.run(lambda connection: dispatch(connection, _attempt(1, run)))
            for counted in (False, True, True):
                assert await _used_gpu_seconds(database, 4_000.0, 3_600.0) == pytest.approx({ADS: 8 * 3_000.0})
                if not counted:
                    await database.run(lambda connection: usage_store.count_use(connection, 4_000.0))
            async with database.transaction() as connection:
                cursor = await connection.execute("SELECT window_start_s, gpu_seconds FROM usage_windows ORDER BY 1")
                assert await cursor.fetchall() == [(900.0, 8 * 800.0), (1800.0, 8 * 900.0), (2700.0, 8 * 900.0)]

    asyncio.run(scenario())


@pytest.mark.parametrize("counted_before", [False, True])
def test_never_counts_what_was_held_before_a_change_by_what_is_held_after_it(
    database_url: str, counted_before: bool
) -> None:
    run = UsageRun(ADS, 1_000.0, 10_000.0, 0.0, 8)
    key = _attempt(1, run).key
    smaller = PlacementChange(ChangeKind.RESIZED, (placement(),))

    async def scenario() -> None:
        async with Database(database_url) as database:
            await database.run(lambda connection: submit(connection, [submission(1)]))
            await database.run(lambda connection: dispatch(connection, _attempt(1, run)))
            await database.run(lambda connection: attempt_store.record_started(connection, [(key, 1_100.0)]))
            if counted_before:
                await database.run(lambda connection: usage_store.count_use(connection, 2_400.0))
            async with database.transaction() as connection:
                change = begin_change(connection, key, 1, (placement(gpus=2),), smaller, 2_500.0)
                assert await change
            expected = pytest.approx({ADS: 8 * 1500.0 + 2 * 1500.0})
            assert await _used_gpu_seconds(database, 4_000.0, 3_600.0) == expected
            await database.run(lambda connection: usage_store.count_use(connection, 4_000.0))
            assert await _used_gpu_seconds(database, 4_000.0, 3_600.0) == expected

    asyncio.run(scenario())


def test_old_use_is_forgotten(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            await database.run(lambda connection: submit(connection, [submission(1)]))
            await database.run(lambda connection: dispatch(connection, _attempt(1, UsageRun(ADS, 0.0, 1e6, 0.0, 1))))
            await database.run(lambda connection: usage_store.count_use(connection, 9_000.0))
            assert await database.run(lambda connection: usage_store.forget_use(connection, 4_500.5)) == 5
            assert await _used_gpu_seconds(database, 9_000.0, 9_000.0) == pytest.approx({ADS: 4_500.0})

    asyncio.run(scenario())


def _hours(runs: list[UsageRun]) -> dict[str, float]:
    """GPU-hours by workload; of those that used any."""
    return {f"w{number:06d}": run.used(0.0, 1e9) / 3_600.0 for number, run in enumerate(runs) if run.used(0.0, 1e9)}


async def _gpu_hours(database: Database, now: float) -> dict[str, float]:
    by_workload = UseFilter(by=(UseKey.WORKLOAD,))
    page = await database.run(lambda connection: load_use(connection, by_workload, now, 1_000))
    return {row.workload: row.gpu_hours for row in page.rows if row.gpu_hours}


_runs = st.lists(
    st.builds(
        UsageRun,
        st.sampled_from([ADS, VISION]),
        st.floats(0.0, 5_000.0),
        st.floats(0.0, 6_000.0),
        st.floats(0.0, 4_000.0),
        st.integers(0, 8),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_runs, st.lists(st.floats(100.0, 12_000.0), min_size=1, max_size=4))
def test_never_loses_or_doubles_a_second_of_use_however_late_ends_are_reported(
    database_url: str, runs: list[UsageRun], counted_at_s: list[float]
) -> None:
    """Dispatches, ends (told late) and counts in the order of time; at the end all use adds up to what was used."""
    happenings: list[tuple[float, int, int]] = [(now, 2, 0) for now in counted_at_s]
    for number, run in enumerate(runs):
        happenings += [(run.start_s, 0, number), (run.end_s + run.late_s, 1, number)]
    now = 15_000.0 + STRETCH_S

    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await connection.execute(FORGET_WORKLOADS)
                await connection.execute("DELETE FROM usage_windows")
                await connection.execute("DELETE FROM gpu_use")
                await submit(connection, [submission(number) for number in range(len(runs))])
            for t, kind, number in sorted(happenings):
                async with database.transaction() as connection:
                    if kind == 0:
                        await dispatch(connection, _attempt(number, runs[number]))
                    elif kind == 1:
                        await _end(connection, number, runs[number])
                    else:
                        await usage_store.count_use(connection, t)
            expected: dict[str, float] = {}
            for run in runs:
                expected[run.tenant] = expected.get(run.tenant, 0.0) + run.used(0.0, now)
            assert await _gpu_hours(database, now) == pytest.approx(_hours(runs), abs=1e-6)
            await database.run(lambda connection: usage_store.count_use(connection, now))
            assert await _gpu_hours(database, now) == pytest.approx(_hours(runs), abs=1e-6)
            used = await _used_gpu_seconds(database, now, now)
            assert {tenant: used.get(tenant, 0.0) for tenant in expected} == pytest.approx(expected, abs=1e-6)
            async with database.transaction() as connection:
                cursor = await connection.execute(
                    "SELECT count(*) FROM attempts WHERE counted_s IS DISTINCT FROM ended_s"
                )
                assert await cursor.fetchone() == (0,)

    asyncio.run(scenario())


def test_gpu_hours_are_told_apart_by_day_model_and_workload_and_outlive_attempts(database_url: str) -> None:
    day_s = 86_400.0
    run = UsageRun(ADS, 10 * day_s - 3_600.0, 2 * day_s, 0.0, 4)
    by_day = UseFilter(by=(UseKey.PERIOD, UseKey.GPU_MODEL, UseKey.TENANT))

    async def rows(database: Database, wanted: UseFilter, now: float) -> list[tuple[float, str, str, object]]:
        page = await database.run(lambda connection: load_use(connection, wanted, now, 1_000))
        return [(row.period_start_s, row.tenant, row.gpu_model, pytest.approx(row.gpu_hours)) for row in page.rows]

    async def scenario() -> None:
        async with Database(database_url) as database:
            assert await database.run(counted_since_s) is None
            await database.run(lambda connection: fleet_store.apply_fleet(connection, FLEET))
            await database.run(lambda connection: submit(connection, [submission(1)]))
            attempt = new_attempt(
                WorkloadId("w000001"), dispatched_s=run.start_s, machine="east-b-r0-m1", gpus=4, tenant=ADS
            )
            await database.run(lambda connection: dispatch(connection, attempt))
            # Not counted yet, in part, and as a whole.
            model = "A100"
            for now in (10 * day_s + 7_200.0, 10 * day_s + 7_200.0):
                assert await rows(database, by_day, now) == [
                    (9 * day_s, ADS, model, 4.0),
                    (10 * day_s, ADS, model, 8.0),
                ]
                await database.run(partial(usage_store.count_use, now=now - 1_000.0))
            await database.run(lambda connection: _end(connection, 1, run))
            await database.run(lambda connection: usage_store.count_use(connection, 20 * day_s))
            async with database.transaction() as connection:
                await connection.execute("DELETE FROM attempts")
            expected = [(9 * day_s, ADS, model, 4.0), (10 * day_s, ADS, model, 96.0), (11 * day_s, ADS, model, 92.0)]
            assert await rows(database, by_day, 20 * day_s) == expected
            assert await database.run(counted_since_s) == 9 * day_s
            one_day = replace(by_day, from_s=10 * day_s, until_s=11 * day_s, gpu_model=model)
            assert await rows(database, one_day, 20 * day_s) == expected[1:2]
            # The epoch was a Thursday, so that day 11 is a Monday; all of it is in January.
            weeks = replace(by_day, period=UsePeriod.WEEK)
            assert [row[0] for row in await rows(database, weeks, 20 * day_s)] == [4 * day_s, 11 * day_s]
            months = UseFilter(by=(UseKey.PERIOD,), period=UsePeriod.MONTH)
            assert await rows(database, months, 20 * day_s) == [(0.0, "", "", 192.0)]
            assert await rows(database, replace(by_day, tenant="vision"), 20 * day_s) == []

    asyncio.run(scenario())
