"""The bounds of evictions live: what a region's session loads, and what it dispatches before and after their time."""

import asyncio
from pathlib import Path

import pytest

from domain.clock import ManualClock
from domain.eviction import EvictionRule, VictimChoice, evictable_from_s
from formats.problems import FormatError
from services.configuration import Configuration, load_configuration
from services.database import attempt_store
from services.database.engine import Database
from services.regional_scheduler.arrivals import Arrivals
from services.regional_scheduler.dispatching import Dispatched
from services.regional_scheduler.due_attempts import DueAttempts
from services.regional_scheduler.loading import load_memory
from services.regional_scheduler.region_memory import RegionMemory
from tests.database.small_world import EAST
from tests.regional_scheduler_service.test_races import FIRST, W2, _fill_up_and_award, dispatch_over_quota
from tests.regional_scheduler_service.won_in_the_east import dispatch_won


async def dispatch_at(database: Database, rule: EvictionRule, now: float) -> tuple[Dispatched, RegionMemory]:
    async with database.transaction() as connection:
        memory = await load_memory(connection, EAST, rule, now)
        assert memory is not None
        dispatched = await dispatch_won(connection, memory, ManualClock(now))
        return dispatched, memory


@pytest.mark.parametrize(
    ("rule", "too_early_s", "in_time_s"),
    [
        (EvictionRule(minimum_run_time_s=600.0), 2599.0, 2600.0),
        (EvictionRule(evictions_per_workload_and_hour=1), 5099.0, 5100.0),
    ],
    ids=str,
)
def test_a_victim_is_evicted_when_its_time_has_come_and_not_before(
    database_url: str, rule: EvictionRule, too_early_s: float, in_time_s: float
) -> None:
    """Dispatched at 2000, when the workload had been preempted at 1500."""

    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await dispatch_over_quota(connection)
                await connection.execute(
                    """INSERT INTO attempts (workload, attempt, tenant, region, state, priority, level, within_quota,
                              gpus, cpus, charges, dispatched_s, ended_s, preempted_s, progress_at_start, progress,
                              checkpoint_progress)
                       SELECT workload, 0, tenant, region, 'ENDED', priority, level, within_quota, gpus, cpus, charges,
                              1000, 1600, 1500, 0, 0, 0 FROM attempts"""
                )
                await _fill_up_and_award(connection)
            early, memory = await dispatch_at(database, rule, too_early_s)
            assert (early.attempts, early.writes.evictions, early.given_back) == ((), [], 1)
            assert memory.inventory.next_evictable_s == in_time_s
            async with database.transaction() as connection:
                await connection.execute(
                    "INSERT INTO awards (workload, region, round, lot) VALUES (%s, 'east', 1, 0)", (W2,)
                )
            late, _ = await dispatch_at(database, rule, in_time_s)
            assert [key for key, _ in late.writes.evictions] == [FIRST]
            async with database.transaction() as connection:
                cursor = await connection.execute("SELECT preempted_s FROM attempts WHERE state = 'PREEMPTING'")
                assert await cursor.fetchall() == [(in_time_s,)]

    asyncio.run(scenario())


@pytest.mark.parametrize("rule", [EvictionRule(600.0), EvictionRule(60.0, 1)], ids=str)
def test_what_comes_from_elsewhere_is_as_protected_as_what_was_loaded(database_url: str, rule: EvictionRule) -> None:
    """The successor of a migration: dispatched at 2000, when its workload had been preempted at 1500."""

    async def scenario() -> None:
        async with Database(database_url) as database, database.transaction() as connection:
            await dispatch_over_quota(connection)
            stored = await attempt_store.load_live(connection, EAST)
            memory = await load_memory(connection, EAST, rule, 2100.0)
            assert memory is not None
            preempted_s = {str(FIRST.workload): (1500.0,)}
            memory.inventory.release(FIRST)
            memory.live.remove(FIRST)
            Arrivals(memory, DueAttempts()).compare(stored, (), preempted_s)
            holding = memory.inventory.holding(FIRST)
            assert holding is not None
            assert holding.evictable_from_s == evictable_from_s(rule, 2000.0, None, (1500.0,))

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("guaranteed", "by_guaranteed", "spares", "evicted"),
    [(True, False, True, 0), (True, False, False, 1), (True, True, True, 1), (False, False, True, 1)],
)
def test_a_guaranteed_attempt_is_spared_from_who_is_not_after_every_restart(
    database_url: str, guaranteed: bool, by_guaranteed: bool, spares: bool, evicted: int
) -> None:
    """What it was when it was dispatched is stored with it; since then a scan pass has put it over its quota."""

    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await dispatch_over_quota(connection)
                await connection.execute("UPDATE attempts SET guaranteed = %s, level = 1", (guaranteed,))
                await _fill_up_and_award(connection)
                await connection.execute(
                    "UPDATE queue_entries SET within_quota = %s, priority = CASE WHEN %s THEN priority ELSE 6 END",
                    (by_guaranteed, by_guaranteed),
                )
            dispatched, memory = await dispatch_at(database, EvictionRule(spares_guaranteed=spares), 3000.0)
            assert len(dispatched.writes.evictions) == evicted
            holding = memory.inventory.holding(FIRST)
            assert holding is not None
            assert holding.spared == (guaranteed and spares)
            async with database.transaction() as connection:
                stored = {attempt.key: attempt for attempt in await attempt_store.load_live(connection, EAST)}
            assert stored[FIRST].guaranteed == guaranteed
            assert [attempt.guaranteed for key, attempt in stored.items() if key != FIRST] == [by_guaranteed] * evicted

    asyncio.run(scenario())


def test_the_configuration_bounds_evictions(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.yaml"
    file.write_text("eviction: {minimum_run_time_s: 600, evictions_per_workload_and_hour: 3}")
    assert load_configuration(file).eviction.rule() == EvictionRule(600.0, 3)
    assert Configuration().eviction.rule() == EvictionRule()
    file.write_text("eviction: {spares_guaranteed: true}")
    assert load_configuration(file).eviction.rule() == EvictionRule(spares_guaranteed=True)
    file.write_text("eviction: {minimum_run_time_s: -1}")
    with pytest.raises(FormatError, match=r"eviction\.minimum_run_time_s"):
        load_configuration(file)


@pytest.mark.parametrize(("started_s", "checkpoint_s", "saved_s"), [(2050.0, 2090.0, 2090.0), (2050.0, None, 2050.0)])
def test_a_session_knows_when_an_attempt_last_saved_its_work(
    database_url: str, started_s: float, checkpoint_s: float | None, saved_s: float
) -> None:
    rule = EvictionRule(victims=VictimChoice.LEAST_WORK_DESTROYED)

    async def scenario() -> None:
        async with Database(database_url) as database, database.transaction() as connection:
            await dispatch_over_quota(connection)
            await connection.execute("UPDATE attempts SET state = 'RUNNING', started_s = %s", (started_s,))
            if checkpoint_s is not None:
                await attempt_store.record_checkpoints(connection, [(FIRST, 30.0, checkpoint_s)])
            memory = await load_memory(connection, EAST, rule, 2100.0)
            assert memory is not None
            holding = memory.inventory.holding(FIRST)
            assert holding is not None
            assert holding.saved_s == saved_s
            memory.inventory.save_work(FIRST, 2095.0)
            holding = memory.inventory.holding(FIRST)
            assert holding is not None
            assert holding.saved_s == 2095.0
            memory.inventory.check()

    asyncio.run(scenario())
