"""A global scheduler over real gRPC and a real database, for tests: on this event loop, or on one of its own."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

import grpc
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc

from domain.fleet import Fleet
from domain.identifiers import WorkloadId
from domain.table import Table
from domain.tenant import Tenant
from services.clock import ServiceClock, SystemClock
from services.configuration import Configuration, LeaseConfiguration, ScanConfiguration
from services.database.attempt_store import NewAttempt
from services.database.engine import Database
from services.global_scheduler.tier import GlobalSchedulerTier
from services.wire.fleets import fleet_to_proto, tenant_to_proto
from services.wire.workloads import specification_to_proto
from tests.database.small_world import FLEET, TABLES, TENANTS, new_attempt, specification
from topmast.v1 import global_scheduler_pb2 as messages
from topmast.v1 import global_scheduler_pb2_grpc, workload_pb2

AsyncStub: TypeAlias = "global_scheduler_pb2_grpc.GlobalSchedulerAsyncStub"
DetailT = TypeVar("DetailT", bound=Message)

CONFIGURATION = Configuration(
    scan=ScanConfiguration(period_real_s=60.0, debounce_real_s=0.0), lease=LeaseConfiguration(duration_real_s=60.0)
)
"""Passes come when something happened; nothing here depends on a period or on the end of a lease."""

NO_HOME = Path("/dev/null")
"""Of a service that stores no packages."""

SERVING = health_pb2.HealthCheckResponse.SERVING


@dataclass
class Service:
    """One running global scheduler."""

    address: str
    database: Database
    tier: GlobalSchedulerTier
    stub: AsyncStub
    health: Any
    """A HealthStub: its published types do not know its methods."""
    running: asyncio.Task[None]

    async def until_serving(self) -> None:
        await self.until_health(SERVING)

    async def until_health(self, status: int) -> None:
        watching = self.health.Watch(health_pb2.HealthCheckRequest())
        async for received in watching:
            if received.status == status:
                break
        watching.cancel()

    async def apply(
        self, fleet: Fleet = FLEET, tenants: tuple[Tenant, ...] = TENANTS, tables: tuple[Table, ...] = TABLES
    ) -> None:
        await self.stub.ApplyFleet(messages.ApplyFleetRequest(fleet=fleet_to_proto(fleet, tables)))
        await self.stub.ApplyTenants(
            messages.ApplyTenantsRequest(tenants=[tenant_to_proto(tenant) for tenant in tenants])
        )

    async def submit(
        self, wanted: workload_pb2.WorkloadSpecification | None = None, key: str = ""
    ) -> messages.SubmitWorkloadResponse:
        return await self.stub.SubmitWorkload(submit_request(wanted, key))

    async def get(self, workload: str) -> workload_pb2.Workload:
        return await self.stub.GetWorkload(messages.GetWorkloadRequest(workload=workload))

    async def until_ranked(self, *workloads: str) -> None:
        """Until a scan pass has seen all of these."""
        missing = set(workloads)
        async for event in self.stub.WatchEvents(messages.WatchEventsRequest(follow=True, events=["ranked"])):
            missing.discard(event.workload)
            if not missing:
                return

    async def rows(self, query: str, *parameters: object) -> list[tuple[object, ...]]:
        async with self.database.transaction() as connection:
            cursor = await connection.execute(query.encode(), parameters)
            return await cursor.fetchall()


def attempt_of(workload: str, attempt: int = 1) -> NewAttempt:
    """An attempt that a region would dispatch just now: use is counted from then on."""
    return new_attempt(WorkloadId(workload), attempt, dispatched_s=SystemClock().now())


def submit_request(
    wanted: workload_pb2.WorkloadSpecification | None = None, key: str = ""
) -> messages.SubmitWorkloadRequest:
    return messages.SubmitWorkloadRequest(
        specification=wanted if wanted is not None else specification_to_proto(specification()), idempotency_key=key
    )


@asynccontextmanager
async def running_service(
    url: str,
    *,
    configuration: Configuration = CONFIGURATION,
    clock: ServiceClock | None = None,
    holder: str = "test",
    serving: bool = True,
    home: Path = NO_HOME,
) -> AsyncIterator[Service]:
    """A global scheduler as long as the context lasts, with packages in `home`; with `serving` it is ready to be called."""
    async with Database(url) as database:
        tier = GlobalSchedulerTier(database, clock or SystemClock(), configuration, home=home)
        address = f"127.0.0.1:{await tier.start('127.0.0.1:0')}"
        running = asyncio.create_task(tier.run(address, holder))
        try:
            async with grpc.aio.insecure_channel(address) as channel:
                stub: AsyncStub = global_scheduler_pb2_grpc.GlobalSchedulerStub(channel)
                health: Any = health_pb2_grpc.HealthStub(channel)
                service = Service(address, database, tier, stub, health, running)
                if serving:
                    await service.until_serving()
                yield service
            if running.done() and not running.cancelled():
                running.result()
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await tier.stop(0.0)


def in_service(
    url: str,
    scenario: Callable[[Service], Awaitable[None]],
    *,
    configuration: Configuration = CONFIGURATION,
    home: Path = NO_HOME,
) -> None:
    """Runs the scenario against a service that has the small world's fleet and tenants."""

    async def run() -> None:
        async with running_service(url, configuration=configuration, home=home) as service:
            await service.apply()
            await scenario(service)

    asyncio.run(run())


@contextmanager
def service_in_background(url: str) -> Iterator[str]:
    """The address of a service with the small world, on an event loop of its own: for callers that block."""
    started = threading.Event()
    addresses: list[str] = []
    stops: list[Callable[[], object]] = []

    async def serve() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        async with running_service(url) as service:
            await service.apply()
            addresses.append(service.address)
            stops.append(lambda: loop.call_soon_threadsafe(stop.set))
            started.set()
            await stop.wait()

    def work() -> None:
        try:
            asyncio.run(serve())
        finally:
            started.set()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        started.wait()
        (address,) = addresses
        yield address
    finally:
        for stop in stops:
            stop()
        thread.join()


async def refused(call: Awaitable[object]) -> grpc.aio.AioRpcError:
    """What the call failed with."""
    try:
        answer = await call
    except grpc.aio.AioRpcError as error:
        return error
    raise AssertionError(f"the call was answered: {answer}")


def detail(error: grpc.Call | grpc.aio.AioRpcError, kind: type[DetailT]) -> DetailT:
    """The detail of that kind; there is exactly one."""
    metadata = cast("Iterable[tuple[str, bytes]]", error.trailing_metadata())
    (packed_status,) = (value for key, value in metadata if key == "grpc-status-details-bin")
    (packed,) = (one for one in status_pb2.Status.FromString(packed_status).details if one.Is(kind.DESCRIPTOR))
    message = kind()
    packed.Unpack(message)
    return message


def violated_fields(error: grpc.Call | grpc.aio.AioRpcError) -> list[str]:
    return [violation.field for violation in detail(error, error_details_pb2.BadRequest).field_violations]
