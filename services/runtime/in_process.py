"""All tiers on one event loop, without Ray: emulated execution only. For tests, benchmarks and experiments.

They find each other through the database and talk gRPC over loopback, exactly as they do in processes of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from domain.fleet import Fleet
from domain.identifiers import ClusterId, RegionId
from domain.table import Table
from domain.tenant import Tenant
from services.configuration import Configuration
from services.database import catalog_store, fleet_store, lease_store, tenant_store
from services.database.engine import Database
from services.metrics.service_metrics import ServiceMetrics
from services.metrics.settings import LOOPBACK
from services.runtime.clock_record import record_clock
from services.runtime.executor_kind import ExecutorKind
from services.runtime.tier_place import TierKind
from services.runtime.tier_process import TierRequest, run_tier
from services.security.home_tokens import keep_home_tokens
from services.task_end import end_task
from services.tiers.free_port import free_port, kept_ports
from services.tracing.traces import NoTraces, Traces

_LOOK_EVERY_REAL_S = 0.02
_READY_PATIENCE_REAL_S = 60.0


@dataclass(slots=True)
class InProcessService:
    """A running service; tiers can be ended and started again one by one."""

    database_url: str
    fleet: Fleet
    home: Path
    configuration: Configuration
    metrics: ServiceMetrics = field(default_factory=ServiceMetrics)
    """Of all tiers."""
    traces: Traces = field(default_factory=NoTraces)
    address: str = ""
    """Of the global scheduler, which is where it was when it is started again."""
    _running: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _kept: ExitStack = field(default_factory=ExitStack)

    @property
    def tiers(self) -> tuple[str, ...]:
        """The names of all tiers: global, regional/<region>, cluster/<cluster>."""
        return tuple(request.name for request in self._requests())

    async def start(self, name: str, alias: str | None = None) -> str:
        """Starts one tier; returns where it listens. Under an `alias` it is one more of the same, which stands by."""
        request = next(request for request in self._requests() if request.name == name)
        if name == "global" and alias is None:
            request = replace(request, listen=self._settled_address())
        listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        task = asyncio.ensure_future(run_tier(request, listening.set_result, metrics=self.metrics, traces=self.traces))
        self._running[alias or name] = task
        both: set[asyncio.Future[None] | asyncio.Future[str]] = {task, listening}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        return listening.result()

    async def stop(self, name: str) -> None:
        """Ends one tier at once, in the middle of whatever it does; only its lease is given back."""
        await end_task(self._running.pop(name))

    async def stop_all(self) -> None:
        """Also those that come behind one that had broken; raises what broke it then."""
        async with AsyncExitStack() as stopping:
            stopping.callback(self._kept.close)
            for name in reversed(self._running):
                stopping.push_async_callback(self.stop, name)

    def raise_if_broken(self) -> None:
        """Raises what ended a tier that was not stopped."""
        for task in self._running.values():
            if task.done():
                task.result()

    async def wait_until_held(self, database: Database) -> None:
        """Returns when every tier holds its lease; raises what broke one, or TimeoutError."""
        async with asyncio.timeout(_READY_PATIENCE_REAL_S):
            while True:
                held = {record.name for record in await database.run(lease_store.list_leases) if record.live}
                if held.issuperset(self.tiers):
                    return
                self.raise_if_broken()
                await asyncio.sleep(_LOOK_EVERY_REAL_S)

    def _settled_address(self) -> str:
        """Kept until everything is stopped: a connection of somebody else could have its port when the tier is started again."""
        if not self.address:
            port = free_port(LOOPBACK)
            self._kept.enter_context(kept_ports(LOOPBACK, [port]))
            self.address = f"{LOOPBACK}:{port}"
        return self.address

    def _requests(self) -> Sequence[TierRequest]:
        return [
            self._request(TierKind.GLOBAL),
            *(self._request(TierKind.REGIONAL, region=region.region) for region in self.fleet.regions),
            *(
                self._request(TierKind.CLUSTER, region=region.region, cluster=cluster.cluster)
                for region in self.fleet.regions
                for cluster in region.clusters
            ),
        ]

    def _request(
        self, kind: TierKind, *, region: RegionId | None = None, cluster: ClusterId | None = None
    ) -> TierRequest:
        return TierRequest(
            kind=kind,
            database_url=self.database_url,
            home=self.home,
            configuration=self.configuration,
            listen=f"{LOOPBACK}:0",
            region=region,
            cluster=cluster,
            executor=ExecutorKind.EMULATED,
        )


@asynccontextmanager
async def run_in_process(
    database_url: str,
    fleet: Fleet,
    tenants: Sequence[Tenant],
    home: Path,
    *,
    configuration: Configuration | None = None,
    clock_speed: float | None = None,
    tables: Sequence[Table] = (),
    traces: Traces | None = None,
    authentication: bool = False,
) -> AsyncIterator[InProcessService]:
    """A service over an empty, migrated database, with this fleet, these tenants and tables; all tiers work when it begins.

    With `authentication` it asks who is calling, and the home has tokens; by itself nobody is asked: it listens on loopback, for a test.
    """
    configuration = configuration or Configuration()
    if not authentication:
        configuration = configuration.without_authentication()
    service = InProcessService(database_url, fleet, home, configuration, traces=traces or NoTraces())
    async with Database(database_url) as database:
        if authentication:
            await database.run(lambda connection: keep_home_tokens(connection, home))
        await database.run(lambda connection: fleet_store.apply_fleet(connection, fleet))
        await database.run(lambda connection: catalog_store.apply_tables(connection, tables))
        await database.run(lambda connection: tenant_store.apply_tenants(connection, tenants))
        if clock_speed is not None:
            speed = clock_speed
            await database.run(lambda connection: record_clock(connection, speed, None))
        try:
            for name in service.tiers:
                await service.start(name)
            await service.wait_until_held(database)
            yield service
        finally:
            await service.stop_all()
