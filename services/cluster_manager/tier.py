"""The cluster tier: holds the cluster's lease, runs its executor, serves its regional scheduler and its tasks.

It works only while it holds the lease: two cluster managers that run the attempts of one cluster would take each
other's for orphans. Whatever runs is adopted by the next one.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import structlog

from domain.identifiers import ClusterId, MachineId, RegionId
from services.clock import ServiceClock
from services.cluster_manager.call_checks import ClusterCallChecks
from services.cluster_manager.server import ClusterManagerServer
from services.cluster_manager.task_guard import TaskGuard, guard_interval_s
from services.configuration import Configuration
from services.database import fleet_store, lease_store, secret_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.fleet_store import FLEET_CHANNEL
from services.database.lease_store import CLUSTER_PREFIX, IssuedFence
from services.database.revision_store import Subject, load_revision
from services.execution.emulated_executor import EmulatedExecutor
from services.execution.executor import Executor
from services.metrics.service_metrics import ServiceMetrics
from services.security.authentication import Authentication
from services.security.authorization import Authorization
from services.security.certificate_principal import principal_of_peer
from services.security.secret_sessions import SessionTokens
from services.tiers.free_port import free_port
from services.tiers.lease_keeper import LeaseKeeper
from services.tiers.side_by_side import until_one_ends
from services.tracing.traces import NoTraces, Traces

_STOP_GRACE_S = 2.0

_LOOK_UP_PATIENCE_REAL_S = 5.0
"""A caller with a new lease waits that long for the database to confirm it."""

_LOOK_INTERVAL_REAL_S = 5.0
"""A wake-up may get lost: the fleet's revision is looked at so often in any case."""

_Loaded = TypeVar("_Loaded")

_log = structlog.get_logger(__name__)


class ClusterManagerTier:
    """One cluster's manager: `run` until cancelled."""

    def __init__(
        self,
        cluster: ClusterId,
        database: Database,
        clock: ServiceClock,
        configuration: Configuration,
        *,
        home: Path,
        on_ray: bool,
        metrics: ServiceMetrics | None = None,
        traces: Traces | None = None,
        authentication: Authentication | None = None,
    ) -> None:
        """`on_ray`: processes are run on the Ray that this process belongs to; else there is emulation only. `authentication` None:
        nobody is asked who is calling."""
        by_certificate = principal_of_peer if configuration.tls.security().asks_for_certificates() else None
        self._authorization = Authorization(authentication, ClusterCallChecks(database), by_certificate)
        self._cluster = cluster
        self._database = database
        self._clock = clock
        self._configuration = configuration
        self._home = home
        self._on_ray = on_ray
        self._metrics = metrics or ServiceMetrics()
        self._traces = traces or NoTraces()
        self._listen = ""

    async def start(self, listen: str) -> int:
        """Settles the port; calls are taken once the lease is held."""
        if self._on_ray:
            # It takes a second, which whoever takes over does not have.
            importlib.import_module("services.execution.ray_executor")
        host, _, port = listen.rpartition(":")
        number = int(port) or free_port(host)
        self._listen = f"{host}:{number}"
        return number

    async def run(self, address: str, holder: str) -> None:
        """Serves the cluster from `address` for as long as this process may."""
        keeper = LeaseKeeper(
            self._database,
            f"{CLUSTER_PREFIX}{self._cluster}",
            holder,
            address,
            self._configuration.lease.duration_real_s,
            silence_real_s=self._configuration.lease.silence_real_s,
            tasks_stop_after_real_s=self._configuration.lease.tasks_stop_after_real_s,
            metrics=self._metrics,
        )
        while True:
            lease = await keeper.wait_until_held()
            try:
                # Ends when the lease is lost, or when the fleet has changed.
                await until_one_ends(self._work(keeper), keeper.keep(lease))
            except asyncio.CancelledError:
                await keeper.release(lease)
                raise

    async def stop(self, grace_s: float) -> None:
        """Nothing is left to stop once `run` has been cancelled."""

    async def _work(self, keeper: LeaseKeeper) -> None:
        """Serves until the cluster belongs to another region: other machines are taken over, what runs runs on."""
        async with self._database.listen(FLEET_CHANNEL) as subscription:
            revision, region, machines = await self._load(self._load_machines)
            tokens = SessionTokens(await self._load_or_make_secret())
            guard = TaskGuard(self._database, keeper.certain_until_real_s, self._configuration.lease)
            executor = self._make_executor(machines, guard.left_s, tokens)
            server = ClusterManagerServer(
                self._cluster,
                executor,
                self._clock,
                issued_fence=self._issued_fence,
                may_act=lambda: keeper.certain,
                adopted=guard.end_what_is_over,
                requests=self._configuration.requests,
                metrics=self._metrics,
                traces=self._traces,
                authorization=self._authorization,
                security=self._configuration.tls.security(),
            )
            await server.start(self._listen)
            _log.info("serving", cluster=self._cluster, address=self._listen, machines=len(machines))
            guarding = asyncio.create_task(guard.run(executor))
            try:
                while True:
                    await subscription.wait(_LOOK_INTERVAL_REAL_S)
                    if await self._load(_fleet_revision) == revision:
                        continue
                    revision, owner, present = await self._load(self._load_machines)
                    if owner != region:
                        _log.info("the cluster has another region", cluster=self._cluster, region=owner)
                        return
                    if present != machines:
                        machines = present
                        await executor.set_machines(machines)
                        _log.info("the machines have changed", cluster=self._cluster, machines=len(machines))
            finally:
                guarding.cancel()
                await server.stop(_STOP_GRACE_S)

    async def _load(self, what: Callable[[AnyConnection], Awaitable[_Loaded]]) -> _Loaded:
        return await self._database.run(what, snapshot=True, give_up_after_s=float("inf"))

    async def _load_machines(self, connection: AnyConnection) -> tuple[int, RegionId | None, tuple[MachineId, ...]]:
        """The fleet's revision, and of it the region and the machines of this cluster."""
        region, machines = await fleet_store.machines_of_cluster(connection, self._cluster)
        return await _fleet_revision(connection), region, machines

    async def _load_or_make_secret(self) -> str:
        return await self._database.run(
            lambda connection: secret_store.secret_of_task_sessions(connection, self._cluster),
            give_up_after_s=float("inf"),
        )

    async def _issued_fence(self) -> IssuedFence:
        """Of the lease of this cluster's region: orders under an older one are refused."""
        return await self._database.run(
            lambda connection: lease_store.newest_regional_fence(connection, self._cluster),
            give_up_after_s=_LOOK_UP_PATIENCE_REAL_S,
        )

    def _make_executor(
        self, machines: tuple[MachineId, ...], allowed_s: Callable[[], float], tokens: SessionTokens
    ) -> Executor:
        if not self._on_ray:
            return EmulatedExecutor(self._clock, machines)
        # An emulation does not need it.
        from services.execution.control_group import how_held
        from services.execution.ray_attempt import RayExecutorConfiguration
        from services.execution.ray_executor import RayExecutor
        from services.execution.routing_executor import RoutingExecutor

        stores = self._configuration.storage.urls(self._home)
        interval_s = guard_interval_s(self._configuration.lease)
        configuration = RayExecutorConfiguration(
            self._home,
            stores,
            allow_interval_s=interval_s,
            memory=self._configuration.task_memory.settings(),
            build_timeout_s=self._configuration.environments.build_timeout_real_s,
            tasks=self._configuration.tasks.settings(),
            tokens=tokens,
            session_authority=self._configuration.tls.security().authority,
        )
        _log.info("what holds tasks on this machine", cluster=self._cluster, holding=str(how_held()))
        processes = RayExecutor(self._cluster, machines, self._clock, configuration, allowed_s)
        return RoutingExecutor(EmulatedExecutor(self._clock), processes)


async def _fleet_revision(connection: AnyConnection) -> int:
    return await load_revision(connection, Subject.FLEET)
