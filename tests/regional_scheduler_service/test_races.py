"""What a region has in memory may be out of date by a moment: what it writes is right all the same."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import psycopg
import pytest

from cluster_manager.attempt_run.events import Eviction
from domain.events import EventKind, EvictionCause
from domain.fleet import MachineState
from domain.identifiers import AttemptNumber, MachineId, WorkloadId
from domain.life_cycle import State
from domain.machine_life_cycle import MachineHappening
from domain.placement import AttemptKey
from domain.plan import Plan
from domain.rank import Standing
from domain.tenant import LOWEST_PRIORITY
from domain.workload import WorkloadSpecification
from regional_scheduler.dispatching import StartWith
from regional_scheduler.rounds import Lot
from services.clock import SystemClock
from services.configuration import Configuration
from services.database import (
    attempt_store,
    award_store,
    event_store,
    fleet_store,
    lease_store,
    quota_store,
    reclassification_store,
)
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.lease_store import Lease, LeaseLost
from services.execution.executor import AttemptPhase, AttemptStatus
from services.regional_scheduler.dispatching import Dispatched, QuotaChanged, VictimsChanged
from services.regional_scheduler.inbox import Inbox, MachineRequest
from services.regional_scheduler.live_attempts import LiveAttempt
from services.regional_scheduler.loading import load_memory
from services.regional_scheduler.recording import record_reports
from services.regional_scheduler.region_memory import RegionMemory
from services.regional_scheduler.session import RegionSession
from services.regional_scheduler.session_over import SessionOver
from services.wire.workloads import specification_to_proto
from tests.database.small_world import (
    ADS,
    EAST,
    FLEET,
    award_to_east,
    dispatch,
    new_attempt,
    specification,
    submission,
    submit,
)
from tests.regional_scheduler_service.won_in_the_east import dispatch_won

W1, W2 = WorkloadId("w000001"), WorkloadId("w000002")
FIRST = AttemptKey(W1, AttemptNumber(1))
NEWCOMER = AttemptKey(W2, AttemptNumber(1))
OVER_QUOTA = Standing(LOWEST_PRIORITY, 0)
WITHIN_QUOTA = Standing(1, 0)
NO_LEASE = Lease("regional/east", "nobody", 1)


def in_one_transaction(database_url: str, story: Callable[[AnyConnection], Awaitable[None]]) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database, database.transaction() as connection:
            await story(connection)

    asyncio.run(scenario())


async def dispatch_over_quota(connection: AnyConnection, wanted: WorkloadSpecification | None = None) -> None:
    await fleet_store.apply_fleet(connection, FLEET)
    wanted = wanted or specification()
    readable = replace(submission(1, wanted), serialized=specification_to_proto(wanted).SerializeToString())
    await submit(connection, [readable])
    await dispatch(connection, replace(new_attempt(W1), standing=OVER_QUOTA, within_quota=False))


async def promote(connection: AnyConnection) -> None:
    """As a scan pass does it."""
    await quota_store.release(connection, [(ADS, {"A100": -8})])
    await reclassification_store.reclassify(connection, [(FIRST, WITHIN_QUOTA, True)])


async def in_use(connection: AnyConnection) -> int:
    return (await quota_store.lock(connection, [(ADS, "A100")]))[ADS, "A100"]


async def load(connection: AnyConnection) -> RegionMemory:
    memory = await load_memory(connection, EAST)
    assert memory is not None
    return memory


@pytest.mark.parametrize(
    ("by", "marked"),
    [(Standing(5, 0), True), (Standing(LOWEST_PRIORITY, 0), False), (Standing(LOWEST_PRIORITY, 1), False)],
)
def test_only_who_stands_strictly_worse_at_that_moment_is_evicted_for_another(
    database_url: str, by: Standing, marked: bool
) -> None:
    async def story(connection: AnyConnection) -> None:
        await dispatch_over_quota(connection)
        eviction = Eviction(EvictionCause.PREEMPTED, NEWCOMER, by)
        assert await attempt_store.begin_evictions(connection, [(FIRST, eviction)], 2_000.0) == (
            {FIRST} if marked else set()
        )

    in_one_transaction(database_url, story)


def test_who_is_evicted_for_nobody_may_stand_as_well_as_it_likes(database_url: str) -> None:
    async def story(connection: AnyConnection) -> None:
        await dispatch_over_quota(connection)
        await promote(connection)
        drained = Eviction(EvictionCause.DRAINED)
        assert await attempt_store.begin_evictions(connection, [(FIRST, drained)], 2_000.0) == {FIRST}

    in_one_transaction(database_url, story)


def test_a_victim_that_was_promoted_meanwhile_is_left_alone_and_costs_nothing_else(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await dispatch_over_quota(connection)
                await _fill_up_and_award(connection)
            async with database.transaction() as connection:
                memory = await load(connection)
                await promote(connection)
            held = list(memory.inventory.holdings())
            with pytest.raises(VictimsChanged, match="of 1 victims only 0"):
                await _dispatch(database, memory)
            memory.inventory.check()
            assert list(memory.inventory.holdings()) == held
            assert not memory.inventory.is_leaving(FIRST)
            async with database.transaction() as connection:
                cursor = await connection.execute("SELECT count(*) FROM awards")
                assert await cursor.fetchone() == (1,), "the award still waits to be dispatched"
            # Once the session knows better, the newcomer has no room, and its award is given back.
            memory.inventory.set_standing(FIRST, WITHIN_QUOTA)
            assert (await _dispatch(database, memory)).given_back == 1
            async with database.transaction() as connection:
                attempt = (await load(connection)).live.get(FIRST)
                assert attempt is not None
                assert (attempt.state, attempt.standing) == (State.DISPATCHED, WITHIN_QUOTA)

    asyncio.run(scenario())


def test_a_quota_that_another_region_takes_while_plans_are_made_is_never_exceeded(database_url: str) -> None:
    """Plans are made before quotas are locked; what does not fit any more is then not dispatched, and costs nothing else."""

    def another_region_dispatches(plan: Plan, _lot: Lot) -> Plan:
        with psycopg.connect(database_url) as connection:
            connection.execute(
                """INSERT INTO quota_use (tenant, bucket, amount) VALUES (%s, 'A100', 16)
                   ON CONFLICT (tenant, bucket) DO UPDATE SET amount = 16""",
                (ADS,),
            )
        return plan

    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await dispatch_over_quota(connection)
                await _fill_up_and_award(connection)
                await connection.execute("UPDATE machines SET state = 'up'")
                await connection.execute("UPDATE queue_entries SET within_quota = true")
                memory = await load(connection)
            held = list(memory.inventory.holdings())
            with pytest.raises(QuotaChanged, match="of the quota of ads"):
                await _dispatch(database, memory, another_region_dispatches)
            memory.inventory.check()
            assert list(memory.inventory.holdings()) == held
            async with database.transaction() as connection:
                assert await award_store.has_awards(connection, EAST), "the award still waits to be dispatched"
                assert await in_use(connection) == 16
                await quota_store.release(connection, [(ADS, {"A100": 8})])
            # Held from the beginning, nobody takes it meanwhile.
            waited: list[bool] = []

            def another_region_waits(plan: Plan, _lot: Lot) -> Plan:
                with psycopg.connect(database_url) as connection:
                    connection.execute("SET LOCAL lock_timeout = '50ms'")
                    with pytest.raises(psycopg.errors.LockNotAvailable):
                        connection.execute("UPDATE quota_use SET amount = 16")
                waited.append(True)
                return plan

            assert (await _dispatch(database, memory, another_region_waits, holds_quota=True)).given_back == 0
            assert waited == [True]
            async with database.transaction() as connection:
                assert await in_use(connection) == 16

    asyncio.run(scenario())


def test_a_session_goes_on_when_a_victim_was_promoted_meanwhile(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await dispatch_over_quota(connection)
                await _fill_up_and_award(connection)
                lease = await lease_store.acquire(connection, "regional/east", "it", "nowhere", 1, 600.0)
            async with database.transaction() as connection:
                memory = await load(connection)
                await promote(connection)
            assert lease is not None
            inbox = Inbox()
            inbox.look_at_attempts = False  # what the scan pass has done is not heard of yet
            session = asyncio.create_task(
                RegionSession(database, memory, lease, SystemClock(), Configuration(), inbox).run()
            )
            while await database.run(lambda connection: award_store.has_awards(connection, EAST)):
                assert not session.done()
            session.cancel()
            with pytest.raises(asyncio.CancelledError):
                await session
            assert memory.live.get(FIRST) is not None
            assert memory.live.get(NEWCOMER) is None

    asyncio.run(scenario())


def test_orders_are_sent_before_other_regions_are_waited_for(database_url: str) -> None:
    """A round that is continued may take as long as a region may take to answer; what was dispatched before starts meanwhile."""
    order: list[str] = []

    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await dispatch_over_quota(connection)
                lease = await lease_store.acquire(connection, "regional/east", "it", "nowhere", 1, 600.0)
                memory = await load(connection)
            assert lease is not None
            session = RegionSession(database, memory, lease, SystemClock(), Configuration(), Inbox())

            async def auction(_: object) -> None:
                order.append("auction")
                raise SessionOver("one turn is enough")

            session._auction = auction  # type: ignore[method-assign,assignment]  # whatever it waits for
            session._sender.send_due = lambda _: order.append("orders")  # type: ignore[method-assign,assignment]  # to nobody
            with pytest.raises(SessionOver):
                await session.run()

    asyncio.run(scenario())
    assert order == ["orders", "auction"]


async def _dispatch(
    database: Database, memory: RegionMemory, start: StartWith | None = None, *, holds_quota: bool = False
) -> Dispatched:
    async with database.transaction() as connection:
        return await dispatch_won(connection, memory, SystemClock(), start=start, holds_quota=holds_quota)


async def _fill_up_and_award(connection: AnyConnection) -> None:
    """All other machines are drained, so that the newcomer, which the region won in a closed round, must evict the first."""
    await connection.execute("UPDATE machines SET state = 'draining' WHERE machine <> 'east-b-r0-m0'")
    wanted = replace(submission(2), serialized=specification_to_proto(specification()).SerializeToString())
    await submit(connection, [wanted])
    await connection.execute(
        "UPDATE queue_entries SET priority = 1, level = 0, credit = 1, within_quota = false WHERE workload = %s", (W2,)
    )
    await award_to_east(connection, W2)


def _reported(attempt: LiveAttempt, phase: AttemptPhase, since_s: float = 2600.0) -> LiveAttempt:
    for cluster in attempt.clusters:
        attempt.reports[cluster] = AttemptStatus(attempt.key, phase, since_s=since_s, started_s=2100.0, progress=500.0)
    return attempt


def test_what_was_promoted_unseen_gives_its_quota_back_and_its_events_say_where_it_stood(database_url: str) -> None:
    async def story(connection: AnyConnection) -> None:
        await dispatch_over_quota(connection)
        memory = await load(connection)
        await promote(connection)
        assert await in_use(connection) == 8
        attempt = memory.live.get(FIRST)
        assert attempt is not None
        assert not attempt.within_quota, "the region does not know it yet"
        recorded = await record_reports(connection, EAST, [_reported(attempt, AttemptPhase.COMPLETED)], [], 2700.0)
        assert [end.end for end in recorded.ended] == ["completed"]
        assert await in_use(connection) == 0
        cursor = await connection.execute(
            "SELECT event, priority, details->'within_quota' FROM events WHERE attempt = 1 ORDER BY sequence"
        )
        assert await cursor.fetchall() == [
            (EventKind.STARTED.value, WITHIN_QUOTA.priority, True),
            (EventKind.COMPLETED.value, WITHIN_QUOTA.priority, None),
        ]

    in_one_transaction(database_url, story)


def test_ends_that_were_kept_are_recorded_in_their_order(database_url: str) -> None:
    async def story(connection: AnyConnection) -> None:
        await dispatch_over_quota(connection)
        readable = replace(submission(2), serialized=specification_to_proto(specification()).SerializeToString())
        await submit(connection, [readable])
        other = new_attempt(W2, machine="east-b-r0-m1")
        await dispatch(connection, replace(other, standing=OVER_QUOTA, within_quota=False))
        memory = await load(connection)
        first, second = (memory.live.get(key) for key in (FIRST, NEWCOMER))
        assert first is not None
        assert second is not None
        reported = [_reported(first, AttemptPhase.COMPLETED, 2600.0), _reported(second, AttemptPhase.COMPLETED, 2300.0)]
        await record_reports(connection, EAST, reported, [], 2700.0)
        cursor = await connection.execute("SELECT workload, t FROM events WHERE event = 'completed' ORDER BY sequence")
        assert await cursor.fetchall() == [(W2, 2300.0), (W1, 2600.0)]

    in_one_transaction(database_url, story)


def test_a_cancellation_that_comes_while_an_end_is_recorded_waits_for_it(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await dispatch_over_quota(connection)
                memory = await load(connection)
            attempt = memory.live.get(FIRST)
            assert attempt is not None
            async with database.transaction() as recording:
                await record_reports(recording, EAST, [_reported(attempt, AttemptPhase.LOST)], [], 2700.0)
                async with database.transaction() as cancelling:
                    await cancelling.execute("SET LOCAL lock_timeout = '50ms'")
                    with pytest.raises(Exception, match="lock timeout"):
                        await cancelling.execute(
                            "UPDATE workloads SET cancel_requested = true WHERE workload = %s", (W1,)
                        )

    asyncio.run(scenario())


def test_a_session_without_a_lease_ends_at_once_and_leaves_nobody_waiting(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await dispatch_over_quota(connection)
                memory = await load(connection)
            inbox = Inbox()
            session = RegionSession(database, memory, NO_LEASE, SystemClock(), Configuration(), inbox)
            request = _drain()
            inbox.request(request)
            with pytest.raises(LeaseLost):
                await session.run()
            assert isinstance(request.evicted.exception(), (SessionOver, LeaseLost))
            with pytest.raises(SessionOver):
                inbox.request(_drain())
            async with database.transaction() as connection:
                _, states = await fleet_store.load_fleet(connection)
                assert set(states.values()) == {MachineState.UP}
                assert await event_store.newest_sequence(connection) == 1, "only the submission was ever recorded"

    asyncio.run(scenario())


def _drain() -> MachineRequest:
    evicted: asyncio.Future[list[AttemptKey]] = asyncio.get_running_loop().create_future()
    return MachineRequest(
        (MachineId("east-b-r0-m0"),), MachineHappening.DRAINED, "by hand", keep_running=False, evicted=evicted
    )
