"""The scan pass in the service: what it stores, when it comes, and what it leaves alone."""

import asyncio
from dataclasses import replace
from functools import partial

import pytest

from cluster_manager.attempt_run.actions import RecordEnd
from cluster_manager.attempt_run.events import Eviction
from domain.clock import ManualClock
from domain.events import EvictionCause
from domain.identifiers import AttemptNumber, TenantId, WorkloadId
from domain.life_cycle import State
from domain.placement import AttemptKey
from domain.rank import Standing
from domain.resources import Quota
from domain.tenant import LOWEST_PRIORITY
from global_scheduler.scan_plan import Reclassification
from services.clock import CompressedClock, SystemClock
from services.database import attempt_store, lease_store, quota_store
from services.database.attempt_store import NewAttempt
from services.database.channels import REGION_CHANNEL, SCAN_CHANNEL
from services.database.connection import AnyConnection, wake_after_commit
from services.database.engine import Database
from services.global_scheduler.scan_decision import ScanDecision, decide, load_snapshot
from services.global_scheduler.scan_record import (
    CHANGES_AT_ONCE,
    SnapshotOutdated,
    parts_of,
    record_ranks,
    record_reclassifications,
)
from services.wire.workloads import specification_to_proto
from tests.database.small_world import A100, ADS, EAST, TENANTS, VISION, dispatch, specification
from tests.global_scheduler_service.service import (
    CONFIGURATION,
    Service,
    attempt_of,
    in_service,
    running_service,
    submit_request,
)
from topmast.v1 import global_scheduler_pb2 as messages

_SETTINGS = CONFIGURATION.scan_settings()
_OVER = Standing(LOWEST_PRIORITY, 0)


class _Clock(ManualClock):
    """Stands still; no test has to wait for it."""

    def real_seconds(self, duration_s: float) -> float:
        return duration_s


async def _submit(service: Service, count: int, tenant: TenantId = ADS, gpus: int = 8) -> list[WorkloadId]:
    wanted = specification_to_proto(specification(tenant, gpus=gpus))
    request = messages.SubmitWorkloadsRequest(requests=[submit_request(wanted)] * count)
    return [WorkloadId(one.workload) for one in (await service.stub.SubmitWorkloads(request)).responses]


async def _wake(service: Service) -> None:
    async def wake(connection: AnyConnection) -> None:
        wake_after_commit(connection, SCAN_CHANNEL)

    await service.database.run(wake)


async def _until_pass(service: Service, later_than: int) -> int:
    """Until a pass of a greater number is recorded; returns its number."""
    while True:
        ((newest,),) = await service.rows("SELECT max(scan_pass) FROM scan_passes")
        if isinstance(newest, int) and newest > later_than:
            return newest


async def _decide(database: Database, now: float | None = None) -> ScanDecision:
    at = SystemClock().now() if now is None else now
    snapshot = await database.run(lambda connection: load_snapshot(connection, at, _SETTINGS), snapshot=True)
    return decide(snapshot, _SETTINGS)


async def _run(service: Service, attempt: NewAttempt) -> None:
    """Dispatched as a region does it: charged when within quota."""

    async def charge_and_dispatch(connection: AnyConnection) -> None:
        if attempt.within_quota:
            limits = {attempt.tenant: {"A100": 16, "any": 8}}
            assert await quota_store.charge(connection, [(attempt.tenant, attempt.charges)], limits) == [True]
        await dispatch(connection, attempt)

    await service.database.run(charge_and_dispatch)


async def _standings(service: Service) -> dict[str, tuple[int, bool]]:
    rows = await service.rows("SELECT workload, priority, within_quota FROM attempts WHERE ended_s IS NULL")
    return {str(workload): (int(str(priority)), bool(within)) for workload, priority, within in rows}


async def _ledger(service: Service) -> list[tuple[object, ...]]:
    return await service.rows("SELECT tenant, bucket, amount FROM quota_use WHERE amount <> 0 ORDER BY 1, 2")


# ---------------------------------------------------------------- the queue


def test_many_credits_are_stored_after_the_pass_without_another_event(database_url: str) -> None:
    """More than go with a pass have only another credit than was decided: all are put right, and a newcomer is ranked."""

    async def scenario(service: Service) -> None:
        await service.until_ranked(*await _submit(service, 1_000), *await _submit(service, 100))
        (events,) = await service.rows("SELECT count(*) FROM events WHERE event = 'ranked'")
        await service.rows("UPDATE queue_entries SET credit = credit - 1 RETURNING workload")
        await service.until_ranked(*await _submit(service, 1))
        # Some may have become a minute older.
        while await service.rows("SELECT FROM queue_entries HAVING max(credit) - min(credit) > 0.5"):
            pass
        assert await service.rows("SELECT count(*) - 1 FROM events WHERE event = 'ranked'") == [events]

    in_service(database_url, scenario)


def test_the_first_pass_is_recorded_and_an_empty_queue_needs_no_more(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        first = await _until_pass(service, 0)
        for _ in range(3):
            await _wake(service)
            await service.stub.GetStatus(messages.GetStatusRequest())
        (name,) = await _submit(service, 1)
        await service.until_ranked(name)
        rows = await service.rows("SELECT scan_pass, entries FROM scan_passes ORDER BY scan_pass")
        assert rows[0] == (first, 0)
        assert all(entries for _, entries in rows[1:])

    in_service(database_url, scenario)


def test_what_is_stored_is_what_the_core_decides(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        names = [*await _submit(service, 5, VISION, gpus=4), *await _submit(service, 3), *await _submit(service, 2)]
        await service.until_ranked(*names)
        ((now_s,),) = await service.rows("SELECT now_s FROM scan_passes ORDER BY scan_pass DESC LIMIT 1")
        decision = await _decide(service.database, float(str(now_s)))
        assert len(decision.view.pending) == 10
        assert not decision.plan.changed.size, "a second pass over the same facts changes something"
        queue = await service.stub.GetQueue(messages.GetQueueRequest())
        pending = decision.view.pending.workloads
        assert [entry.workload for entry in queue.entries] == [pending[at] for at in decision.plan.order.tolist()]

    in_service(database_url, scenario)


def test_credit_alone_is_stored_without_an_event(database_url: str) -> None:
    async def run() -> None:
        clock = _Clock(1_700_000_000.0)
        async with running_service(database_url, clock=clock) as service:
            await service.apply()
            names = await _submit(service, 3)
            await service.until_ranked(*names)
            before = await service.rows("SELECT workload, credit FROM queue_entries ORDER BY 1")
            events = await service.rows("SELECT count(*) FROM events")
            newest = await _until_pass(service, 0)
            clock.advance_to(clock.now() + 3600.0)
            await _wake(service)
            await _until_pass(service, newest)
            after = await service.rows("SELECT workload, credit FROM queue_entries ORDER BY 1")
            # With the default weights an hour of waiting is a credit of 1.
            assert [float(str(new)) - float(str(old)) for (_, old), (_, new) in zip(before, after, strict=True)] == [
                pytest.approx(1.0)
            ] * 3
            assert await service.rows("SELECT count(*) FROM events") == events

    asyncio.run(run())


def test_ranked_events_tell_standing_and_credit_in_queue_order(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        names = await _submit(service, 3)
        await service.until_ranked(*names)
        rows = await service.rows(
            """SELECT workload, tenant, priority, level, details ->> 'within_quota' FROM events
                WHERE event = 'ranked' ORDER BY sequence"""
        )
        assert rows == [
            (names[0], "ads", 1, 0, "true"),
            (names[1], "ads", 1, 0, "true"),
            (names[2], "ads", LOWEST_PRIORITY, 0, "false"),
        ]

    in_service(database_url, scenario)


def test_who_waits_after_a_failure_is_ranked_when_the_wait_is_over(database_url: str) -> None:
    async def run() -> None:
        clock = CompressedClock(SystemClock().now(), 1_700_000_000.0, 100.0)
        async with running_service(database_url, clock=clock) as service:
            await service.apply()
            waiting, other = await _submit(service, 2)
            await service.until_ranked(waiting, other)
            until_s = clock.now() + 40.0  # 0.4 s: the period is a minute
            await service.rows(
                "UPDATE queue_entries SET priority = NULL, not_before_s = %s WHERE workload = %s RETURNING 1",
                until_s,
                waiting,
            )
            received = await service.get(waiting)
            assert (received.queue_position.rank, received.queue_position.next_try_s) == (0, until_s)
            assert received.queue_position.reason.startswith("it waits for its next try after a failure")
            await _wake(service)
            async for event in service.stub.WatchEvents(messages.WatchEventsRequest(follow=True, workload=waiting)):
                if event.event == "ranked" and event.t >= until_s:
                    break
            assert (await service.get(waiting)).queue_position.rank == 1

    asyncio.run(run())


def test_entries_that_somebody_takes_out_are_left_alone(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        lease = await _lease(service)
        names = await _submit(service, 2)
        await service.until_ranked(*names)
        await service.rows("UPDATE queue_entries SET priority = NULL RETURNING 1")
        decision = await _decide(service.database)
        assert len(decision.plan.changed) == 2
        async with service.database.transaction() as region:
            await region.execute("SELECT 1 FROM queue_entries WHERE workload = %s FOR UPDATE", (names[0],))
            # It does not wait for the region, which could wait for it.
            await service.database.run(lambda c: record_ranks(c, lease, decision, SystemClock(), reclassified=0))
            assert await service.rows("SELECT workload FROM queue_entries WHERE priority IS NULL") == [(names[0],)]

    in_service(database_url, scenario)


# ---------------------------------------------------------------- live attempts


async def _lease(service: Service) -> lease_store.Lease:
    (row,) = await service.rows("SELECT holder, token FROM leases WHERE name = 'global'")
    return lease_store.Lease("global", str(row[0]), int(str(row[1])))


def test_what_runs_over_quota_is_promoted_when_quota_frees(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        first, second, third = await _submit(service, 3)
        await _run(service, attempt_of(first))
        await _run(service, attempt_of(second))
        await _run(service, replace(attempt_of(third), standing=_OVER, within_quota=False))
        await _wake(service)
        assert (await _standings(service))[third] == (LOWEST_PRIORITY, False)
        ended = RecordEnd(attempt_of(first).key, "completed", "", SystemClock().now(), 600.0, 600.0, State.COMPLETED)

        async def complete(connection: AnyConnection) -> None:
            await attempt_store.record_ends(connection, [ended], {})
            await quota_store.release(connection, [(ADS, {"A100": 8})])
            wake_after_commit(connection, SCAN_CHANNEL)

        async with service.database.listen(REGION_CHANNEL) as region:
            await region.wait()  # it listens
            await service.database.run(complete)
            assert await region.wait(30.0)
        assert await _standings(service) == {second: (1, True), third: (1, True)}
        assert await _ledger(service) == [("ads", "A100", 16)]
        ((workload, attempt, priority, within),) = await service.rows(
            "SELECT workload, attempt, priority, details ->> 'within_quota' FROM events WHERE event = 'reclassified'"
        )
        assert (workload, attempt, priority, within) == (third, 1, 1, "true")

    in_service(database_url, scenario)


def test_a_smaller_quota_demotes_the_newest(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        first, second = await _submit(service, 2)
        await _run(service, attempt_of(first))
        await _run(service, attempt_of(second))
        async with service.database.listen(REGION_CHANNEL) as region:
            await region.wait()
            await service.apply(tenants=(replace(TENANTS[0], priority=2, quota=Quota.of({A100: 8})), TENANTS[1]))
            while await _standings(service) != {first: (2, True), second: (LOWEST_PRIORITY, False)}:
                assert await region.wait(30.0)
        assert await _ledger(service) == [("ads", "A100", 8)]

    in_service(database_url, scenario)


def test_a_promotion_that_no_longer_fits_is_left_out(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        first, second, third = await _submit(service, 3)
        await service.until_ranked(first, second, third)
        lease = await _lease(service)
        await _run(service, attempt_of(first))
        await _run(service, replace(attempt_of(second), standing=_OVER, within_quota=False))
        decision = await _decide(service.database)
        assert [change.key.workload for change in decision.plan.reclassifications if change.promoted] == [second]
        await _run(service, attempt_of(third))  # a region was faster
        applied = await service.database.run(lambda c: _record_all(c, lease, decision))
        assert applied == 0
        assert (await _standings(service))[second] == (LOWEST_PRIORITY, False)
        assert await _ledger(service) == [("ads", "A100", 16)]

    in_service(database_url, scenario)


def test_attempts_that_changed_since_are_left_alone(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        names = await _submit(service, 3)
        await service.until_ranked(*names)
        lease = await _lease(service)
        for name in names[:2]:
            await _run(service, replace(attempt_of(name), standing=_OVER, within_quota=False))
        decision = await _decide(service.database)
        assert len(decision.plan.reclassifications) == 2
        await _evict(service, names[0])
        async with service.database.transaction() as region:
            await region.execute("SELECT 1 FROM attempts WHERE workload = %s FOR UPDATE", (names[1],))
            applied = await service.database.run(lambda c: _record_all(c, lease, decision))
        assert applied == 0
        assert await _ledger(service) == []
        assert await service.rows("SELECT count(*) FROM events WHERE event = 'reclassified'") == [(0,)]

    in_service(database_url, scenario)


async def _evict(service: Service, workload: WorkloadId) -> None:
    eviction = Eviction(EvictionCause.DRAINED)
    await service.database.run(
        lambda connection: attempt_store.begin_evictions(connection, [(attempt_of(workload).key, eviction)], 0.0)
    )


async def _record_all(connection: AnyConnection, lease: lease_store.Lease, decision: ScanDecision) -> int:
    changes = decision.plan.reclassifications
    return await record_reclassifications(connection, lease, decision, changes, SystemClock())


def test_parts_of_a_plan_are_right_by_themselves(database_url: str) -> None:
    """A service that ends after any part has neither lost nor exceeded anything; the next pass does the rest."""

    async def scenario(service: Service) -> None:
        names = await _submit(service, 2)
        await service.until_ranked(*names)
        lease = await _lease(service)
        for name in names:
            await _run(service, replace(attempt_of(name), standing=_OVER, within_quota=False))
        decision = await _decide(service.database)
        changes = decision.plan.reclassifications
        assert [change.key.workload for change in changes] == names
        record = partial(record_reclassifications, lease=lease, decision=decision, clock=SystemClock())
        assert await service.database.run(partial(record, changes=changes[:1])) == 1
        assert await _ledger(service) == [("ads", "A100", 8)]
        assert await service.rows("SELECT count(*) FROM events WHERE event = 'reclassified'") == [(1,)]
        # The same part once more changes nothing.
        assert await service.database.run(partial(record, changes=changes[:1])) == 0
        again = await _decide(service.database)
        assert [change.key.workload for change in again.plan.reclassifications] == names[1:]
        assert await service.database.run(lambda c: _record_all(c, lease, again)) == 1
        assert await _ledger(service) == [("ads", "A100", 16)]
        assert (await _decide(service.database)).plan.reclassifications == ()

    in_service(database_url, scenario)


def test_parts_are_bounded_and_keep_the_order() -> None:
    changes = [
        Reclassification(
            AttemptKey(WorkloadId(f"w{row:06d}"), AttemptNumber(1)), True, Standing(2, 0), False, _OVER, row
        )
        for row in range(2 * CHANGES_AT_ONCE + 1)
    ]
    parts = list(parts_of(changes))
    assert [len(part) for part in parts] == [CHANGES_AT_ONCE, CHANGES_AT_ONCE, 1]
    assert [change for part in parts for change in part] == changes
    assert list(parts_of(())) == []


def test_a_pass_that_saw_other_tenants_is_given_up(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        (name,) = await _submit(service, 1)
        await service.until_ranked(name)
        lease = await _lease(service)
        await _run(service, replace(attempt_of(name), standing=_OVER, within_quota=False))
        decision = await _decide(service.database)
        await service.apply(tenants=(replace(TENANTS[0], priority=4), TENANTS[1]))
        with pytest.raises(SnapshotOutdated):
            await service.database.run(lambda c: _record_all(c, lease, decision))

    in_service(database_url, scenario)


def test_only_the_holder_of_the_lease_records(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        (name,) = await _submit(service, 1)
        await service.until_ranked(name)
        stranger = lease_store.Lease("global", "somebody", 77)
        decision = await _decide(service.database)
        before = await service.rows("SELECT * FROM scan_passes")
        with pytest.raises(lease_store.LeaseLost):
            await service.database.run(lambda c: record_ranks(c, stranger, decision, SystemClock(), reclassified=0))
        assert await service.rows("SELECT * FROM scan_passes") == before

    in_service(database_url, scenario)


def test_regions_are_named_in_events(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        (name,) = await _submit(service, 1)
        await _run(service, replace(attempt_of(name), standing=_OVER, within_quota=False))
        await _wake(service)
        request = messages.WatchEventsRequest(follow=True, events=["reclassified"])
        event = await anext(aiter(service.stub.WatchEvents(request)))
        assert (event.workload, event.attempt, event.region, event.tenant) == (name, 1, EAST, "ads")

    in_service(database_url, scenario)
