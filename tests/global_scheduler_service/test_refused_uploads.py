"""Fleets in parts that are refused, and for how long parts are kept."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import replace

import grpc
import pytest
from google.rpc import error_details_pb2

from domain.fleet import Fleet, Region
from services.database.fleet_upload_store import GREATEST_UPLOADS, STALE_AFTER_S
from services.global_scheduler.fleet_uploads import GREATEST_PART_BYTES
from services.wire.fleets import fleet_to_proto
from tests.database.small_world import EAST, FLEET, cluster, dispatch
from tests.global_scheduler_service.fleet_uploads import (
    LARGER,
    PART_OF_SMALL,
    SetClock,
    apply,
    begin,
    many_machines,
    small_parts,
    stored_machines,
    upload,
    upload_request,
)
from tests.global_scheduler_service.service import (
    Service,
    attempt_of,
    detail,
    in_service,
    refused,
    running_service,
    service_in_background,
    violated_fields,
)
from topmast import AsyncClient, Client, InvalidArgumentError
from topmast.fleet_parts import FleetParts
from topmast.v1 import fleet_pb2
from topmast.v1 import global_scheduler_pb2 as messages

# ---------------------------------------------------------------- what is refused


def test_an_invalid_machine_in_the_last_part_is_refused_as_in_one_message(database_url: str) -> None:
    request = upload_request()
    request.fleet.regions[-1].clusters[-1].racks[-1].machines[-1].cpus = -1.0
    whole = FleetParts.of(request)

    async def scenario(service: Service) -> None:
        before = await stored_machines(service)
        await upload(service, whole)
        in_parts = await refused(apply(service, whole))
        in_one = await refused(service.stub.ApplyFleet(request))
        assert violated_fields(in_parts) == ["fleet.regions[2].clusters[0].racks[3].machines[1].cpus"]
        assert violated_fields(in_parts) == violated_fields(in_one)
        assert (in_parts.code(), in_parts.details()) == (in_one.code(), in_one.details())
        assert await stored_machines(service) == before
        # The same bytes will never do, so they are not kept.
        assert await begin(service, whole) == 0

    in_service(database_url, scenario)


def test_a_machine_in_use_does_not_disappear(database_url: str) -> None:
    whole = FleetParts.of(
        messages.ApplyFleetRequest(fleet=fleet_to_proto(Fleet((Region(EAST, (cluster("east-a"),)),))))
    )

    async def scenario(service: Service) -> None:
        workload = (await service.submit()).workload
        await service.database.run(lambda connection: dispatch(connection, attempt_of(workload)))
        await upload(service, whole)
        error = await refused(apply(service, whole))
        assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
        (violation,) = detail(error, error_details_pb2.PreconditionFailure).violations
        assert (violation.type, workload in violation.description) == ("MACHINES_IN_USE", True)
        assert len(await stored_machines(service)) == 7
        # What may do later is kept.
        assert await begin(service, whole) == len(whole.content)

    in_service(database_url, scenario)


def _apply_and_wait(address: str, fleet: fleet_pb2.Fleet) -> None:
    with Client(address) as client:
        client.apply_fleet(fleet)


def _apply_on_a_loop(address: str, fleet: fleet_pb2.Fleet) -> None:
    async def run() -> None:
        async with AsyncClient(address) as client:
            await client.apply_fleet(fleet)

    asyncio.run(run())


@pytest.mark.parametrize("apply", [_apply_and_wait, _apply_on_a_loop])
def test_clients_say_what_is_wrong(database_url: str, apply: Callable[[str, fleet_pb2.Fleet], None]) -> None:
    fleet = fleet_to_proto(many_machines(30_000))
    fleet.regions[0].clusters[0].racks[-1].machines[-1].gpu_model = ""
    with service_in_background(database_url) as address, pytest.raises(InvalidArgumentError) as refusal:
        apply(address, fleet)
    assert [violation.field for violation in refusal.value.violations] == [
        "fleet.regions[0].clusters[0].racks[299].machines[99].gpu_model"
    ]


def _repeated(parts: list[messages.FleetUploadPart]) -> list[messages.FleetUploadPart]:
    return [parts[0], parts[0], *parts, parts[0]]


def _overlapping(parts: list[messages.FleetUploadPart]) -> list[messages.FleetUploadPart]:
    first, second, *others = parts
    both = messages.FleetUploadPart(upload=first.upload, content=first.content + second.content)
    return [first, both, *others]


@pytest.mark.parametrize("arranged", [_repeated, _overlapping])
def test_what_comes_twice_counts_once(
    database_url: str, arranged: Callable[[list[messages.FleetUploadPart]], list[messages.FleetUploadPart]]
) -> None:
    async def scenario(service: Service) -> None:
        whole = FleetParts.of(upload_request())
        await begin(service, whole)
        answer = await service.stub.UploadFleet(iter(arranged(list(small_parts(whole)))))
        assert (answer.received_bytes, answer.size_bytes) == (len(whole.content), len(whole.content))
        assert (await apply(service, whole)).regions == 3

    in_service(database_url, scenario)


def test_parts_that_do_not_follow_are_refused(database_url: str) -> None:
    whole = FleetParts.of(upload_request())
    first, second, third, *_ = small_parts(whole)
    beyond = messages.FleetUploadPart(upload=whole.upload, first_byte=PART_OF_SMALL, content=bytes(len(whole.content)))
    before = messages.FleetUploadPart(upload=whole.upload, first_byte=-1, content=b"xx")
    large = messages.FleetUploadPart(upload=whole.upload, first_byte=0, content=bytes(GREATEST_PART_BYTES - 50))

    async def scenario(service: Service) -> None:
        await begin(service, whole)
        for parts in ([first, third], [beyond], [before], [large]):
            error = await refused(service.stub.UploadFleet(iter(parts)))
            assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert violated_fields(error) == ["first_byte"]
            assert await begin(service, whole) == PART_OF_SMALL
        assert "the first 100 bytes have come" in str(
            (await refused(service.stub.UploadFleet(iter([third])))).details()
        )
        too_large = messages.FleetUploadPart(upload=whole.upload, content=bytes(GREATEST_PART_BYTES + 1))
        assert violated_fields(await refused(service.stub.UploadFleet(iter([too_large])))) == ["content"]
        assert violated_fields(await refused(service.stub.UploadFleet(iter([])))) == [""]
        await service.stub.UploadFleet(iter([second]))
        assert await begin(service, whole) == 2 * PART_OF_SMALL

    in_service(database_url, scenario)


def test_unknown_uploads_are_not_found(database_url: str) -> None:
    whole = FleetParts.of(upload_request())

    async def scenario(service: Service) -> None:
        calls: list[Awaitable[object]] = [
            service.stub.UploadFleet(iter([next(small_parts(whole))])),
            apply(service, whole),
        ]
        for call in calls:
            error = await refused(call)
            assert error.code() is grpc.StatusCode.NOT_FOUND
            assert detail(error, error_details_pb2.ResourceInfo).resource_name == whole.upload

    in_service(database_url, scenario)


def test_names_and_sizes_are_checked(database_url: str) -> None:
    whole = FleetParts.of(upload_request())

    async def scenario(service: Service) -> None:
        for bad in (replace(whole, upload="x" * 64), replace(whole, upload=""), replace(whole, upload="../fleet")):
            assert violated_fields(await refused(begin(service, bad))) == ["upload"]
        for size_bytes in (0, -1, 2**40):
            request = messages.BeginFleetUploadRequest(upload=whole.upload, size_bytes=size_bytes)
            assert violated_fields(await refused(service.stub.BeginFleetUpload(request))) == ["size_bytes"]
        assert await service.rows("SELECT 1 FROM fleet_uploads") == []

    in_service(database_url, scenario)


@pytest.mark.parametrize("content", [b"\xff" * 250, b""], ids=["no_message", "another_content"])
def test_content_that_is_no_such_request_is_refused(database_url: str, content: bytes) -> None:
    whole = FleetParts.of(upload_request())
    bad = replace(whole, content=whole.content[:-1] + b"?") if not content else FleetParts(_digest(content), content)

    async def scenario(service: Service) -> None:
        before = await stored_machines(service)
        await upload(service, bad)
        assert violated_fields(await refused(apply(service, bad))) == ["upload"]
        assert await stored_machines(service) == before
        assert await begin(service, bad) == 0

    in_service(database_url, scenario)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_another_size_begins_anew(database_url: str) -> None:
    whole = FleetParts.of(upload_request())

    async def scenario(service: Service) -> None:
        await upload(service, whole)
        assert await begin(service, replace(whole, content=whole.content + b"more")) == 0
        await upload(service, whole)
        assert (await apply(service, whole)).regions == 3

    in_service(database_url, scenario)


# ---------------------------------------------------------------- what is kept, and for how long


def test_uploads_that_nobody_goes_on_with_are_removed_after_a_day(database_url: str) -> None:
    left, kept, third = (FleetParts.of(upload_request(Fleet((region,)))) for region in LARGER.regions)
    clock = SetClock(1_000.0)

    async def run() -> None:
        async with running_service(database_url, clock=clock) as service:
            await upload(service, left)
            clock.advance_to(1_000.0 + STALE_AFTER_S)
            await upload(service, kept)
            assert await _uploads(service) == {left.upload, kept.upload}
            clock.advance_to(1_001.0 + STALE_AFTER_S)
            await begin(service, third)
            assert await _uploads(service) == {kept.upload, third.upload}
            assert (await refused(apply(service, left))).code() is grpc.StatusCode.NOT_FOUND
            assert await service.rows("SELECT 1 FROM fleet_upload_parts WHERE upload = %s", left.upload) == []
        clock.advance_to(1_000.0 + 3 * STALE_AFTER_S)
        # Also where nobody begins another one: a scheduler looks when it begins, and now and then.
        async with running_service(database_url, clock=clock, holder="successor") as service:
            while await _uploads(service):
                pass

    asyncio.run(run())


def test_of_applied_fleets_the_last_is_kept(database_url: str) -> None:
    first, second = FleetParts.of(upload_request()), FleetParts.of(upload_request(FLEET))

    async def scenario(service: Service) -> None:
        for whole in (first, second):
            await upload(service, whole)
            await apply(service, whole)
            assert await _uploads(service) == {whole.upload}

    in_service(database_url, scenario)


def test_so_many_may_be_under_way_and_no_more(database_url: str) -> None:
    fleets = [Fleet((Region(EAST, (cluster(f"east-{number}"),)),)) for number in range(GREATEST_UPLOADS + 1)]
    *wholes, one_more = (FleetParts.of(upload_request(fleet, ())) for fleet in fleets)

    async def scenario(service: Service) -> None:
        for whole in wholes:
            await upload(service, whole)
        error = await refused(begin(service, one_more))
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "8 other fleets are being uploaded" in str(error.details())
        await apply(service, wholes[0])
        assert await begin(service, one_more) == 0

    in_service(database_url, scenario)


async def _uploads(service: Service) -> set[object]:
    return {row[0] for row in await service.rows("SELECT upload FROM fleet_uploads")}
