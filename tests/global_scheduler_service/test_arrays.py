"""Arrays through the front door: stored at once, one row in lists, acted on as a whole, and never more active than may be."""

from __future__ import annotations

from dataclasses import replace

import grpc
import pytest
from google.rpc import error_details_pb2

from domain.identifiers import WorkloadId
from services.database import array_store
from services.wire.workloads import specification_to_proto
from tests.database.small_world import specification
from tests.global_scheduler_service.service import Service, detail, in_service, refused, violated_fields
from topmast.v1 import global_scheduler_pb2 as messages
from topmast.v1 import workload_pb2

PENDING, CANCELLED = workload_pb2.WORKLOAD_STATE_PENDING, workload_pb2.WORKLOAD_STATE_CANCELLED
ENTRIES = "SELECT workload FROM queue_entries ORDER BY workload"
EVENTS = "SELECT event, details ->> 'by' FROM events WHERE workload = %s AND event <> 'ranked' ORDER BY sequence"
LIMIT = "the limit of its array"


def array(written: str, *, hold: bool = False) -> workload_pb2.WorkloadSpecification:
    return specification_to_proto(replace(specification(), array=written, hold=hold))


async def submit(service: Service, written: str, *, hold: bool = False) -> str:
    return (await service.submit(array(written, hold=hold))).workload


async def entries(service: Service) -> list[object]:
    return [row[0] for row in await service.rows(ENTRIES)]


async def rows(service: Service, request: messages.ListWorkloadsRequest | None = None) -> list[workload_pb2.Workload]:
    return list((await service.stub.ListWorkloads(request or messages.ListWorkloadsRequest())).workloads)


async def until_queued(service: Service, *names: str) -> None:
    """Until each has its turn, and a rank of the queue that it is in now."""
    for name in names:
        async for now in service.stub.WatchWorkload(messages.WatchWorkloadRequest(workload=name)):
            if now.queue_position.rank:
                break


def test_never_is_the_secret_of_a_notification_shown_with_an_array(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        asked = array("0-1")
        asked.notify.url = "https://hooks.example.org/s3cret"
        name = (await service.submit(asked)).workload
        named = [name, f"{name}-000000"]
        shown = [await service.stub.GetWorkload(messages.GetWorkloadRequest(workload=one)) for one in named]
        shown += await rows(service) + await rows(service, messages.ListWorkloadsRequest(expand_arrays=True))
        assert {one.specification.notify.url for one in shown} == {"https://hooks.example.org/..."}

    in_service(database_url, scenario)


def test_an_array_is_one_row_whose_elements_are_workloads(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        other = (await service.submit()).workload
        name = await submit(service, "0-15:4,7")
        elements = [f"{name}-{index:06}" for index in (0, 4, 7, 8, 12)]
        assert await entries(service) == sorted([other, *elements])
        listed = await rows(service)
        assert [one.workload for one in listed] == [name, other]
        assert listed[0].reason == "5 elements: 5 pending"
        assert (listed[0].array, listed[0].elements.size, listed[0].HasField("array_index")) == (name, 5, False)
        assert [one.workload for one in await rows(service, messages.ListWorkloadsRequest(expand_arrays=True))] == [
            *reversed(elements),
            other,
        ]
        assert [one.workload for one in await rows(service, messages.ListWorkloadsRequest(array=name))] == [
            *reversed(elements)
        ]
        assert len(await rows(service, messages.ListWorkloadsRequest(states=[PENDING]))) == 6
        # Pages are pages of rows.
        page = await service.stub.ListWorkloads(messages.ListWorkloadsRequest(page_size=1))
        assert [one.workload for one in page.workloads] == [name]
        rest = messages.ListWorkloadsRequest(page_size=1, page_token=page.next_page_token)
        assert [one.workload for one in (await service.stub.ListWorkloads(rest)).workloads] == [other]
        one = await service.get(f"{name}[7]")
        assert (one.workload, one.array, one.array_index) == (f"{name}-000007", name, 7)
        whole = await service.get(name)
        assert (whole.state, whole.specification.array, whole.reason) == (PENDING, "0-15:4,7", "5 elements: 5 pending")
        error = await refused(service.get(f"{name}[5]"))
        assert error.code() is grpc.StatusCode.NOT_FOUND
        # An array of which nothing passes the filter is another thing than one that there is not.
        assert not await rows(
            service, messages.ListWorkloadsRequest(array=name, states=[workload_pb2.WORKLOAD_STATE_FAILED])
        )
        for nothing in ("nope", other):
            error = await refused(service.stub.ListWorkloads(messages.ListWorkloadsRequest(array=nothing)))
            assert error.code() is grpc.StatusCode.NOT_FOUND
            assert f"there is no array '{nothing}'" in (error.details() or "")

    in_service(database_url, scenario)


def test_only_so_many_are_in_the_queue_and_others_follow_when_one_ends(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        name = await submit(service, "0-9%2")
        first = [f"{name}-{index:06}" for index in range(4)]
        assert await entries(service) == first[:2]
        waits = await service.get(first[2])
        assert (waits.state, waits.queue_position.rank) == (PENDING, 0)
        assert waits.reason.startswith("waits for its turn")
        whole = await service.get(name)
        assert (whole.elements.at_most, whole.elements.awaiting_turn) == (2, 8)
        assert (await service.stub.GetStatus(messages.GetStatusRequest())).workloads["PENDING"] == 10
        await service.stub.CancelWorkload(messages.CancelWorkloadRequest(workload=f"{name}[0]"))
        await until_queued(service, first[2])
        assert await entries(service) == first[1:3]
        # What waits can be cancelled, and what is held gives up its turn.
        await service.stub.CancelWorkload(messages.CancelWorkloadRequest(workload=f"{name}[3]"))
        await service.stub.HoldWorkloads(messages.HoldWorkloadsRequest(workloads=[f"{name}[1]"], asked_by="ann"))
        fourth = f"{name}-000004"
        await until_queued(service, fourth)
        assert await entries(service) == [first[2], fourth]
        await service.stub.ReleaseWorkloads(messages.ReleaseWorkloadsRequest(workloads=[f"{name}[1]"], asked_by="bob"))
        assert await entries(service) == [first[2], fourth]
        await service.stub.CancelWorkload(messages.CancelWorkloadRequest(workload=fourth))
        await until_queued(service, first[1])
        assert await entries(service) == [first[1], first[2]]
        assert await service.rows(EVENTS, first[1]) == [
            ("submitted", None),
            ("held", "ann"),
            ("released", "bob"),
            ("held", LIMIT),
            ("released", LIMIT),
        ]
        assert await service.rows(EVENTS, first[2]) == [("submitted", None), ("held", LIMIT), ("released", LIMIT)]

    in_service(database_url, scenario)


def test_an_array_is_held_released_and_cancelled_as_a_whole(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        other = (await service.submit()).workload
        name = await submit(service, "0-9%3")
        held = await service.stub.HoldWorkloads(messages.HoldWorkloadsRequest(workloads=[name, other], asked_by="ann"))
        assert [(one.workload, one.elements) for one in held.workloads] == [(name, 10), (other, 0)]
        assert await entries(service) == []
        released = await service.stub.ReleaseWorkloads(
            messages.ReleaseWorkloadsRequest(workloads=[name], asked_by="ann")
        )
        assert [one.elements for one in released.workloads] == [10]
        await until_queued(service, *(f"{name}-00000{index}" for index in range(3)))
        assert len(await entries(service)) == 3
        await service.stub.CancelWorkload(messages.CancelWorkloadRequest(workload=f"{name}[9]", reason="not this"))
        cancelled = await service.stub.CancelWorkloads(messages.CancelWorkloadsRequest(workloads=[name]))
        assert [(one.state, one.elements) for one in cancelled.workloads] == [(CANCELLED, 9)]
        whole = await service.get(name)
        assert (whole.state, whole.reason) == (CANCELLED, "10 elements: 10 cancelled")
        assert whole.ended_s > 0
        assert await service.rows("SELECT count(*) FROM events WHERE event = 'cancelled'") == [(10,)]
        error = await refused(service.stub.CancelWorkload(messages.CancelWorkloadRequest(workload=name)))
        assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
        passed = messages.CancelWorkloadsRequest(workloads=[name], passes_over_ended=True)
        (now,) = (await service.stub.CancelWorkloads(passed)).workloads
        assert (now.state, now.elements) == (CANCELLED, 0)
        # Only elements are requeued: what ended is submitted anew with its index.
        error = await refused(service.stub.RequeueWorkloads(messages.RequeueWorkloadsRequest(workloads=[name])))
        (violation,) = detail(error, error_details_pb2.PreconditionFailure).violations
        assert "name one element of it" in violation.description
        move = service.stub.MigrateWorkload(messages.MoveWorkloadRequest(workload=name))
        error = await refused(move)
        assert f"{name} is an array: name one element of it, {name}[INDEX]" in (error.details() or "")
        with pytest.raises(grpc.aio.AioRpcError, match="is an array"):
            async for _ in service.stub.WatchEvents(messages.WatchEventsRequest(workload=name, follow=True)):
                pass
        anew = await service.stub.RequeueWorkloads(messages.RequeueWorkloadsRequest(workloads=[f"{name}[9]"]))
        again = await service.get(anew.workloads[0].submitted_anew_as + "[9]")
        assert again.array_index == 9

    in_service(database_url, scenario)


def test_only_arrays_with_room_are_looked_at_one_by_one(database_url: str) -> None:
    """However many others are as full as they may be."""

    async def scenario(service: Service) -> None:
        full, open_ = await submit(service, "0-4%2"), await submit(service, "0-4%2")

        async def with_room() -> list[WorkloadId]:
            return await service.database.run(array_store.arrays_with_room, snapshot=True)

        assert await with_room() == []
        await service.rows("UPDATE workload_arrays SET at_most = 3 WHERE array_id = %s RETURNING 1", open_)
        await until_queued(service, f"{open_}-000002")
        assert await with_room() == []
        assert f"{full}-000002" not in await entries(service)

    in_service(database_url, scenario)


def test_an_array_that_is_submitted_held_waits_until_it_is_released(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        name = await submit(service, "0-4%2", hold=True)
        assert await entries(service) == []
        await service.stub.ReleaseWorkloads(messages.ReleaseWorkloadsRequest(workloads=[name]))
        await until_queued(service, f"{name}-000000", f"{name}-000001")
        assert len(await entries(service)) == 2

    in_service(database_url, scenario)


def test_an_array_is_stored_once_for_a_key_and_whole_or_not_at_all(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        request = messages.SubmitWorkloadRequest(specification=array("0-2999%10"), idempotency_key="sweep")
        first = await service.stub.SubmitWorkload(request)
        again = await service.stub.SubmitWorkload(request)
        assert (again.workload, again.existed) == (first.workload, True)
        assert await service.rows("SELECT count(*), count(DISTINCT array_id) FROM workloads") == [(3_000, 1)]
        request.specification.array = "0-2998%10"
        error = await refused(service.stub.SubmitWorkload(request))
        assert error.code() is grpc.StatusCode.ALREADY_EXISTS
        dry = messages.SubmitWorkloadRequest(specification=array("0-9"), dry_run=True)
        assert (await service.stub.SubmitWorkload(dry)).hosts
        both = messages.SubmitWorkloadsRequest(
            requests=[messages.SubmitWorkloadRequest(specification=array(text)) for text in ("0-12000", "0-12000")]
        )
        error = await refused(service.stub.SubmitWorkloads(both))
        assert violated_fields(error) == ["requests"]
        assert await service.rows("SELECT count(*) FROM workloads") == [(3_000,)]

    in_service(database_url, scenario)


def test_what_names_no_elements_is_refused(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        bad = ("5-3", "0-9%0", "a-b", "0-1e9", "1,1", "0-100000", "0-1000000")
        for written, dry_run in [(one, dry_run) for one in bad for dry_run in (False, True)]:
            request = messages.SubmitWorkloadRequest(specification=array(written), dry_run=dry_run)
            error = await refused(service.stub.SubmitWorkload(request))
            assert violated_fields(error) == ["specification.array"]
        assert await service.rows("SELECT count(*) FROM workloads") == [(0,)]

    in_service(database_url, scenario)
