"""The host process of `topmast up`: it has the database, Ray and the tiers running, and ends them in order.

It starts the embedded PostgreSQL (unless a database is named) and a Ray of its own (unless one is named), creates one
actor for each tier, and stays to start actors for regions and clusters that the fleet gains later. It decides nothing
about workloads: when it is killed, whatever it had started on a Ray of others goes on.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psutil
import ray
import structlog

from domain.fleet import Fleet
from domain.identifiers import ClusterId, RegionId
from formats.fleet_file import read_fleet, read_fleet_file
from formats.tenants_file import read_tenants
from services.configuration import Configuration, load_configuration
from services.database import fleet_store
from services.database.embedded import stop_embedded
from services.database.engine import Database
from services.database.fleet_store import FLEET_CHANNEL
from services.database.migrations_runner import upgrade
from services.database.server_address import URL_VARIABLE, resolve_database_url
from services.execution.runner_pool import EVERY_MACHINE, TASK_SLOTS
from services.log_output import configure_logging
from services.runtime.clock_record import record_clock
from services.runtime.home import HomeLayout
from services.runtime.host_lock import HOME_TAKEN, HostLockTaken, host_lock
from services.runtime.host_options import HostOptions
from services.runtime.host_record import HostRecord, HostState
from services.runtime.local_ray import start_local_ray
from services.runtime.tier_actor import NAMESPACE, TierActor, actor_name
from services.runtime.tier_process import TierKind, TierRequest
from services.tiers.free_port import PortNotAvailable, free_port, require_port
from services.wire.fleets import fleet_to_proto, tenant_to_proto
from topmast import Client

_OBJECT_STORE_BYTES = 100 * 2**20
"""Topmast passes nothing large through Ray's object store."""

_READY_PATIENCE_REAL_S = 120.0
_TIER_STOP_REAL_S = 10.0

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Started:
    request: TierRequest
    handle: Any
    """Ray's handle: it has no useful type."""


class Host:
    """Everything that belongs to one home, from start to stop."""

    def __init__(self, options: HostOptions, say: Callable[[HostState, str, str], None]) -> None:
        """`say` gets state, stage and the global scheduler's address."""
        self._options = options
        self._say = say
        self._configuration: Configuration = load_configuration(options.configuration_file)
        self._database_url = ""
        # Settled once: the global scheduler must be found where it was when its process is started again.
        self._port = options.port or free_port(options.listen_host)
        self._tiers: dict[str, _Started] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Starts everything, stays until `stop` is set, ends everything."""
        options = self._options
        try:
            self._say(HostState.STARTING, "the compiler (only the first start takes long)", "")
            await asyncio.to_thread(_compile_kernels)
            self._say(HostState.STARTING, "the database", "")
            self._database_url = await asyncio.to_thread(self._open_database)
            fleet = read_fleet(options.fleet_file) if options.fleet_file is not None else None
            async with Database(self._database_url) as database:
                await self._prepare(database)
                stored_fleet, _ = await database.run(fleet_store.load_fleet)
                self._say(HostState.STARTING, "Ray", "")
                # Taken meanwhile: a tier that cannot listen would be started again and again.
                require_port(options.listen_host, self._port)
                await asyncio.to_thread(self._open_ray)
                _stop_on_signals(stop)
                self._say(HostState.STARTING, "the tiers", "")
                self._start_tiers(fleet or stored_fleet)
                address = await asyncio.to_thread(self._wait_until_listening)
                await asyncio.to_thread(self._apply_files, address)
                HomeLayout(options.home).address.write_text(address, encoding="utf-8")
                self._say(HostState.READY, "", address)
                await self._follow_fleet(database, stop)
        finally:
            try:
                self._say(HostState.STOPPING, "ending what it had started", "")
            finally:
                await asyncio.to_thread(self._end)

    def _open_database(self) -> str:
        named = self._options.database_url
        environment: Mapping[str, str] = {URL_VARIABLE: named} if named else os.environ
        url = resolve_database_url(self._options.home, environment)
        upgrade(url)
        return url

    async def _prepare(self, database: Database) -> None:
        speed = self._options.clock_speed
        if speed is not None:
            origin_s = self._options.clock_origin_s
            if not await database.run(lambda connection: record_clock(connection, speed, origin_s)):
                _log.warning("the service has a clock already; it is kept")

    def _open_ray(self) -> None:
        if self._options.ray_address is not None:
            ray.init(address=self._options.ray_address, namespace=NAMESPACE, log_to_driver=False)
            return
        # Ray makes its workers yield to all other processes (nice 15); the tiers are the service itself.
        os.environ.setdefault("RAY_worker_niceness", "0")
        start_local_ray(
            num_gpus=0,
            resources={EVERY_MACHINE: TASK_SLOTS},
            object_store_memory=_OBJECT_STORE_BYTES,
            include_dashboard=False,
            namespace=NAMESPACE,
            log_to_driver=False,
            _node_ip_address="127.0.0.1",
        )

    def _start_tiers(self, fleet: Fleet) -> None:
        """Starts the actors that are missing for this fleet."""
        for request in self._requests(fleet):
            if request.name not in self._tiers:
                handle = (
                    ray.remote(TierActor)
                    .options(
                        name=actor_name(request),
                        lifetime="detached",
                        get_if_exists=True,
                        num_cpus=0,
                        max_restarts=-1,
                        max_task_retries=0,
                    )
                    .remote(request)
                )
                self._tiers[request.name] = _Started(request, handle)

    def _requests(self, fleet: Fleet) -> Sequence[TierRequest]:
        return [
            self._request(TierKind.GLOBAL, port=self._port),
            *(self._request(TierKind.REGIONAL, region=region.region) for region in fleet.regions),
            *(
                self._request(TierKind.CLUSTER, region=region.region, cluster=cluster.cluster)
                for region in fleet.regions
                for cluster in region.clusters
            ),
        ]

    def _request(
        self, kind: TierKind, *, port: int = 0, region: RegionId | None = None, cluster: ClusterId | None = None
    ) -> TierRequest:
        return TierRequest(
            kind=kind,
            database_url=self._database_url,
            home=self._options.home,
            configuration=self._configuration,
            listen=f"{self._options.listen_host}:{port}",
            region=region,
            cluster=cluster,
            executor=self._options.executor,
        )

    def _wait_until_listening(self) -> str:
        """All tiers listen; returns the address of the global scheduler."""
        names = list(self._tiers)
        addresses: list[str] = ray.get(
            [self._tiers[name].handle.address.remote(_READY_PATIENCE_REAL_S) for name in names]
        )
        return dict(zip(names, addresses, strict=True))["global"]

    def _apply_files(self, address: str) -> None:
        with Client(address) as client:
            tenants = None
            if self._options.tenants_file is not None:
                tenants = [tenant_to_proto(tenant) for tenant in read_tenants(self._options.tenants_file)]
            if self._options.fleet_file is not None:
                described = read_fleet_file(self._options.fleet_file)
                client.apply_fleet(fleet_to_proto(described.fleet, described.tables), tenants)
            elif tenants is not None:
                client.apply_tenants(tenants)

    async def _follow_fleet(self, database: Database, stop: asyncio.Event) -> None:
        """Starts tiers for regions and clusters that appear; those that disappear stay idle until the next start."""
        stopping = asyncio.ensure_future(stop.wait())
        async with database.listen(FLEET_CHANNEL) as subscription:
            while not stop.is_set():
                woken = asyncio.ensure_future(subscription.wait())
                await asyncio.wait({woken, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if not woken.done():
                    woken.cancel()
                    continue
                fleet, _ = await database.run(fleet_store.load_fleet, give_up_after_s=float("inf"))
                self._start_tiers(fleet)

    def _end(self) -> None:
        """Ends the tiers, then Ray, then the database. Whatever goes wrong with one, the next is ended all the same."""
        try:
            self._end_tiers()
        finally:
            try:
                if ray.is_initialized():
                    ray.shutdown()
            finally:
                if self._options.database_url is None and not os.environ.get(URL_VARIABLE):
                    stop_embedded(self._options.home)

    def _end_tiers(self) -> None:
        if not self._tiers:
            return
        stopping = {name: started.handle.stop.remote() for name, started in self._tiers.items()}
        # They stop side by side, so that all of them together have this time.
        ray.wait(list(stopping.values()), num_returns=len(stopping), timeout=_TIER_STOP_REAL_S)
        for name, stopped in stopping.items():
            try:
                ray.get(stopped, timeout=0)
            except ray.exceptions.RayError as error:
                # It was being started again, or hangs: nothing is lost by killing it.
                _log.warning("a tier did not stop in order", tier=name, error=str(error))
        for started in self._tiers.values():
            ray.kill(started.handle)


def _compile_kernels() -> None:
    """In a process of its own: the host has no use for the compiler."""
    subprocess.run([sys.executable, "-m", "services.runtime.kernels"], check=True)


def _stop_on_signals(stop: asyncio.Event) -> None:
    """SIGTERM and SIGINT set `stop`; to be called again once Ray runs in this process.

    `ray.init` puts a handler of its own before ours. That one writes a stack trace, lets ours have the signal, and
    aborts the process three seconds later: too early to end everything in order.
    """

    def set_stop() -> None:
        signal.alarm(0)  # It may have come while Ray's handler was there: that one aborts by alarm.
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, set_stop)


def main(arguments: Sequence[str]) -> int:
    """The host process: takes HostOptions as its one argument, in JSON."""
    options = HostOptions.model_validate_json(arguments[0])
    layout = HomeLayout(options.home)
    configure_logging(layout.host_log)
    try:
        # Before anything is written, started or ended: all of it belongs to the host that there is.
        with host_lock(layout.host_lock):
            return _host(options, layout)
    except HostLockTaken as taken:
        _log.warning("this home has a host already", reason=str(taken))
        return HOME_TAKEN


def _host(options: HostOptions, layout: HomeLayout) -> int:
    process = psutil.Process()

    def say(state: HostState, stage: str, address: str) -> None:
        record = HostRecord(process.pid, process.create_time(), state, stage, address)
        record.write(layout.host_record)

    async def host_until_told() -> None:
        stop = asyncio.Event()
        _stop_on_signals(stop)
        await Host(options, say).run(stop)

    try:
        asyncio.run(host_until_told())
    except PortNotAvailable as error:
        say(HostState.FAILED, str(error), "")
        return 1
    except Exception as error:  # noqa: BLE001 - whatever it was, the process that waits for the host learns it
        _log.exception("the host failed")
        say(HostState.FAILED, f"{type(error).__name__}: {error}", "")
        return 1
    layout.address.unlink(missing_ok=True)
    layout.host_record.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
