"""What is asked of running workloads is handed on to the scheduler of the region that has to decide it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias, TypeVar

import grpc
from sqlalchemy import select

from domain.identifiers import ClusterId, RegionId, WorkloadId
from services.database import attempt_store, fleet_store, lease_store
from services.database.connection import AnyConnection
from services.database.core_statements import execute
from services.database.tables.workloads import WORKLOADS
from services.global_scheduler.array_look import refuse_array
from services.grpc_errors import CallRefused, InvalidArgument, NotFound, PreconditionFailed, Unavailable
from services.security.certificate_folder import CertificatesUnusable
from services.security.transport import PLAINTEXT, TransportSecurity
from services.tiers.tier_channel import tier_channel
from topmast.v1 import global_scheduler_pb2, regional_scheduler_pb2, regional_scheduler_pb2_grpc

_CALL_TIMEOUT_REAL_S = 40.0

Stub: TypeAlias = "regional_scheduler_pb2_grpc.RegionalSchedulerAsyncStub"
Answer = TypeVar("Answer")


async def region_of(connection: AnyConnection, workload: WorkloadId) -> tuple[RegionId, str]:
    """The region where the workload runs, and the address of its scheduler.

    Raises NotFound, PreconditionFailed when nothing of the workload runs or it is an array, and Unavailable.
    """
    region = await attempt_store.region_of_running(connection, workload)
    if region is None:
        cursor = await execute(connection, select(WORKLOADS.c.state).where(WORKLOADS.c.workload == workload))
        row = await cursor.fetchone()
        if row is None:
            await refuse_array(connection, workload)
            raise NotFound("workload", workload)
        raise PreconditionFailed("STATE", workload, f"{workload} is {row[0]}: only what runs can be changed")
    return region, await regional_address(connection, region)


async def destination(
    connection: AnyConnection, request: global_scheduler_pb2.MoveWorkloadRequest
) -> tuple[str, regional_scheduler_pb2.MigrateWorkloadRequest]:
    """The address of the scheduler of the region that is to take the workload, and what it is to be asked.

    Raises what `region_of` raises, and InvalidArgument when `to` is neither a region nor a cluster.
    """
    present, _ = await region_of(connection, WorkloadId(request.workload))
    fleet, _ = await fleet_store.load_fleet(connection)
    cluster = ""
    region = present
    if request.to:
        regions = {region.region for region in fleet.regions}
        of_cluster = {cluster.cluster: region.region for region in fleet.regions for cluster in region.clusters}
        if request.to in regions:
            region = RegionId(request.to)
        elif request.to in of_cluster:
            region, cluster = of_cluster[ClusterId(request.to)], request.to
        else:
            known = ", ".join(sorted([*regions, *of_cluster]))
            raise InvalidArgument.of("to", f"'{request.to}' is neither a region nor a cluster; there are {known}")
    asked = regional_scheduler_pb2.MigrateWorkloadRequest(workload=request.workload, cluster=cluster)
    return await regional_address(connection, region), asked


async def regional_address(connection: AnyConnection, region: RegionId) -> str:
    """Of the scheduler of the region; raises Unavailable while it is away."""
    address = await lease_store.address(connection, f"{lease_store.REGIONAL_PREFIX}{region}")
    if address is None:
        raise Unavailable(f"the scheduler of region {region} is away; try again")
    return address


async def call_region(
    address: str,
    subject: str,
    call: Callable[[Stub], Awaitable[Answer]],
    security: TransportSecurity = PLAINTEXT,
) -> Answer:
    """Makes the call for the workload, or whatever it is about; what the region refuses is refused in its words."""
    try:
        opened = tier_channel(address, security)
    except CertificatesUnusable as unusable:
        raise Unavailable(f"the region cannot be called: {unusable}") from unusable
    async with opened as channel:
        try:
            async with asyncio.timeout(_CALL_TIMEOUT_REAL_S):
                return await call(regional_scheduler_pb2_grpc.RegionalSchedulerStub(channel))
        except TimeoutError as error:
            raise Unavailable(
                "the region did not answer in time; look whether it was done before trying again"
            ) from error
        except grpc.aio.AioRpcError as error:
            raise _refusal(error, subject) from error


def _refusal(error: grpc.aio.AioRpcError, subject: str) -> CallRefused:
    sentence = error.details() or error.code().name
    match error.code():
        case grpc.StatusCode.FAILED_PRECONDITION:
            return PreconditionFailed("ACTION", subject, sentence)
        case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.CANCELLED:
            return Unavailable(sentence)
        case _:
            return CallRefused(error.code(), sentence)
