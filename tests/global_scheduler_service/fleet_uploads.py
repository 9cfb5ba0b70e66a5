"""Fleets in parts, for tests: small ones, part by part, and large ones."""

from collections.abc import Iterator

from domain.clock import ManualClock
from domain.fleet import Cluster, Fleet, Machine, Rack, Region
from domain.identifiers import ClusterId, GpuModel, MachineId, RackId, RegionId
from domain.table import Table
from services.wire.fleets import fleet_to_proto, tenant_to_proto
from tests.database.small_world import EAST, FLEET, TABLES, TENANTS, cluster
from tests.global_scheduler_service.service import (
    Service,
)
from topmast.fleet_parts import FleetParts
from topmast.v1 import global_scheduler_pb2 as messages

PART_OF_SMALL = 100
"""Bytes: small fleets have several parts too."""

LARGER = Fleet((*FLEET.regions, Region(RegionId("west"), (cluster("west-a", racks=4),))))


class SetClock(ManualClock):
    """Shows what it was set to."""

    def real_seconds(self, duration_s: float) -> float:
        return duration_s


def upload_request(
    fleet: Fleet = LARGER, tables: tuple[Table, ...] = TABLES, *, with_tenants: bool = False
) -> messages.ApplyFleetRequest:
    request = messages.ApplyFleetRequest(fleet=fleet_to_proto(fleet, tables))
    if with_tenants:
        request.tenants.tenants.extend(tenant_to_proto(tenant) for tenant in TENANTS)
    return request


def small_parts(whole: FleetParts, after: int = 0, until: int | None = None) -> Iterator[messages.FleetUploadPart]:
    for first in range(after, len(whole.content) if until is None else until, PART_OF_SMALL):
        content = whole.content[first : first + PART_OF_SMALL]
        yield messages.FleetUploadPart(upload=whole.upload, first_byte=first, content=content)


async def begin(service: Service, whole: FleetParts) -> int:
    request = messages.BeginFleetUploadRequest(upload=whole.upload, size_bytes=len(whole.content))
    return (await service.stub.BeginFleetUpload(request)).received_bytes


async def apply(service: Service, whole: FleetParts) -> messages.ApplyFleetResponse:
    return await service.stub.ApplyUploadedFleet(messages.ApplyUploadedFleetRequest(upload=whole.upload))


async def upload(service: Service, whole: FleetParts) -> None:
    await begin(service, whole)
    await service.stub.UploadFleet(small_parts(whole))


async def stored_machines(service: Service) -> list[tuple[object, ...]]:
    return await service.rows(
        """SELECT region, cluster, machine, gpus, cpus, (SELECT revision FROM revisions WHERE subject = 'fleet')
             FROM clusters JOIN machines USING (cluster) ORDER BY machine"""
    )


def many_machines(number: int) -> Fleet:
    """With names as long as names may be."""
    machines = tuple(
        Machine(MachineId(f"m{place:06}-{'x' * 120}"), GpuModel("A100"), 8, 96.0, 1152.0) for place in range(number)
    )
    racks = tuple(Rack(RackId(f"r{first}"), machines[first : first + 100]) for first in range(0, len(machines), 100))
    return Fleet((Region(EAST, (Cluster(ClusterId("east-a"), racks),)),))
