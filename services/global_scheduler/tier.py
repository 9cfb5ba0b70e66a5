"""The global tier: holds the lease `global`, takes submissions and keeps the queue in order.

One that stands by knows fleet, tenants and tables already, and tells callers where the leader is.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import structlog

from services.clock import ServiceClock
from services.configuration import Configuration
from services.data_placement.migration_loop import migration_loop_for
from services.data_placement.planner import Planner
from services.data_placement.server import DataPlacementServicer
from services.database.engine import Database
from services.database.errors import DatabaseUnavailable
from services.database.lease_store import GLOBAL_LEASE, Lease
from services.global_scheduler.access import AccessServicer
from services.global_scheduler.array_turns import ArrayTurns
from services.global_scheduler.call_checks import GlobalCallChecks
from services.global_scheduler.dependency_watch import DependencyWatch
from services.global_scheduler.disk_room import DiskRoom
from services.global_scheduler.fleet_uploads import FleetUploads
from services.global_scheduler.level_timer import LevelTimer
from services.global_scheduler.package_uploads import PackagesServicer, PackageUploads
from services.global_scheduler.packlimit_learning import PacklimitLearning
from services.global_scheduler.scan_loop import ScanLoop
from services.global_scheduler.server import PATIENCE_REAL_S, GlobalSchedulerServicer
from services.global_scheduler.submission import SubmissionBatcher
from services.global_scheduler.surroundings import SurroundingsKeeper
from services.global_scheduler.user_requests import UserRequests
from services.global_scheduler.workload_look import WorkloadLook
from services.global_scheduler.workload_watchers import WorkloadWatchers
from services.grpc_errors import StandsBy, Unavailable
from services.metrics.service_metrics import ServiceMetrics
from services.metrics.state_look import StateLook
from services.notifications.notifier import Notifier
from services.retention.retention_loop import RetentionLoop
from services.security.authentication import Authentication
from services.security.authorization import Authorization
from services.security.certificate_principal import principal_of_peer
from services.tiers.grpc_server import TierServer
from services.tiers.lease_keeper import LeaseKeeper
from services.tiers.side_by_side import until_one_ends
from services.tracing.traces import Traces
from topmast.v1 import (
    access_pb2,
    access_pb2_grpc,
    data_placement_pb2,
    data_placement_pb2_grpc,
    global_scheduler_pb2,
    global_scheduler_pb2_grpc,
    package_pb2,
    package_pb2_grpc,
)

SUBMISSIONS = "topmast.submissions"
"""The name of the health check that says whether submissions are accepted."""

_log = structlog.get_logger(__name__)


class GlobalSchedulerTier:
    """The global scheduler: `run` until cancelled."""

    def __init__(
        self,
        database: Database,
        clock: ServiceClock,
        configuration: Configuration,
        *,
        home: Path,
        metrics: ServiceMetrics | None = None,
        traces: Traces | None = None,
        authentication: Authentication | None = None,
    ) -> None:
        """`authentication` None: nobody is asked who is calling."""
        self._database = database
        self._metrics = metrics = metrics or ServiceMetrics()
        self._configuration = configuration
        self._lease: Lease | None = None
        self._keeper: LeaseKeeper | None = None
        self._changed = asyncio.Event()
        self._surroundings = SurroundingsKeeper(database)
        self._room = DiskRoom(database, clock, home, configuration.disk, self._changed.set)
        self._batcher = SubmissionBatcher(database, clock, self._surroundings.present, metrics)
        self._uploads = FleetUploads(database, clock, self._surroundings.refresh)
        storage = configuration.storage
        self._packages = PackageUploads(database, storage, storage.packages_url(home))
        self._watchers = WorkloadWatchers(database)
        self._scan_loop = ScanLoop(database, clock, configuration, metrics)
        self._state_look = StateLook(database, clock, configuration.metrics, metrics)
        self._dependency_watch = DependencyWatch(database, clock)
        self._array_turns = ArrayTurns(database, clock)
        self._level_timer = LevelTimer(database, clock, configuration)
        self._packlimit_learning = PacklimitLearning(database, clock, configuration)
        self._retention_loop = RetentionLoop(database, clock, configuration.retention)
        self._notifier = Notifier(database, configuration.notifications, home)
        self._migrations = migration_loop_for(configuration.data, database, clock, self._surroundings)
        servicer = GlobalSchedulerServicer(
            database,
            clock,
            self._batcher,
            self._surroundings,
            self._uploads,
            WorkloadLook(self._scan_loop.explain, configuration.placement, configuration.tuning, configuration.elastic),
            self._watchers,
            configuration.scan.credit(),
            UserRequests(database, clock, self._batcher, self._surroundings.present, PATIENCE_REAL_S),
            require_ready=self._require_ready,
            room=self._room,
            traces=traces,
            security=configuration.tls.security(),
        )
        self._planner = Planner(database, clock, configuration.data, configuration.lease.duration_real_s)
        data_placement = DataPlacementServicer(
            database, clock, configuration.data, self._planner, require_ready=self._require_ready
        )
        packages = PackagesServicer(
            self._packages, require_ready=self._require_ready, require_room=self._room.require_room
        )

        by_certificate = principal_of_peer if configuration.tls.security().asks_for_certificates() else None
        authorization = Authorization(authentication, GlobalCallChecks(database), by_certificate)
        access = AccessServicer(database, require_ready=self._require_ready)
        self._server = _server_of(servicer, data_placement, packages, access, configuration, metrics, authorization)

    async def start(self, listen: str) -> int:
        """Starts to listen; returns the port."""
        return await self._server.start(listen)

    async def run(self, address: str, holder: str) -> None:
        """Serves from `address` for as long as this process may."""
        self._database.tell_health(lambda _healthy: self._changed.set())
        times = self._configuration.lease
        keeper = self._keeper = LeaseKeeper(
            self._database,
            GLOBAL_LEASE,
            holder,
            address,
            times.duration_real_s,
            silence_real_s=times.silence_real_s,
            metrics=self._metrics,
        )
        try:
            await until_one_ends(
                self._tell_health(), self._keep_surroundings(), self._room.run(), self._take_turns(keeper, address)
            )
        finally:
            await self._server.set_serving(serving=False)

    async def stop(self, grace_s: float) -> None:
        await self._server.stop(grace_s)
        await self._packages.close()

    async def _take_turns(self, keeper: LeaseKeeper, address: str) -> None:
        """Works each time that the lease is ours, and stands by meanwhile."""
        while True:
            lease = await keeper.wait_until_held()
            try:
                await self._work(lease, keeper, address)
            finally:
                await _release(keeper, lease)

    async def _work(self, lease: Lease, keeper: LeaseKeeper, address: str) -> None:
        """Everything that a global scheduler does, until the lease is lost. What breaks one part breaks the tier."""
        tasks = [
            asyncio.ensure_future(keeper.keep(lease)),  # ends when the lease is lost
            asyncio.ensure_future(self._batcher.run()),
            asyncio.ensure_future(self._watchers.run()),
            asyncio.ensure_future(self._scan_loop.run(lease)),
            asyncio.ensure_future(self._level_timer.run(lease)),
            asyncio.ensure_future(self._dependency_watch.run(lease)),
            asyncio.ensure_future(self._array_turns.run()),
            asyncio.ensure_future(self._packlimit_learning.run()),
            asyncio.ensure_future(self._planner.run(address)),
            asyncio.ensure_future(self._retention_loop.run()),
            asyncio.ensure_future(self._uploads.run()),
            asyncio.ensure_future(self._packages.run()),
            asyncio.ensure_future(self._notifier.run(lease, address)),
            asyncio.ensure_future(self._state_look.run()),
        ]
        if self._migrations is not None:
            tasks.append(asyncio.ensure_future(self._migrations.run(lease, keeper.certain_until_real_s)))
        self._set_lease(lease)
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self._set_lease(None)
            await _end(tasks)
            self._batcher.refuse_waiting(Unavailable("this global scheduler stops; try again"))

    # ------------------------------------------------------------ readiness

    def _set_lease(self, lease: Lease | None) -> None:
        self._lease = lease
        self._changed.set()

    async def _keep_surroundings(self) -> None:
        await self._surroundings.run(self._changed.set)

    @property
    def _ready(self) -> bool:
        return self._lease is not None and self._database.healthy and self._surroundings.known

    def _require_ready(self) -> None:
        """Raises Unavailable while calls cannot be answered."""
        if not self._database.healthy:
            raise Unavailable("the database cannot be reached at the moment; try again")
        if self._lease is None:
            raise StandsBy("global scheduler", None if self._keeper is None else self._keeper.leader_address)
        self._surroundings.present()

    async def _tell_health(self) -> None:
        """Health checks follow each change."""
        serving: bool | None = None
        accepting: bool | None = None
        while True:
            await self._changed.wait()
            self._changed.clear()
            if accepting is not (self._ready and self._room.full is None):
                accepting = self._ready and self._room.full is None
                await self._server.set_part_serving(SUBMISSIONS, serving=accepting)
            if serving is not self._ready:
                serving = self._ready
                await self._server.set_serving(serving=serving)
                _log.info("serving" if serving else "not serving")


async def _release(keeper: LeaseKeeper, lease: Lease) -> None:
    """A standby, or our successor, need not wait for the lease's end."""
    try:
        await keeper.release(lease)
    except DatabaseUnavailable as error:
        _log.warning("the lease could not be released", error=str(error))


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _server_of(
    servicer: GlobalSchedulerServicer,
    data_placement: DataPlacementServicer,
    packages: PackagesServicer,
    access: AccessServicer,
    configuration: Configuration,
    metrics: ServiceMetrics,
    authorization: Authorization,
) -> TierServer:
    def register(server: grpc.aio.Server) -> None:
        global_scheduler_pb2_grpc.add_GlobalSchedulerServicer_to_server(servicer, server)
        data_placement_pb2_grpc.add_DataPlacementServicer_to_server(data_placement, server)
        package_pb2_grpc.add_PackagesServicer_to_server(packages, server)
        access_pb2_grpc.add_AccessServicer_to_server(access, server)

    return TierServer(
        [
            global_scheduler_pb2.DESCRIPTOR.services_by_name["GlobalScheduler"],
            data_placement_pb2.DESCRIPTOR.services_by_name["DataPlacement"],
            package_pb2.DESCRIPTOR.services_by_name["Packages"],
            access_pb2.DESCRIPTOR.services_by_name["Access"],
        ],
        register,
        configuration.requests,
        tier=GLOBAL_LEASE,
        metrics=metrics,
        authorization=authorization,
        security=configuration.tls.security(),
    )
