"""One tier in one process, however it was started: opens the database, serves, works, until it is asked to stop."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import structlog

from services.clock import ServiceClock
from services.configuration import Configuration
from services.database.engine import Database
from services.metrics.endpoint import serving_metrics
from services.metrics.service_metrics import ServiceMetrics
from services.runtime.clock_record import load_clock
from services.runtime.collection import forget_for_collection, short_collections
from services.runtime.executor_kind import ExecutorKind
from services.runtime.tier_place import TierKind, TierPlace
from services.security.authentication import Authentication, TokenAuthentication
from services.security.home_tokens import tier_token_file
from services.security.outgoing_token import TokenFile, call_others_with
from services.security.settings import check_loopback
from services.task_end import end_task
from services.tiers.loop_watchdog import watched_loop
from services.tracing.traces import NoTraces, Traces, traces_of

_STOP_GRACE_S = 2.0
_BIND_RETRY_REAL_S = 0.2

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TierRequest(TierPlace):
    """Which tier to be, and where. Picklable: it travels to Ray actors."""

    database_url: str = field(repr=False)
    home: Path
    configuration: Configuration
    executor: ExecutorKind = ExecutorKind.RAY


class Tier(Protocol):
    """What the three tiers have in common."""

    async def start(self, listen: str) -> int: ...

    async def run(self, address: str, holder: str) -> None: ...

    async def stop(self, grace_s: float) -> None: ...


async def run_tier(
    request: TierRequest,
    listening: Callable[[str], None],
    *,
    waiting: Callable[[], None] = lambda: None,
    database: Database | None = None,
    metrics: ServiceMetrics | None = None,
    traces: Traces | None = None,
) -> None:
    """Runs the tier until cancelled; `listening` gets the address once it can be called.

    `waiting` is called, once, when somebody else has the port. `database`: one that is open, where several tiers of a process
    share one. `metrics` and `traces`: of the process, which its tiers share.
    """
    metrics = metrics or ServiceMetrics()
    if database is not None:
        await _run_on(database, request, listening, waiting, metrics, traces or NoTraces())
        return
    async with Database(request.database_url, metrics=metrics) as own:
        await _run_on(own, request, listening, waiting, metrics, traces or NoTraces())


async def _run_on(
    database: Database,
    request: TierRequest,
    listening: Callable[[str], None],
    waiting: Callable[[], None],
    metrics: ServiceMetrics,
    traces: Traces,
) -> None:
    clock = await database.run(load_clock, give_up_after_s=float("inf"))
    tier = _make_tier(request, database, clock, metrics, traces, _authentication(request, database))
    forget_for_collection()
    host = request.listen.rpartition(":")[0]
    port = await _listen(tier, request.listen, waiting)
    address = f"{host}:{port}"
    listening(address)
    _log.info("listening", tier=request.name, address=address, process_id=os.getpid())
    try:
        # Process ids are used again, and there may be several tiers in one process.
        await tier.run(address, f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}")
    finally:
        await tier.stop(_STOP_GRACE_S)


async def _listen(tier: Tier, listen: str, waiting: Callable[[], None]) -> int:
    """Waits while the port is still held by a predecessor that has not quite gone."""
    announced = False
    while True:
        try:
            return await tier.start(listen)
        except RuntimeError as error:
            if not announced:
                _log.warning("cannot listen yet", address=listen, error=str(error))
                announced = True
                waiting()
            await asyncio.sleep(_BIND_RETRY_REAL_S)


def _authentication(request: TierRequest, database: Database) -> Authentication | None:
    """How callers prove who they are, and from now on what this tier calls others with. Raises AuthenticationNeeded."""
    if not request.configuration.security.authentication:
        check_loopback(request.listen)
        _log.warning("security.authentication is off: whoever reaches this tier may do everything", tier=request.name)
        return None
    call_others_with(TokenFile(own_token_path(request)))
    oidc = request.configuration.security.oidc
    if oidc is None:
        return TokenAuthentication(database)
    # Only where it is configured: it brings a client of HTTP and cryptography with it.
    from services.security.oidc import OidcTokens

    return TokenAuthentication(database, OidcTokens(oidc).principal)


def own_token_path(request: TierRequest) -> Path:
    """What the tier calls others with."""
    said = request.configuration.security.tier_token_file
    return tier_token_file(request.home) if said is None else Path(said)


def _make_tier(
    request: TierRequest,
    database: Database,
    clock: ServiceClock,
    metrics: ServiceMetrics,
    traces: Traces,
    authentication: Authentication | None,
) -> Tier:
    # Only what this tier needs is imported: a cluster manager has no use for the planner, nor a region for Ray.
    match request.kind:
        case TierKind.GLOBAL:
            from services.global_scheduler.tier import GlobalSchedulerTier

            return GlobalSchedulerTier(
                database,
                clock,
                request.configuration,
                home=request.home,
                metrics=metrics,
                traces=traces,
                authentication=authentication,
            )
        case TierKind.REGIONAL:
            from services.regional_scheduler.tier import RegionalSchedulerTier

            if request.region is None:
                raise ValueError("a regional scheduler needs a region")
            return RegionalSchedulerTier(
                request.region,
                database,
                clock,
                request.configuration,
                metrics=metrics,
                traces=traces,
                authentication=authentication,
            )
        case TierKind.CLUSTER:
            from services.cluster_manager.tier import ClusterManagerTier

            if request.cluster is None:
                raise ValueError("a cluster manager needs a cluster")
            return ClusterManagerTier(
                request.cluster,
                database,
                clock,
                request.configuration,
                home=request.home,
                on_ray=request.executor is ExecutorKind.RAY,
                metrics=metrics,
                traces=traces,
                authentication=authentication,
            )


async def run_until(request: TierRequest, listening: Callable[[str], None], stop: asyncio.Event) -> None:
    """Runs the tier, alone in its process, on a loop that is watched, until `stop` is set; what breaks it is raised."""
    metrics, traces = ServiceMetrics(), traces_of(request.configuration.tracing, request.name)
    settings = request.configuration.metrics
    with closing(traces), short_collections(), serving_metrics(metrics, settings, request.home, request.name):
        async with watched_loop(request.name, metrics.observe_block(request.name)):
            await _run_until(request, listening, stop, metrics, traces)


async def _run_until(
    request: TierRequest,
    listening: Callable[[str], None],
    stop: asyncio.Event,
    metrics: ServiceMetrics,
    traces: Traces,
) -> None:
    running = asyncio.ensure_future(run_tier(request, listening, metrics=metrics, traces=traces))
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        await end_task(running)
