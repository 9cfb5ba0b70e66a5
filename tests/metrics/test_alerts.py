"""Each alert that ships is provoked once, on a service of real tiers, and is quiet before.

Nobody waits for an alert that needs time to pass: what stands still is seen to stand still, and then the rule is evaluated as of later.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import grpc
import psycopg
import pytest
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.parser import text_string_to_metric_families

from domain.fleet import Fleet, Region
from domain.identifiers import ANY_GPU_MODEL, AttemptNumber, RegionId, WorkloadId
from domain.placement import AttemptKey
from domain.resources import Quota
from domain.tenant import Tenant
from domain.workload import Emulated, WorkloadSpecification
from services.configuration import AuctionConfiguration, Configuration, LeaseConfiguration, ScanConfiguration
from services.database.engine import Database
from services.metrics.endpoint import serving_metrics
from services.metrics.service_metrics import ServiceMetrics
from services.metrics.settings import MetricsSettings
from services.metrics.state_look import StateLook
from services.regional_scheduler.due_attempts import DueAttempts
from services.regional_scheduler.region_metrics import RegionMetrics
from services.runtime.clock_record import load_clock
from services.runtime.executor_kind import ExecutorKind
from services.runtime.in_process import InProcessService, run_in_process
from services.runtime.tier_place import TierKind
from services.runtime.tier_process import TierRequest, run_tier
from services.tiers.loop_watchdog import Block
from services.wire.workloads import specification_to_proto
from tests.live.world import A100, EAST, RANKING, V100, WEST, gpu_cluster, one_job
from tests.metrics.alert_rules import alert_rules
from tests.metrics.promql import Scrapes, evaluate
from topmast import AsyncClient, TopmastError
from topmast.v1 import global_scheduler_pb2, global_scheduler_pb2_grpc
from topmast.workloads import WorkloadState

PATIENCE_REAL_S = 240.0
CLOCK_SPEED = 5000.0
FLEET = Fleet((Region(EAST, (gpu_cluster("east-a", A100, 1),)), Region(WEST, (gpu_cluster("west-a", V100, 1),))))
TENANTS = (Tenant(RANKING, 0, Quota.of({ANY_GPU_MODEL: 100})),)
CONFIGURATION = Configuration(
    scan=ScanConfiguration(period_real_s=0.5, debounce_real_s=0.05),
    auction=AuctionConfiguration(poll_real_s=0.5),
    lease=LeaseConfiguration(duration_real_s=2.0, tasks_stop_after_real_s=4.0, lost_grace_real_s=3.0),
    metrics=MetricsSettings(state_every_real_s=1.0),
)


@dataclass
class Watch:
    """A service, and what a Prometheus would have seen of it."""

    service: InProcessService
    client: AsyncClient
    database: Database
    look: StateLook
    """The leader has its own; here nobody waits for its turn."""
    scrapes: Scrapes = field(default_factory=Scrapes)
    provoked: set[str] = field(default_factory=set)

    async def firing(self) -> set[str]:
        """All alerts that fire now, for however short a time."""
        await self.look.look()
        now_s = time.time()
        self.scrapes.scrape(self.service.metrics.registry, now_s)
        return {name for name, rule in alert_rules().items() if evaluate(rule["expr"], self.scrapes, now_s)}

    async def until_firing(
        self, *names: str, again: Callable[[], Awaitable[object]] | None = None, ahead_s: float = 0.0
    ) -> None:
        """Looks until all of these fire; `again` is awaited before each look. `ahead_s`: as of so much later."""
        for name in names:
            expression = alert_rules()[name]["expr"]
            async with asyncio.timeout(PATIENCE_REAL_S):
                while True:
                    if again is not None:
                        await again()
                    self.service.raise_if_broken()
                    if not ahead_s:
                        await self.look.look()
                    scrapes, now_s = (Scrapes() if ahead_s else self.scrapes), time.time() + ahead_s
                    scrapes.scrape(self.service.metrics.registry, now_s)
                    if evaluate(expression, scrapes, now_s):
                        break
                    await asyncio.sleep(0.1)
            self.provoked.add(name)

    async def until(self, reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_REAL_S):
            while not reached():  # noqa: ASYNC110 - what is waited for is a metric, which tells nobody
                await asyncio.sleep(0.1)

    async def until_it_stands(self, metric: str, for_real_s: float, **labels: str) -> None:
        """Looks until a metric that is a time lies so far back."""
        await self.until(lambda: 0.0 < self.value(metric, **labels) < time.time() - for_real_s)

    def value(self, metric: str, **labels: str) -> float:
        """0 where there is none."""
        return self.service.metrics.registry.get_sample_value(metric, labels) or 0.0

    async def submit(self, *specifications: WorkloadSpecification) -> list[str]:
        submitted = await self.client.submit_many([specification_to_proto(one) for one in specifications])
        return [one.workload for one in submitted]

    async def until_started(self, *workloads: str) -> None:
        async with asyncio.timeout(PATIENCE_REAL_S):
            for workload in workloads:
                while (await self.client.get(workload)).state is not WorkloadState.RUNNING:  # noqa: ASYNC110 - nobody tells us
                    await asyncio.sleep(0.1)

    async def execute(self, statement: str) -> None:
        async with self.database.transaction() as connection:
            await connection.execute(statement.encode())

    @asynccontextmanager
    async def locked(self, statement: str) -> AsyncIterator[None]:
        """Holds a lock that somebody else has taken in the database."""
        async with await psycopg.AsyncConnection.connect(self.database.url) as connection:
            await connection.execute(statement.encode())
            yield
            await connection.rollback()


def work(name: str, region: RegionId, duration_s: float, gpus: int) -> WorkloadSpecification:
    return replace(one_job(name, RANKING, Emulated(duration_s, 600.0), gpus=gpus), regions=(region,))


@pytest.mark.live
def test_each_alert_fires_when_what_it_tells_of_has_happened(database_url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            run = run_in_process(
                database_url, FLEET, TENANTS, tmp_path, configuration=CONFIGURATION, clock_speed=CLOCK_SPEED
            )
            service = await stack.enter_async_context(run)
            client = await stack.enter_async_context(AsyncClient(service.address))
            database = await stack.enter_async_context(Database(database_url))
            clock = await database.run(load_clock)
            look = StateLook(database, clock, CONFIGURATION.metrics, service.metrics)
            watch = Watch(service, client, database, look)
            await until_quiet(watch)
            for provoke in (
                waiting,
                standing_still,
                slow_and_large_database,
                broken_state,
                refused_calls,
                lost_leases,
                lost_cluster,
                no_leader,
            ):
                await provoke(watch)
            assert watch.provoked | PROVOKED_ELSEWHERE == set(alert_rules())

    asyncio.run(scenario())


PROVOKED_ELSEWHERE = {
    "TopmastProcessNotRead",
    "TopmastLoopBlocked",
    "TopmastPlanningFails",
    "TopmastDatabaseDown",
    # Emulated work reports none.
    "TopmastProgressNotWritten",
}


async def until_quiet(watch: Watch) -> None:
    deadline_real_s = time.monotonic() + PATIENCE_REAL_S
    while firing := await watch.firing():
        assert time.monotonic() < deadline_real_s, f"nothing has happened yet, and these fire: {firing}"
        await asyncio.sleep(0.2)


async def waiting(watch: Watch) -> None:
    """The second has to wait for the first, which takes all of its region until nobody wants it any more."""
    (first,) = await watch.submit(work("first", WEST, 10_000_000.0, 8))
    await watch.until_started(first)
    (second,) = await watch.submit(work("second", WEST, 100.0, 8))
    await watch.until_firing("TopmastQueueStuck")
    await watch.client.cancel(first)
    await watch.until_firing("TopmastStartsSlow")
    await watch.client.wait(second)


async def standing_still(watch: Watch) -> None:
    """Somebody holds a table: scan passes and regions wait for it."""
    async with watch.locked("LOCK TABLE scan_passes IN ACCESS EXCLUSIVE MODE"):
        await watch.until_it_stands("topmast_scan_pass_last_time_seconds", 3.0)
        await watch.until_it_stands("topmast_session_turn_time_seconds", 3.0, region="east")
        await watch.until_firing("TopmastScanStalled", "TopmastRegionStalled", ahead_s=58.0)


async def slow_and_large_database(watch: Watch) -> None:
    async with Database(watch.database.url, metrics=watch.service.metrics) as database:

        async def sleep() -> None:
            await database.run(lambda connection: connection.execute("SELECT pg_sleep(1.1)"))

        await watch.until_firing("TopmastDatabaseSlow", again=lambda: asyncio.gather(*(sleep() for _ in range(8))))
    state = watch.service.metrics.state

    async def look_larger() -> None:
        await watch.look.look_at_size()
        assert state.size is not None
        # Nobody fills 50 GB here.
        state.size = replace(state.size, size_bytes=state.size.size_bytes + 50 * 10**9)

    await watch.until_firing("TopmastDatabaseLarge", again=look_larger)


async def broken_state(watch: Watch) -> None:
    await watch.execute("UPDATE machines SET state = 'down' WHERE cluster = 'east-a'")
    await watch.until_firing("TopmastGpusDown")
    await watch.execute("UPDATE machines SET state = 'up'")
    await watch.execute("INSERT INTO events (t, event, region, details) VALUES (0, 'invariant_broken', 'east', '{}')")
    await watch.until_firing("TopmastInvariantBroken")
    await watch.execute("ALTER TABLE loans RENAME TO gone")

    async def look_at_loans() -> None:
        with pytest.raises(TopmastError, match="internal error"):
            await watch.client.loans()

    await watch.until_firing("TopmastCallsFail", again=look_at_loans)
    await watch.execute("ALTER TABLE gone RENAME TO loans")


async def refused_calls(watch: Watch) -> None:
    """Of a global scheduler that stands by."""
    listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    request = TierRequest(
        kind=TierKind.GLOBAL,
        database_url=watch.database.url,
        home=watch.service.home,
        configuration=watch.service.configuration,
        executor=ExecutorKind.EMULATED,
    )
    metrics = ServiceMetrics()
    standing_by = asyncio.create_task(run_tier(request, listening.set_result, metrics=metrics))
    other = replace(watch, service=replace(watch.service, metrics=metrics), scrapes=Scrapes())
    async with grpc.aio.insecure_channel(await listening) as channel:
        stub: global_scheduler_pb2_grpc.GlobalSchedulerAsyncStub = global_scheduler_pb2_grpc.GlobalSchedulerStub(
            channel
        )

        async def call() -> None:
            with pytest.raises(grpc.aio.AioRpcError):
                await stub.GetStatus(global_scheduler_pb2.GetStatusRequest())

        await other.until_firing("TopmastCallsRefused", again=call)
    standing_by.cancel()
    await asyncio.gather(standing_by, return_exceptions=True)


async def lost_leases(watch: Watch) -> None:
    """Another process takes the lease of a region, again and again."""

    async def take_away() -> None:
        await watch.execute(
            """UPDATE leases SET holder = 'another', token = token + 1, expires_at = clock_timestamp()
                WHERE name = 'regional/east' AND holder <> 'another'"""
        )

    await watch.until_firing("TopmastLeasesLost", "TopmastTierRestarts", again=take_away)


async def lost_cluster(watch: Watch) -> None:
    """The manager of a cluster dies and does not come back."""

    await watch.until_started(
        *(await watch.submit(*(work(f"lost-{number}", WEST, 10_000_000.0, 1) for number in range(3))))
    )
    await watch.firing()
    await watch.service.stop("cluster/west-a")
    await watch.until_firing("TopmastTierDown", "TopmastMachinesLost", "TopmastClusterLost")


async def no_leader(watch: Watch) -> None:
    await watch.service.stop("global")
    await watch.until_firing("TopmastNoLeader")


def test_restarts_are_counted_whatever_their_numbers_are() -> None:
    """A restored database goes on far ahead, and one that is made anew begins at 1: neither is a restart for each number between."""
    expression = alert_rules()["TopmastTierRestarts"]["expr"]

    def fires(*tokens: int) -> bool:
        scrapes = Scrapes()
        for number, token in enumerate(tokens):
            registry = CollectorRegistry()
            Gauge("topmast_lease_token", "As the leader says.", ["tier"], registry=registry).labels(
                "regional/east"
            ).set(token)
            scrapes.scrape(registry, 15.0 * number)
        return bool(evaluate(expression, scrapes, 15.0 * len(tokens)))

    assert fires(1, 2, 3, 4, 5)
    assert fires(1, 4, 4, 7, 11, 11, 15)
    assert not fires(1, 2, 3, 4, 4)
    assert not fires(7, 7, 1_000_000_008, 1_000_000_009)
    assert not fires(900, 900, 1, 2)


def test_a_process_that_cannot_be_read_is_told_of(tmp_path: Path) -> None:
    metrics, scrapes, expression = ServiceMetrics(), Scrapes(), alert_rules()["TopmastProcessNotRead"]["expr"]
    with serving_metrics(metrics, MetricsSettings(), tmp_path, "tiers") as address:
        scrape_over_http(scrapes, address, 0.0)
        assert not evaluate(expression, scrapes, 0.0)
    scrape_over_http(scrapes, address, 15.0)
    assert evaluate(expression, scrapes, 15.0)


def scrape_over_http(scrapes: Scrapes, address: str, at_s: float) -> None:
    """As Prometheus does it."""
    try:
        with urlopen(f"http://{address}/metrics") as answer:
            text = answer.read().decode()
    except URLError:
        scrapes.fail(at_s)
        return
    scrapes.add(text_string_to_metric_families(text), at_s)
    scrapes.answered(at_s)


def test_a_blocked_loop_is_told_of() -> None:
    metrics, scrapes, expression = ServiceMetrics(), Scrapes(), alert_rules()["TopmastLoopBlocked"]["expr"]
    told = metrics.observe_block("tiers")
    scrapes.scrape(metrics.registry, 0.0)
    told(Block(8.0, 8.0, ()))
    scrapes.scrape(metrics.registry, 60.0)
    assert not evaluate(expression, scrapes, 60.0)
    told(Block(8.0, 8.0, ()))
    scrapes.scrape(metrics.registry, 120.0)
    assert evaluate(expression, scrapes, 120.0) == {frozenset({("loop", "tiers")}): 16.0}


def test_progress_that_is_not_written_is_told_of() -> None:
    metrics, due, expression = ServiceMetrics(), DueAttempts(), alert_rules()["TopmastProgressNotWritten"]["expr"]
    region = RegionMetrics(EAST, metrics)
    key = AttemptKey(WorkloadId("w1"), AttemptNumber(1))

    def firing(ahead_s: float) -> bool:
        region.progress_waits(due.progress_waits_real_s())
        scrapes, at_s = Scrapes(), time.time() + ahead_s
        scrapes.scrape(metrics.registry, at_s)
        return bool(evaluate(expression, scrapes, at_s))

    assert not firing(1000.0)
    due.record_progress(key)
    assert firing(301.0)
    assert not firing(200.0)
    assert due.take_progress(1) == (key,)
    assert not firing(1000.0)


def test_a_database_that_is_not_there_is_told_of() -> None:
    metrics, scrapes, expression = ServiceMetrics(), Scrapes(), alert_rules()["TopmastDatabaseDown"]["expr"]

    async def open_and_scrape() -> None:
        async with Database("postgresql://127.0.0.1:1/nothing", metrics=metrics):
            scrapes.scrape(metrics.registry, 0.0)

    asyncio.run(open_and_scrape())
    assert evaluate(expression, scrapes, 0.0)
