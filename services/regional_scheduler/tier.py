"""The regional tier: holds the region's lease and runs one session after the other."""

from __future__ import annotations

import asyncio

import structlog

from cluster_manager.mechanisms import NoMechanism
from domain.identifiers import RegionId
from formats.problems import FormatError
from services.clock import ServiceClock
from services.configuration import Configuration
from services.database import fleet_store
from services.database.channels import AUCTION_CHANNEL, CATALOG_CHANNEL, REGION_CHANNEL
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.errors import DatabaseUnavailable
from services.database.fleet_store import FLEET_CHANNEL
from services.database.lease_store import REGIONAL_PREFIX, Lease, LeaseLost
from services.metrics.service_metrics import ServiceMetrics
from services.regional_scheduler.inbox import Inbox
from services.regional_scheduler.loading import load_memory
from services.regional_scheduler.region_metrics import RegionMetrics
from services.regional_scheduler.region_traces import RegionTraces
from services.regional_scheduler.server import RegionalSchedulerServicer
from services.regional_scheduler.session import RegionSession
from services.regional_scheduler.session_over import RegionGone, SessionOver
from services.runtime.collection import collect_everything
from services.security.authentication import Authentication
from services.security.authorization import Authorization
from services.security.certificate_principal import principal_of_peer
from services.tiers.grpc_server import TierServer
from services.tiers.lease_keeper import LeaseKeeper
from services.tiers.side_by_side import until_one_ends
from services.tracing.traces import NoTraces, Traces
from topmast.v1 import regional_scheduler_pb2, regional_scheduler_pb2_grpc

_PAUSE_REAL_S = 0.25
"""Between two sessions."""

_UNSERVABLE_PAUSE_REAL_S = 3.0
"""After it was found that no session can begin, until another fleet is applied or a package installed."""

_LOOK_INTERVAL_REAL_S = 2.0
"""A wake-up may get lost, with the process that was to send it: so often a region looks in any case."""

_log = structlog.get_logger(__name__)


class RegionalSchedulerTier:
    """One region's scheduler: `run` until cancelled."""

    def __init__(
        self,
        region: RegionId,
        database: Database,
        clock: ServiceClock,
        configuration: Configuration,
        *,
        metrics: ServiceMetrics | None = None,
        traces: Traces | None = None,
        authentication: Authentication | None = None,
    ) -> None:
        """`authentication` None: nobody is asked who is calling."""
        self._region = region
        self._metrics = metrics = metrics or ServiceMetrics()
        self._region_metrics = RegionMetrics(region, metrics, RegionTraces(region, traces or NoTraces(), clock))
        self._database = database
        self._clock = clock
        self._configuration = configuration
        self._session: RegionSession | None = None
        servicer = RegionalSchedulerServicer(region, lambda: self._session, clock)
        asked = configuration.tls.security().asks_for_certificates(between_tiers=True)
        by_certificate = principal_of_peer if asked else None
        self._server = TierServer(
            [regional_scheduler_pb2.DESCRIPTOR.services_by_name["RegionalScheduler"]],
            lambda server: regional_scheduler_pb2_grpc.add_RegionalSchedulerServicer_to_server(servicer, server),
            configuration.requests,
            tier=f"{REGIONAL_PREFIX}{region}",
            metrics=metrics,
            authorization=Authorization(authentication, certificate=by_certificate),
            security=configuration.tls.security(),
            between_tiers=True,
        )

    async def start(self, listen: str) -> int:
        """Starts to listen; returns the port."""
        return await self._server.start(listen)

    async def run(self, address: str, holder: str) -> None:
        """Serves the region from `address` for as long as this process may."""
        keeper = LeaseKeeper(
            self._database,
            f"{REGIONAL_PREFIX}{self._region}",
            holder,
            address,
            self._configuration.lease.duration_real_s,
            silence_real_s=self._configuration.lease.silence_real_s,
            metrics=self._metrics,
        )
        while True:
            await self._until_in_fleet()
            # Each session has a token of its own, greater than all before it. To acquire the lease anew waits for what
            # an earlier session is still writing, and has what it may have on the way to cluster managers refused.
            lease = await keeper.wait_until_held()
            try:
                await until_one_ends(self._run_session(lease), keeper.keep(lease))
            except RegionGone as gone:
                _log.info("session over", region=self._region, why=str(gone))
                await keeper.release(lease)
            except SessionOver as over:
                _log.info("session over", region=self._region, why=str(over))
            except LeaseLost:
                keeper.found_lost()
                _log.warning("session over: the lease is lost", region=self._region)
            except DatabaseUnavailable as error:
                _log.warning("session over: database unavailable", region=self._region, error=str(error))
            except asyncio.CancelledError:
                await keeper.release(lease)
                raise
            # While nothing hangs on this loop.
            collect_everything()
            await asyncio.sleep(_PAUSE_REAL_S)

    async def stop(self, grace_s: float) -> None:
        await self._server.stop(grace_s)

    async def _until_in_fleet(self) -> None:
        """Waits while the fleet has no such region: nobody waits for an answer of who holds no lease."""
        announced = False
        async with self._database.listen(FLEET_CHANNEL) as subscription:
            while not await self._database.run(self._is_in_fleet, give_up_after_s=float("inf")):
                if not announced:
                    _log.info("the fleet has no such region; waiting until it has", region=self._region)
                    announced = True
                await subscription.wait(_LOOK_INTERVAL_REAL_S)

    async def _is_in_fleet(self, connection: AnyConnection) -> bool:
        return self._region in await fleet_store.region_names(connection)

    async def _run_session(self, lease: Lease) -> None:
        rule, now = self._configuration.eviction_rule(), self._clock.now()
        placement, mechanism = self._configuration.placement, self._configuration.tuning_mechanism()
        reservations = self._configuration.reservations.rule()
        try:
            memory = await self._database.run(
                lambda connection: load_memory(connection, self._region, rule, now, placement, mechanism, reservations),
                snapshot=True,
            )
        except (NoMechanism, FormatError) as error:
            _log.error("the region cannot be served", region=self._region, error=str(error))
            await asyncio.sleep(_UNSERVABLE_PAUSE_REAL_S)
            raise SessionOver(str(error)) from error
        if memory is None:
            raise RegionGone(f"the fleet has no region {self._region}")
        inbox = Inbox()
        metrics = self._region_metrics
        session = RegionSession(self._database, memory, lease, self._clock, self._configuration, inbox, metrics)
        self._session = session
        metrics.session_began()
        try:
            await self._server.set_serving(serving=True)
            _log.info(
                "session begins",
                region=self._region,
                token=lease.token,
                machines=sum(1 for _ in memory.region.machines()),
                live_attempts=len(memory.live),
            )
            await until_one_ends(
                session.run(),
                self._watch_auction(inbox),
                self._watch_attempts(inbox),
                self._watch_applied(inbox),
            )
        finally:
            self._session = None
            await self._server.set_serving(serving=False)

    async def _watch_auction(self, inbox: Inbox) -> None:
        async with self._database.listen(AUCTION_CHANNEL) as subscription:
            while True:
                await subscription.wait()
                inbox.look_at_auction = True
                inbox.wake()

    async def _watch_attempts(self, inbox: Inbox) -> None:
        async with self._database.listen(REGION_CHANNEL) as subscription:
            while True:
                await subscription.wait(_LOOK_INTERVAL_REAL_S)
                inbox.look_at_attempts = True
                inbox.wake()

    async def _watch_applied(self, inbox: Inbox) -> None:
        async with self._database.listen(FLEET_CHANNEL, CATALOG_CHANNEL) as subscription:
            while True:
                await subscription.wait(_LOOK_INTERVAL_REAL_S)
                inbox.look_at_applied = inbox.look_at_moves = True
                inbox.wake()
