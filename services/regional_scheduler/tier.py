"""The regional tier: holds the region's lease and runs one session after the other."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import structlog

from domain.identifiers import RegionId
from services.clock import ServiceClock
from services.configuration import Configuration
from services.database.channels import AUCTION_CHANNEL, REGION_CHANNEL
from services.database.engine import Database
from services.database.errors import DatabaseUnavailable
from services.database.fleet_store import FLEET_CHANNEL
from services.database.lease_store import Lease, LeaseLost
from services.regional_scheduler.loading import load_memory, load_revisions
from services.regional_scheduler.server import RegionalSchedulerServicer
from services.regional_scheduler.session import Inbox, RegionSession, SessionOver
from services.tiers.grpc_server import TierServer
from services.tiers.lease_keeper import LeaseKeeper
from topmast.v1 import regional_scheduler_pb2, regional_scheduler_pb2_grpc

_PAUSE_REAL_S = 0.25
"""Between two sessions."""

_log = structlog.get_logger(__name__)


class RegionalSchedulerTier:
    """One region's scheduler: `run` until cancelled."""

    def __init__(self, region: RegionId, database: Database, clock: ServiceClock, configuration: Configuration) -> None:
        self._region = region
        self._database = database
        self._clock = clock
        self._configuration = configuration
        self._session: RegionSession | None = None
        servicer = RegionalSchedulerServicer(region, lambda: self._session, clock)
        self._server = TierServer(
            [regional_scheduler_pb2.DESCRIPTOR.services_by_name["RegionalScheduler"]],
            lambda server: regional_scheduler_pb2_grpc.add_RegionalSchedulerServicer_to_server(servicer, server),
        )

    async def start(self, listen: str) -> int:
        """Starts to listen; returns the port."""
        return await self._server.start(listen)

    async def run(self, address: str, holder: str) -> None:
        """Serves the region from `address` for as long as this process may."""
        keeper = LeaseKeeper(
            self._database,
            f"regional/{self._region}",
            holder,
            address,
            self._configuration.lease.duration_real_s,
        )
        while True:
            lease = await keeper.wait_until_held()
            keeping = asyncio.ensure_future(keeper.keep(lease))
            try:
                await self._work(lease, keeper)
            finally:
                keeping.cancel()
                with suppress(asyncio.CancelledError):
                    await keeping

    async def stop(self, grace_s: float) -> None:
        await self._server.stop(grace_s)

    async def _work(self, lease: Lease, keeper: LeaseKeeper) -> None:
        """Session after session, until the lease is lost."""
        while not keeper.lost.is_set():
            try:
                await self._run_session(lease, keeper)
            except SessionOver as over:
                _log.info("session over", region=self._region, why=str(over))
            except LeaseLost:
                _log.warning("session over: the lease is lost", region=self._region)
                return
            except DatabaseUnavailable as error:
                _log.warning("session over: database unavailable", region=self._region, error=str(error))
            finally:
                self._session = None
                await self._server.set_serving(serving=False)
            await asyncio.sleep(_PAUSE_REAL_S)

    async def _run_session(self, lease: Lease, keeper: LeaseKeeper) -> None:
        inbox = Inbox()
        revisions = await self._database.run(load_revisions)
        watching = [
            asyncio.ensure_future(watch)
            for watch in (
                self._watch_auction(inbox),
                self._watch_attempts(inbox),
                self._watch_fleet(inbox, revisions),
                self._watch_lease(inbox, keeper),
            )
        ]
        try:
            memory = await self._database.run(lambda connection: load_memory(connection, self._region), snapshot=True)
            if memory is None:
                raise SessionOver(f"the fleet has no region {self._region}")
            session = RegionSession(self._database, memory, lease, self._clock, self._configuration, inbox)
            self._session = session
            await self._server.set_serving(serving=True)
            _log.info(
                "session begins",
                region=self._region,
                machines=sum(1 for _ in memory.region.machines()),
                live_attempts=len(memory.live),
            )
            await session.run()
        finally:
            for task in watching:
                task.cancel()
            for task in watching:
                with suppress(asyncio.CancelledError):
                    await task

    async def _watch_auction(self, inbox: Inbox) -> None:
        async with self._database.listen(AUCTION_CHANNEL) as subscription:
            while True:
                await subscription.wait()
                inbox.look_at_auction = True
                inbox.changed.set()

    async def _watch_attempts(self, inbox: Inbox) -> None:
        async with self._database.listen(REGION_CHANNEL) as subscription:
            while True:
                await subscription.wait()
                inbox.look_at_attempts = True
                inbox.changed.set()

    async def _watch_fleet(self, inbox: Inbox, revisions: tuple[int, int]) -> None:
        """With a new fleet or new tenants everything is loaded anew. `revisions` are from before the loading."""
        async with self._database.listen(FLEET_CHANNEL) as subscription:
            while True:
                await subscription.wait()
                if await self._database.run(load_revisions, give_up_after_s=float("inf")) != revisions:
                    inbox.over = "the fleet or the tenants have changed"
                    inbox.changed.set()
                    return

    async def _watch_lease(self, inbox: Inbox, keeper: LeaseKeeper) -> None:
        await keeper.lost.wait()
        inbox.over = "the lease is lost"
        inbox.changed.set()
