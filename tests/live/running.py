"""A whole service in this process, workloads that run on it, and what must be true when all of them have ended."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from domain.fleet import Fleet
from domain.table import Table
from domain.tenant import Tenant
from domain.workload import WorkloadSpecification
from services.configuration import AuctionConfiguration, Configuration, LeaseConfiguration, ScanConfiguration
from services.database.engine import Database
from services.runtime.in_process import InProcessService, run_in_process
from services.wire.workloads import specification_to_proto
from simulator.validate import validate
from simulator.validation.report import ValidationReport
from tests.live.world import FLEET, TABLES, TENANTS
from topmast import AsyncClient, Event
from topmast.v1 import regional_scheduler_pb2, regional_scheduler_pb2_grpc

PATIENCE_REAL_S = 240.0
"""A guard against hangs, not a measure of speed."""

CLOCK_SPEED = 600.0

CONFIGURATION = Configuration(
    scan=ScanConfiguration(period_real_s=1.0, debounce_real_s=0.05),
    auction=AuctionConfiguration(answer_timeout_real_s=1.0),
    lease=LeaseConfiguration(duration_real_s=2.0),
)

ENDS = frozenset({"completed", "cancelled"})


def is_end(event: Event) -> bool:
    """Whether the workload has ended with this."""
    return event.event in ENDS or (event.event == "failed" and event.details.get("final") is True)


@dataclass
class LiveRun:
    """A running service, and everything that its event log has told so far."""

    service: InProcessService
    client: AsyncClient
    database: Database
    events: list[Event] = field(default_factory=list)
    specifications: dict[str, WorkloadSpecification] = field(default_factory=dict)
    """By the id of the workload."""
    ended: Counter[str] = field(default_factory=Counter)

    async def submit(self, specifications: Sequence[WorkloadSpecification]) -> list[str]:
        """The ids of the workloads."""
        submitted = await self.client.submit_many([specification_to_proto(one) for one in specifications])
        names = [one.workload for one in submitted]
        self.specifications.update(zip(names, specifications, strict=True))
        return names

    async def follow(
        self,
        react: Callable[[Event], Awaitable[None]] | None = None,
        *,
        until: Callable[[Event], bool] | None = None,
    ) -> Event:
        """Reads on in the event log until every workload has ended (or `until` is true of an event).

        `react` is called with each event. Returns the last event.
        """
        try:
            async with asyncio.timeout(PATIENCE_REAL_S):
                after = self.events[-1].sequence if self.events else 0
                async for event in self.client.events(after_sequence=after, follow=True):
                    self.events.append(event)
                    if is_end(event):
                        self.ended[event.workload or ""] += 1
                    if react is not None:
                        await react(event)
                    if until(event) if until is not None else len(self.ended) == len(self.specifications):
                        return event
        except TimeoutError:
            self.service.raise_if_broken()
            raise
        raise AssertionError("the stream of events ended")

    async def until_event(self, kind: str, workload: str) -> Event:
        """Reads on until the workload has that event."""
        return await self.follow(until=lambda event: (event.event, event.workload) == (kind, workload))

    def count(self, kind: str, **details: object) -> int:
        """How many events of that kind, with these details, there were so far."""
        return sum(
            event.event == kind and all(event.details.get(name) == value for name, value in details.items())
            for event in self.events
        )

    @asynccontextmanager
    async def regional(self, region: str) -> AsyncIterator[regional_scheduler_pb2_grpc.RegionalSchedulerAsyncStub]:
        """Calls to a region's scheduler, wherever it is now, as soon as it serves."""
        address = await self._until_serving(region)
        async with grpc.aio.insecure_channel(address) as channel:
            yield regional_scheduler_pb2_grpc.RegionalSchedulerStub(channel)

    async def _until_serving(self, region: str) -> str:
        """The address; a scheduler that has just begun may not have said yet where it is."""
        async with asyncio.timeout(PATIENCE_REAL_S):
            while True:
                status = await self.client.status()
                (address,) = (tier.address for tier in status.tiers if (tier.tier, tier.name) == ("regional", region))
                if await _serves(address):
                    return address
                await asyncio.sleep(0.05)

    def check(
        self, fleet: Fleet = FLEET, tenants: Sequence[Tenant] = TENANTS, tables: Sequence[Table] = TABLES
    ) -> ValidationReport:
        """The log tells of a whole run in which each workload ended once, and the validator finds nothing in it."""
        self.service.raise_if_broken()
        assert self.ended == Counter(self.specifications.keys())
        report = validate([event.as_json() for event in self.events], fleet, tenants, tables=tables, complete=True)
        assert report.violations == 0, [str(violation) for violation in report.shown[:5]]
        assert report.workloads == len(self.specifications) > 0
        return report

    async def check_nothing_is_left(self) -> None:
        """Nothing is queued, live, awarded or charged in the database, and every region's memory says the same."""
        async with self.database.transaction() as connection:
            cursor = await connection.execute(
                """SELECT (SELECT count(*) FROM queue_entries), (SELECT count(*) FROM awards),
                          (SELECT count(*) FROM attempts WHERE ended_s IS NULL),
                          (SELECT count(*) FROM quota_use WHERE amount <> 0),
                          (SELECT count(*) FROM workloads WHERE state NOT IN ('COMPLETED', 'FAILED', 'CANCELLED'))"""
            )
            assert await cursor.fetchone() == (0, 0, 0, 0, 0)
        status = await self.client.status()
        for region in status.regions:
            async with self.regional(region.region) as scheduler:
                inventory = await scheduler.GetInventory(
                    regional_scheduler_pb2.GetInventoryRequest(), wait_for_ready=True
                )
                assert inventory.machines
                for machine in inventory.machines:
                    assert (machine.free_gpus, list(machine.attempts)) == (machine.gpus, []), machine


def in_live_service(
    database_url: str,
    home: Path,
    scenario: Callable[[LiveRun], Awaitable[None]],
    *,
    fleet: Fleet = FLEET,
    tenants: Sequence[Tenant] = TENANTS,
    configuration: Configuration = CONFIGURATION,
) -> None:
    """Runs the scenario against a service of its own, on a compressed clock, with emulated execution."""

    async def run() -> None:
        async with (
            run_in_process(
                database_url, fleet, tenants, home, configuration=configuration, clock_speed=CLOCK_SPEED, tables=TABLES
            ) as service,
            Database(database_url) as database,
            AsyncClient(service.address) as client,
        ):
            await scenario(LiveRun(service, client, database))

    asyncio.run(run())


async def _serves(address: str) -> bool:
    async with grpc.aio.insecure_channel(address) as channel:
        health: Any = health_pb2_grpc.HealthStub(channel)
        try:
            answer = await health.Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE_REAL_S)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
            return False
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)
