"""Dry runs: what is refused is refused as for real, what would happen is said, and nothing is stored."""

from dataclasses import replace

import grpc
import pytest

from domain.fleet import Fleet, Region
from domain.identifiers import ANY_GPU_MODEL, RegionId
from domain.resources import Quota
from services.wire.fleets import fleet_to_proto, tenant_to_proto
from services.wire.workloads import specification_to_proto
from tests.database.small_world import ADS, FLEET, TABLES, TENANTS, VISION, cluster, dispatch, specification
from tests.global_scheduler_service.fleet_uploads import upload
from tests.global_scheduler_service.service import (
    Service,
    attempt_of,
    in_service,
    refused,
    service_in_background,
    violated_fields,
)
from topmast import Client, PreconditionError
from topmast.fleet_parts import FleetParts
from topmast.v1 import global_scheduler_pb2 as messages

AFTER = Fleet(
    (
        replace(FLEET.regions[0], clusters=(cluster("east-b", racks=1), cluster("east-a", racks=1, gpus=4))),
        FLEET.regions[1],
        Region(RegionId("north"), (cluster("north-a", racks=1, machines_per_rack=1),)),
    )
)
"""East-b without its second rack, east-a with other machines, and a third region."""


async def _stored(service: Service) -> tuple[object, ...]:
    (row,) = await service.rows(
        """SELECT (SELECT count(*) FROM workloads), (SELECT count(*) FROM events), (SELECT count(*) FROM tenants),
                  (SELECT string_agg(machine || gpus, ' ' ORDER BY machine) FROM machines)"""
    )
    return row


def _request(
    name: str = "dry", tenant: str = ADS, tasks: int = 1, *, dry: bool = True
) -> messages.SubmitWorkloadRequest:
    asked = specification_to_proto(specification(ADS, name=name, tasks=tasks))
    asked.tenant = tenant
    return messages.SubmitWorkloadRequest(specification=asked, idempotency_key="k", dry_run=dry)


def test_a_workload_is_checked_and_not_stored(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        before = await _stored(service)
        answer = await service.stub.SubmitWorkload(_request(tasks=3))
        assert (answer.workload, answer.existed) == ("", False)
        assert [(host.region, list(host.clusters)) for host in answer.hosts] == [("east", ["east-b"])]
        bad = await refused(service.stub.SubmitWorkload(_request(tenant="nobody")))
        assert (bad.code(), violated_fields(bad)) == (grpc.StatusCode.INVALID_ARGUMENT, ["specification.tenant"])
        never = await refused(service.stub.SubmitWorkload(_request(tasks=1_000)))
        assert never.code() is grpc.StatusCode.FAILED_PRECONDITION
        mixed = messages.SubmitWorkloadsRequest(requests=[_request(), _request(dry=False)])
        assert violated_fields(await refused(service.stub.SubmitWorkloads(mixed))) == ["requests"]
        assert await _stored(service) == before

    in_service(database_url, scenario)


def test_an_idempotency_key_counts_as_for_real(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        stored = await service.stub.SubmitWorkload(_request(dry=False))
        again = await service.stub.SubmitWorkloads(messages.SubmitWorkloadsRequest(requests=[_request()]))
        assert [(one.workload, one.existed) for one in again.responses] == [(stored.workload, True)]
        other = await refused(service.stub.SubmitWorkload(_request("other")))
        assert other.code() is grpc.StatusCode.ALREADY_EXISTS

    in_service(database_url, scenario)


@pytest.mark.parametrize("in_parts", [False, True])
def test_applying_says_what_would_change(database_url: str, in_parts: bool) -> None:
    async def scenario(service: Service) -> None:
        before = await _stored(service)
        tenants = (replace(TENANTS[0], quota=Quota.of({ANY_GPU_MODEL: 3}, cpus=1.0)), *TENANTS[1:])
        request = messages.ApplyFleetRequest(fleet=fleet_to_proto(AFTER, TABLES), dry_run=True)
        request.tenants.tenants.extend(map(tenant_to_proto, tenants))
        if in_parts:
            whole = FleetParts.of(request)
            await upload(service, whole)
            asked = messages.ApplyUploadedFleetRequest(upload=whole.upload)
            answer = await service.stub.ApplyUploadedFleet(asked)
        else:
            answer = await service.stub.ApplyFleet(request)
        assert (answer.regions, answer.machines, answer.tenants, answer.changes.refused) == (3, 6, 2, "")
        assert [(one.kind, list(one.added), list(one.removed), list(one.changed)) for one in answer.changes.kinds] == [
            ("region", ["north"], [], []),
            ("cluster", ["north-a"], [], []),
            ("machine", ["north-a-r0-m0"], ["east-b-r1-m0", "east-b-r1-m1"], ["east-a-r0-m0", "east-a-r0-m1"]),
            ("tenant", [], [], ["ads"]),
        ]
        assert await _stored(service) == before

    in_service(database_url, scenario)


def test_what_must_be_drained_first_is_said(database_url: str) -> None:
    """With the sentence with which it would be refused."""

    async def scenario(service: Service) -> None:
        attempt = attempt_of((await service.submit()).workload)
        await service.database.run(lambda connection: dispatch(connection, attempt))
        before = await _stored(service)
        request = messages.ApplyFleetRequest(fleet=fleet_to_proto(Fleet(FLEET.regions[1:])), dry_run=True)
        changes = (await service.stub.ApplyFleet(request)).changes
        name = f"{attempt.key.workload}#{attempt.key.attempt}"
        assert [(one.machine, one.attempt) for one in changes.drain_first] == [("east-b-r0-m0", name)]
        request.dry_run = False
        assert (await refused(service.stub.ApplyFleet(request))).details() == changes.refused
        assert await _stored(service) == before

    in_service(database_url, scenario)


def test_the_client_checks_as_it_would_do(database_url: str) -> None:
    with service_in_background(database_url) as address, Client(address) as client:
        asked = specification_to_proto(specification(VISION))
        assert [host.region for host in client.check(asked).hosts] == ["east", "coast"]
        assert [len(one.hosts) for one in client.check_many([asked, asked])] == [2, 2]
        same = client.check_fleet(fleet_to_proto(FLEET, TABLES), map(tenant_to_proto, TENANTS))
        assert (same.kinds, same.refused) == ((), "")
        client.submit(asked)
        without = [tenant_to_proto(tenant) for tenant in TENANTS if tenant.tenant != VISION]
        changes = client.check_tenants(without)
        assert [(one.kind, one.removed, one.removed_count) for one in changes.kinds] == [("tenant", ("vision",), 1)]
        with pytest.raises(PreconditionError) as real:
            client.apply_tenants(without)
        assert real.value.sentence == changes.refused
