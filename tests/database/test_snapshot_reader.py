"""A snapshot of live attempts that were changed: since when they hold what they hold, and what they had come to then."""

import asyncio
from dataclasses import replace

from cluster_manager.attempt_run.events import Eviction
from domain.cells import CellPair, CellUse, TaskCellUse
from domain.events import EvictionCause
from domain.identifiers import AttemptNumber, ClusterId, JobName, MachineId, RegionId, VirtualClusterId, WorkloadId
from domain.life_cycle import State
from domain.placement import AttemptKey
from domain.placement_changes import ChangeKind, PlacementChange
from domain.snapshot import AttemptSoFar, Leaving, NextPlace, RunningAttempt
from domain.snapshot_contradictions import contradictions
from services.database import attempt_store, cell_store, fleet_store, placement_change_store, reservation_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.reservation_store import ReservedPlace
from services.database.snapshot_reader import load_snapshot
from services.wire.workloads import specification_to_proto
from tests.database.small_world import ADS, FLEET, dispatch, new_attempt, placement, specification, submission, submit

W1 = WorkloadId("w000001")
KEY = AttemptKey(W1, AttemptNumber(1))


def test_a_changed_attempt_says_what_it_had_come_to_at_its_last_change(database_url: str) -> None:
    """8 GPUs from 2100 on; 4 from 2200 on, carried out at 2210; asked to leave at 2300, with a place in the east."""
    wanted = specification()
    stored = replace(submission(1, wanted), serialized=specification_to_proto(wanted).SerializeToString())
    change = PlacementChange(ChangeKind.RESIZED, (placement(),))
    kept = (placement("east-b-r0-m1"),)

    async def story(connection: AnyConnection) -> None:
        await fleet_store.apply_fleet(connection, FLEET)
        await submit(connection, [stored])
        await dispatch(connection, new_attempt(W1))
        assert (await running(connection, 2050.0)).changed is None
        await attempt_store.record_started(connection, [(KEY, 2100.0)])
        assert (await running(connection, 2150.0)).changed is None
        assert await placement_change_store.begin_change(connection, KEY, 1, (placement(gpus=4),), change, 2200.0)
        # What is not carried out yet counts as carried out now: it has worked until then as before.
        assert (await running(connection, 2205.0)).changed == AttemptSoFar(2205.0, 105.0, 800.0 + 4 * 5)
        done = {ClusterId("east-b"): (2210.0, 110.0)}
        assert await placement_change_store.finish_changes(connection, [(KEY, 1, done)]) == {KEY}
        assert (await running(connection, 2290.0)).changed == AttemptSoFar(2210.0, 110.0, 800.0 + 4 * 10)
        place = ReservedPlace(AttemptKey(W1, AttemptNumber(2)), RegionId("east"), 2295.0, kept)
        assert await reservation_store.reserve(connection, place)
        eviction = Eviction(EvictionCause.MIGRATED, to=(MachineId("east-b-r0-m1"),))
        assert await attempt_store.begin_evictions(connection, [(KEY, eviction)], 2300.0) == {KEY}
        leaving = await running(connection, 2320.0)
        assert leaving.changed == AttemptSoFar(2300.0, leaving.progress, 800.0 + 4 * 100)
        assert leaving.next_place == NextPlace(RegionId("east"), kept)

    async def scenario() -> None:
        async with Database(database_url) as database, database.transaction() as connection:
            await story(connection)

    asyncio.run(scenario())


def test_a_live_attempt_has_the_cells_that_were_written_last(database_url: str) -> None:
    wanted = specification()
    stored = replace(submission(1, wanted), serialized=specification_to_proto(wanted).SerializeToString())
    tasks = (TaskCellUse("machine", (CellPair(4, 1, 3),)),)
    seated = CellUse(ADS, VirtualClusterId("ads"), "a100", tasks, "fast", True)
    downgraded = seated._replace(tasks=(TaskCellUse("machine"),), downgraded=True)
    job = JobName("train")

    async def story(connection: AnyConnection) -> None:
        await fleet_store.apply_fleet(connection, FLEET)
        await submit(connection, [stored])
        await dispatch(connection, replace(new_attempt(W1), cells=((job, seated),)))
        assert (await running(connection, 2050.0)).cells == ((job, seated),)
        for use in (downgraded, seated):
            await cell_store.write_cells(connection, [(KEY, ((job, use),))])
            (attempt,) = await attempt_store.load_live(connection, RegionId("east"))
            assert attempt.cells == ((job, use),)
        await connection.execute("DELETE FROM attempts")
        cursor = await connection.execute("SELECT count(*) FROM attempt_cells")
        assert await cursor.fetchone() == (0,)

    async def scenario() -> None:
        async with Database(database_url) as database, database.transaction() as connection:
            await story(connection)

    asyncio.run(scenario())


def test_a_clock_that_was_ahead_and_a_machine_just_lost_make_no_contradiction(database_url: str) -> None:
    """Started a moment before its dispatch, and dispatched a moment after the snapshot, by other hosts' clocks."""
    wanted = specification()
    stored = replace(submission(1, wanted), serialized=specification_to_proto(wanted).SerializeToString())

    async def story(connection: AnyConnection) -> None:
        await fleet_store.apply_fleet(connection, FLEET)
        await submit(connection, [stored])
        await dispatch(connection, new_attempt(W1))
        (attempt,) = (await load_snapshot(connection, 2050.0)).running
        await attempt_store.record_started(connection, [(KEY, attempt.dispatched_s - 0.5)])
        for now in (2050.0, attempt.dispatched_s - 0.25):
            snapshot = await load_snapshot(connection, now)
            assert contradictions(snapshot) == []
        await connection.execute("UPDATE machines SET state = 'down' WHERE machine = %s", (placement().machine,))
        snapshot = await load_snapshot(connection, 2050.0)
        assert contradictions(snapshot) == []
        (attempt,) = snapshot.running
        assert (attempt.state, attempt.leaving) == (State.PREEMPTING, Leaving(EvictionCause.MACHINE_LOST))

    async def scenario() -> None:
        async with Database(database_url) as database, database.transaction() as connection:
            await story(connection)

    asyncio.run(scenario())


async def running(connection: AnyConnection, now: float) -> RunningAttempt:
    (attempt,) = (await load_snapshot(connection, now)).running
    return attempt
