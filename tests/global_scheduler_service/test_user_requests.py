"""Workloads are held, released, requeued, changed and cancelled through the front door: all that are named, or none."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import grpc
from google.rpc import error_details_pb2

from domain.identifiers import WorkloadId
from domain.resources import Quota
from domain.tenant import Tenant
from services.database.connection import AnyConnection
from services.wire.workloads import specification_to_proto
from tests.database.small_world import A100, ADS, TENANTS, dispatch, specification, until_somebody_waits
from tests.global_scheduler_service.service import Service, attempt_of, detail, in_service, refused, violated_fields
from topmast.v1 import global_scheduler_pb2 as messages
from topmast.v1 import workload_pb2

PENDING, CANCELLED = workload_pb2.WORKLOAD_STATE_PENDING, workload_pb2.WORKLOAD_STATE_CANCELLED
EVENTS = "SELECT event, details ->> 'by' FROM events WHERE workload = %s AND event <> 'ranked' ORDER BY sequence"


async def submitted(service: Service, count: int) -> list[str]:
    return [(await service.submit()).workload for _ in range(count)]


async def entries(service: Service) -> set[object]:
    return {row[0] for row in await service.rows("SELECT workload FROM queue_entries")}


async def hold(service: Service, *names: str, requeue: bool = False) -> messages.WorkloadStates:
    request = messages.HoldWorkloadsRequest(workloads=names, asked_by="ann", reason="no data yet", requeue=requeue)
    return await service.stub.HoldWorkloads(request)


async def release(service: Service, *names: str) -> messages.WorkloadStates:
    return await service.stub.ReleaseWorkloads(messages.ReleaseWorkloadsRequest(workloads=names, asked_by="bob"))


async def until_ranked_anew(service: Service, workload: str) -> workload_pb2.Workload:
    """As it is when it has a rank again."""
    async for now in service.stub.WatchWorkload(messages.WatchWorkloadRequest(workload=workload)):
        if now.queue_position.rank:
            return now
    raise AssertionError(f"{workload} has ended, and was not ranked")


async def run(service: Service, workload: str) -> None:
    await service.database.run(lambda connection: dispatch(connection, attempt_of(workload)))


def test_what_is_held_waits_outside_the_queue_until_it_is_released(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        first, second = await submitted(service, 2)
        await service.until_ranked(first, second)
        answer = await hold(service, first)
        assert [(one.workload, one.state) for one in answer.workloads] == [(first, PENDING)]
        assert await entries(service) == {second}
        held = await service.get(first)
        assert (held.state, held.held_by, held.reason) == (PENDING, "ann: no data yet", "held by ann: no data yet")
        assert (held.queue_position.rank, held.queue_position.reason) == (0, "held by ann: no data yet")
        await hold(service, first)
        listed = await service.stub.ListWorkloads(messages.ListWorkloadsRequest(states=[PENDING]))
        assert {one.workload for one in listed.workloads} == {first, second}
        assert (await service.stub.GetStatus(messages.GetStatusRequest())).workloads["PENDING"] == 2
        await release(service, first, second)
        assert (await until_ranked_anew(service, first)).held_by == ""
        assert await service.rows(EVENTS, first) == [("submitted", None), ("held", "ann"), ("released", "bob")]

    in_service(database_url, scenario)


def test_what_is_submitted_held_is_never_ranked(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        held = (await service.submit(specification_to_proto(replace(specification(), hold=True)))).workload
        other = (await service.submit()).workload
        await service.until_ranked(other)
        assert await entries(service) == {other}
        assert (await service.get(held)).reason == "held by its user, as submitted"
        await release(service, held)
        await service.until_ranked(held)

    in_service(database_url, scenario)


def test_all_are_held_or_none(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        waiting, running, ended = await submitted(service, 3)
        await run(service, running)
        await service.stub.CancelWorkload(messages.CancelWorkloadRequest(workload=ended))
        for other, words in ((running, "hold it with --requeue"), (ended, "there is nothing to hold")):
            error = await refused(hold(service, waiting, other))
            assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
            (violation,) = detail(error, error_details_pb2.PreconditionFailure).violations
            assert violation.subject == other
            assert words in violation.description
        error = await refused(hold(service, waiting, "w-none"))
        assert error.code() is grpc.StatusCode.NOT_FOUND
        for names, fields in (((), ["workloads"]), ((waiting, waiting), ["workloads[1]"]), (("",), ["workloads[0]"])):
            error = await refused(hold(service, *names))
            assert (error.code(), violated_fields(error)) == (grpc.StatusCode.INVALID_ARGUMENT, fields)
        assert await entries(service) == {waiting}

    in_service(database_url, scenario)


def test_what_is_held_can_be_cancelled(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        first, second, third = await submitted(service, 3)
        await hold(service, first)
        answer = await service.stub.CancelWorkloads(
            messages.CancelWorkloadsRequest(workloads=[second, first], reason="enough")
        )
        assert [(one.workload, one.state) for one in answer.workloads] == [(second, CANCELLED), (first, CANCELLED)]
        assert (await service.get(first)).held_by == ""
        # All of them or none: one has ended.
        error = await refused(service.stub.CancelWorkloads(messages.CancelWorkloadsRequest(workloads=[third, first])))
        assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert (await service.get(third)).state == PENDING

    in_service(database_url, scenario)


def test_what_has_ended_is_submitted_anew_once_for_each_key(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        wanted = replace(specification(), hold=True, labels=(("sweep", "a"),))
        ended = (await service.submit(specification_to_proto(wanted))).workload
        (waiting,) = await submitted(service, 1)
        await service.stub.CancelWorkload(messages.CancelWorkloadRequest(workload=ended))
        request = messages.RequeueWorkloadsRequest(workloads=[ended], asked_by="ann", idempotency_key="k")
        (once,) = (await service.stub.RequeueWorkloads(request)).workloads
        (again,) = (await service.stub.RequeueWorkloads(request)).workloads
        assert (once.workload, once.state, once.submitted_anew_as) == (ended, CANCELLED, again.submitted_anew_as)
        new = await service.get(once.submitted_anew_as)
        assert (new.state, new.specification.hold, new.held_by) == (PENDING, False, "")
        assert dict(new.specification.labels) == {"sweep": "a"}
        error = await refused(
            service.stub.RequeueWorkloads(messages.RequeueWorkloadsRequest(workloads=[ended, waiting]))
        )
        assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert "requeue them apart" in (error.details() or "")

    in_service(database_url, scenario)


def test_what_waits_asks_for_something_else_and_is_ranked_by_that(database_url: str) -> None:
    low = Tenant(ADS, 1, Quota.of({A100: 16}, cpus=100.0), further_quotas=((4, Quota.of({A100: 16})),))

    async def scenario(service: Service) -> None:
        await service.apply(tenants=(low, *TENANTS[1:]))
        (workload,) = await submitted(service, 1)
        await service.until_ranked(workload)
        assert (await service.get(workload)).queue_position.priority == 1
        await service.stub.ChangeWorkloads(
            messages.ChangeWorkloadsRequest(
                workloads=[workload], asked_by="ann", priority=4, regions=["coast"], labels={"a": "b"}, max_time_s=60.0
            )
        )
        now = await until_ranked_anew(service, workload)
        assert (now.queue_position.priority, now.revision) == (4, 1)
        said = now.specification
        assert (said.priority, list(said.regions), dict(said.labels), said.max_time_s) == (4, ["coast"], {"a": "b"}, 60)
        await service.stub.ChangeWorkloads(
            messages.ChangeWorkloadsRequest(workloads=[workload], priority=-1, anywhere=True, max_time_s=0.0)
        )
        said = (await service.get(workload)).specification
        assert (said.HasField("priority"), list(said.regions), said.HasField("max_time_s")) == (False, [], False)
        rows = await service.rows("SELECT details FROM events WHERE event = 'changed' ORDER BY sequence")
        assert [details["revision"] for (details,) in rows if isinstance(details, dict)] == [1, 2]

    in_service(database_url, scenario)


def test_a_change_is_checked_as_a_submission_is(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        first, second = await submitted(service, 2)
        for request, field in (
            (messages.ChangeWorkloadsRequest(priority=5), "priority"),
            (messages.ChangeWorkloadsRequest(regions=["nowhere"]), "regions[0]"),
            (messages.ChangeWorkloadsRequest(labels={"": "b"}), "labels"),
            (messages.ChangeWorkloadsRequest(max_time_s=-1.0), "max_time_s"),
            (messages.ChangeWorkloadsRequest(regions=["east"], anywhere=True), "regions"),
            (messages.ChangeWorkloadsRequest(), "request"),
        ):
            request.workloads.extend([first, second])
            error = await refused(service.stub.ChangeWorkloads(request))
            assert (error.code(), violated_fields(error)) == (grpc.StatusCode.INVALID_ARGUMENT, [field]), request
        big = (await service.submit(specification_to_proto(specification(tasks=3)))).workload
        error = await refused(
            service.stub.ChangeWorkloads(messages.ChangeWorkloadsRequest(workloads=[first, big], regions=["coast"]))
        )
        assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert "no region could ever host it then" in (error.details() or "")
        for workload in (first, second, big):
            assert (await service.get(workload)).revision == 0

    in_service(database_url, scenario)


def test_what_runs_keeps_its_place_and_gets_labels(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        (workload,) = await submitted(service, 1)
        await run(service, workload)
        error = await refused(
            service.stub.ChangeWorkloads(messages.ChangeWorkloadsRequest(workloads=[workload], priority=1))
        )
        assert "requeue it first" in (error.details() or "")
        await service.stub.ChangeWorkloads(messages.ChangeWorkloadsRequest(workloads=[workload], labels={"a": "b"}))
        assert dict((await service.get(workload)).specification.labels) == {"a": "b"}

    in_service(database_url, scenario)


def test_never_both_held_and_dispatched(database_url: str) -> None:
    """A region takes an entry out of the queue while its user holds it: one of the two comes first."""

    async def scenario(service: Service) -> None:
        names = await submitted(service, 12)

        async def take(name: str) -> bool:
            async def dispatch_if_queued(connection: AnyConnection) -> bool:
                query = "SELECT 1 FROM queue_entries WHERE workload = %s FOR UPDATE"
                queued = await (await connection.execute(query, (name,))).fetchone()
                if queued is not None:
                    await dispatch(connection, attempt_of(name))
                return queued is not None

            return await service.database.run(dispatch_if_queued)

        async def try_to_hold(name: str) -> bool:
            try:
                await hold(service, name)
            except grpc.aio.AioRpcError as error:
                return error.code() is not grpc.StatusCode.FAILED_PRECONDITION
            return True

        outcomes = await asyncio.gather(*(act(name) for name in names for act in (take, try_to_hold)))
        for name, dispatched, held in zip(names, outcomes[::2], outcomes[1::2], strict=True):
            assert dispatched != held
            assert len((await service.get(WorkloadId(name))).attempts) == int(dispatched)

    in_service(database_url, scenario)


def test_a_class_that_is_taken_back_counts_no_more(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        (workload,) = await submitted(service, 1)
        for said, importance in (("high", 1), ("", None), ("low", -1), ("normal", None)):
            await service.stub.ChangeWorkloads(
                messages.ChangeWorkloadsRequest(workloads=[workload], priority_class=said)
            )
            query = "SELECT importance FROM queue_entries WHERE workload = %s"
            assert await service.rows(query, workload) == [(importance,)], said

    in_service(database_url, scenario)


def test_who_cancels_several_locks_them_in_the_order_of_all_others(database_url: str) -> None:
    """Entries in the queue first. One that runs, and has none, comes before one that waits: else whoever holds both at the same
    time has the second, waits for the first, and one of the two is given up as a deadlock."""

    async def scenario(service: Service) -> None:
        running, waiting = sorted(await submitted(service, 2))
        await run(service, running)
        async with service.database.transaction() as gate:
            await gate.execute("SELECT FROM workloads WHERE workload = %s FOR UPDATE", (running,))
            request = messages.CancelWorkloadsRequest(workloads=[running, waiting])
            cancelling = asyncio.ensure_future(service.stub.CancelWorkloads(request))
            await until_somebody_waits(service.database)
            query = "SELECT FROM queue_entries WHERE workload = %s FOR UPDATE SKIP LOCKED"
            assert await service.rows(query, waiting) == []
        await cancelling

    in_service(database_url, scenario)
