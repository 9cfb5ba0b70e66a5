"""A process of tiers that the host has started: all of them, or one. It ends when the host does, however that ends.

Everything that takes long and needs neither database nor Ray is done before those are there. A tier that breaks is started
again in the same process; its state is in the database, so it simply begins anew.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import pickle
import sys
import threading
from collections.abc import Sequence
from contextlib import closing, suppress
from multiprocessing.connection import Connection
from typing import cast

import structlog

from services.configuration import Configuration, load_configuration
from services.database.engine import Database
from services.log_output import configure_logging
from services.metrics.endpoint import serving_metrics
from services.metrics.service_metrics import ServiceMetrics
from services.metrics.settings import MetricsSettings
from services.runtime.collection import short_collections
from services.runtime.executor_kind import ExecutorKind
from services.runtime.kernels import compile_kernels
from services.runtime.tier_messages import (
    CannotServe,
    ChildSettings,
    EndTiers,
    HostMessage,
    Listening,
    StartTier,
    Surroundings,
    WaitingForPort,
    Warm,
)
from services.runtime.tier_place import TierPlace
from services.runtime.tier_process import TierRequest, run_tier
from services.tiers.loop_watchdog import WatchedEventLoop, watched_loop
from services.tracing.traces import traces_of

_ORPHANED = 3
"""The exit status of a process whose host is gone."""

_AGAIN_REAL_S = 1.0

_CONNECTIONS = 32
"""The most to the database that are in use at a time, by all tiers of a process."""

_log = structlog.get_logger(__name__)


class TierChild:
    """The tiers of this process, on its event loop."""

    def __init__(
        self,
        host: Connection,
        settings: ChildSettings,
        configuration: Configuration,
        surroundings: Surroundings,
    ) -> None:
        self._host = host
        self._settings = settings
        self._configuration = configuration
        self._surroundings = surroundings
        # One for all: as many listeners, and as many connections that are kept, as one tier has.
        self._metrics, self._traces = ServiceMetrics(), traces_of(configuration.tracing, settings.name)
        self._database = Database(surroundings.database_url, connections=_CONNECTIONS, metrics=self._metrics)
        self._tiers: dict[str, asyncio.Task[None]] = {}
        self._ended = asyncio.Event()

    async def run(self) -> None:
        """Does what the host says, until that says that it is to end."""
        loop = asyncio.get_running_loop()
        name, metrics = self._settings.name, self._metrics
        served = serving_metrics(metrics, self._metrics_settings, self._settings.home, name)
        with closing(self._traces), short_collections(), served:
            async with watched_loop(name, metrics.observe_block(name)), self._database:
                threading.Thread(target=self._listen, args=(loop,), name="host", daemon=True).start()
                await self._ended.wait()
                for tier in self._tiers.values():
                    tier.cancel()
                await asyncio.gather(*self._tiers.values(), return_exceptions=True)

    @property
    def _metrics_settings(self) -> MetricsSettings:
        """Of several processes on this machine only one could have a port that is named."""
        settings = self._configuration.with_metrics_at(None, self._settings.metrics_port).metrics
        return settings if self._settings.shared or not settings.port else settings.model_copy(update={"port": 0})

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """In a thread: hands on what the host says, and ends this process when the host has ended."""
        try:
            while True:
                loop.call_soon_threadsafe(self._take, cast(HostMessage, self._host.recv()))
        except (EOFError, OSError):
            os._exit(_ORPHANED)

    def _take(self, message: HostMessage) -> None:
        match message:
            case StartTier(place):
                if place.name not in self._tiers:
                    self._tiers[place.name] = asyncio.create_task(self._keep(place), name=place.name)
            case EndTiers():
                self._ended.set()
            case ChildSettings() | Surroundings():
                raise TypeError(f"{message} comes only once, at the beginning")

    async def _keep(self, place: TierPlace) -> None:
        request = TierRequest(
            kind=place.kind,
            listen=place.listen,
            region=place.region,
            cluster=place.cluster,
            database_url=self._surroundings.database_url,
            home=self._settings.home,
            configuration=self._configuration,
            executor=self._settings.executor,
        )
        while True:
            try:
                await run_tier(
                    request,
                    lambda address: self._host.send(Listening(place.name, address)),
                    waiting=lambda: self._host.send(WaitingForPort(place.listen)),
                    database=self._database,
                    metrics=self._metrics,
                    traces=self._traces,
                )
            except Exception:  # noqa: BLE001 - whatever broke it, the other tiers go on
                _log.exception("a tier broke; it is started again", tier=place.name)
            await asyncio.sleep(_AGAIN_REAL_S)


def main(arguments: Sequence[str]) -> int:
    """The process: takes the descriptor of its connection to the host as its one argument."""
    host: Connection = Connection(int(arguments[0]))
    with suppress(EOFError):
        settings = cast(ChildSettings, host.recv())
        configure_logging(settings.home / "logs" / "tiers" / f"{settings.name}.log", settings.logs)
        try:
            configuration = _configuration(settings)
        except Exception as error:  # noqa: BLE001 - whatever it was, who brings the service up learns it
            _log.exception("the configuration cannot be read")
            host.send(CannotServe(str(error)))
            return 1
        if settings.kernels:
            compile_kernels()
        if settings.executor is ExecutorKind.RAY:
            # It takes half a second, and an emulation does not need it.
            importlib.import_module("services.execution.ray_executor")
        host.send(Warm(pickle.dumps(configuration)))
        surroundings = host.recv()
        if not isinstance(surroundings, Surroundings):
            # It ends before it has begun.
            return 0
        if settings.executor is ExecutorKind.RAY:
            _join_ray(surroundings)
        with asyncio.Runner(loop_factory=WatchedEventLoop) as runner:
            runner.run(TierChild(host, settings, configuration, surroundings).run())
        return 0
    return _ORPHANED


def _configuration(settings: ChildSettings) -> Configuration:
    if settings.configuration is None:
        return load_configuration(settings.configuration_file)
    pickled = settings.configuration
    return cast(Configuration, pickle.loads(pickled))  # noqa: S301 - by a process of ours, kept by our host  # nosec B301


def _join_ray(surroundings: Surroundings) -> None:
    import ray

    from services.execution.runner_pool import NAMESPACE

    ray.init(address=surroundings.ray_address, namespace=NAMESPACE, log_to_driver=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
