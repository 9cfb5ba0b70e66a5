"""The host process of `topmast up`: it has the database, Ray and the tiers running, and ends them in order.

It starts the embedded PostgreSQL (unless a database is named), a Ray of its own (unless one is named, or everything is
emulated), and the tiers, all at the same time as far as they do not need each other; and it stays to start tiers for regions
and clusters that the fleet gains later. It decides nothing about workloads: when it is killed, whatever it had started on a
Ray of others goes on.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import psutil
import structlog

from domain.fleet import Fleet
from formats.fleet_file import read_fleet, read_fleet_file
from formats.tenants_file import read_tenants
from services.database import fleet_store
from services.database.embedded import stop_embedded
from services.database.engine import Database
from services.database.fleet_store import FLEET_CHANNEL
from services.database.server_address import URL_VARIABLE, resolve_database_url
from services.database.upgrade_beside import DatabaseNotUpgraded, upgrade_beside
from services.execution.watched_tasks import WatchedTasks
from services.log_output import configure_logging
from services.oom_score import SERVICE_SCORE, lower_own_score
from services.runtime.clock_record import ClockKept, settle_clock
from services.runtime.executor_kind import ExecutorKind
from services.runtime.home import HomeLayout
from services.runtime.host_lock import HOME_TAKEN, HostLockTaken, host_lock
from services.runtime.host_options import LONGEST_GRACE_REAL_S, HostOptions
from services.runtime.host_record import HostRecord, HostState
from services.runtime.option_differences import digests_of
from services.runtime.tier_children import TierChildren, TiersNotStarted
from services.runtime.tier_messages import ChildSettings, Surroundings
from services.runtime.tier_place import TierKind, TierPlace
from services.tiers.free_port import PortNotAvailable, free_port, require_port
from services.wire.fleets import fleet_to_proto, tenant_to_proto
from topmast import Client

_OBJECT_STORE_BYTES = 100 * 2**20
"""Topmast passes nothing large through Ray's object store."""

_RAY_VARIABLES = {
    # Its workers would yield to all other processes (nice 15): tasks, and tiers that are actors, are the service itself.
    "RAY_worker_niceness": "0",
    # It would start a worker of 60 MiB for each processor, for the case that somebody needs one.
    "RAY_prestart_worker_first_driver": "0",
    # Nearly without memory it would kill its workers: tiers that are actors, and what stands beside each task, and with it the
    # task, by how long they have run and not by who takes the memory. Tasks are watched (services/execution/memory_watch.py).
    "RAY_memory_monitor_refresh_ms": "0",
    # It would have the kernel end them first; among its workers that is for users' processes alone.
    "RAY_worker_oom_score_adjustment": "0",
    # As it does by itself, but processes that join it later must have been told before.
    "RAY_AUTH_MODE": "token",
}
"""For the Ray of our own, and for all that join it, unless the environment says otherwise."""

_FEW_CONNECTIONS = "max_connections=300"
"""Of the embedded database where tiers share a process, and with it a pool: each that it could have takes it 40 KiB."""

_READY_PATIENCE_REAL_S = 120.0

_log = structlog.get_logger(__name__)


class TierHosting(Protocol):
    """How the tiers get processes: as children of the host, or as actors of Ray."""

    def prepare(self) -> None:
        """Begins with what needs neither database nor Ray."""

    async def until_prepared(self) -> None: ...

    def surround(self, surroundings: Surroundings) -> None:
        """Database and Ray are there; only now tiers may be started."""

    def start(self, places: Sequence[TierPlace]) -> None:
        """Starts those that are missing."""

    async def until_listening(self, patience_real_s: float) -> dict[str, str]:
        """The addresses of all tiers by name."""
        ...

    async def end(self) -> None: ...


class Host:
    """Everything that belongs to one home, from start to stop."""

    def __init__(self, options: HostOptions, say: Callable[[HostState, str, str], None]) -> None:
        """`say` gets state, stage and the global scheduler's address."""
        self._options = options
        self._say = say
        self._layout = HomeLayout(options.home)
        self._on_ray = options.executor is ExecutorKind.RAY
        # Settled once: the global scheduler must be found where it was when its process is started again.
        self._port = options.port or free_port(options.listen_host)
        if self._on_ray and options.ray_address is None:
            # Before anything imports Ray, which reads them then.
            for name, value in _RAY_VARIABLES.items():
                os.environ.setdefault(name, value)
        self._tiers = _hosting(options)
        self._ray_session: Path | None = None

    async def run(self, stop: asyncio.Event, at_once: asyncio.Event) -> None:
        """Starts everything, stays until `stop` is set, ends everything; `at_once`: tasks that run get no time to save (any more)."""
        options = self._options
        try:
            # 1. Whatever does not need anything else, side by side.
            self._tiers.prepare()
            self._say(HostState.STARTING, "the database and Ray" if self._on_ray else "the database", "")
            database_url, ray_address = await self._open_database_and_ray()
            _stop_on_signals(stop, at_once)
            fleet = read_fleet(options.fleet_file) if options.fleet_file is not None else None
            self._say(HostState.STARTING, "the compiler (only the first start takes long)", "")
            await self._tiers.until_prepared()
            # 2. The tiers.
            async with Database(database_url) as database:
                await self._prepare(database)
                stored_fleet, _ = await database.run(fleet_store.load_fleet)
                self._say(HostState.STARTING, "the tiers", "")
                # Taken meanwhile: a tier that cannot listen would be started again and again.
                require_port(options.listen_host, self._port)
                self._tiers.surround(Surroundings(database_url, ray_address))
                self._start_tiers(fleet or stored_fleet)
                address = (await self._tiers.until_listening(_READY_PATIENCE_REAL_S))["global"]
                await asyncio.to_thread(self._apply_files, address)
                self._layout.address.write_text(address, encoding="utf-8")
                self._say(HostState.READY, "", address)
                # 3. What the fleet gains later.
                await self._follow_fleet(database, stop)
        finally:
            try:
                self._say(HostState.STOPPING, "ending what it had started", "")
            finally:
                await self._end(at_once)

    async def _open_database_and_ray(self) -> tuple[str, str | None]:
        """The database's URL and Ray's address, if there is to be one. Both have come up, or failed, when this returns or raises."""
        opening = asyncio.to_thread(self._open_database)
        joining = asyncio.to_thread(self._open_ray)
        url, address = await asyncio.gather(opening, joining, return_exceptions=True)
        if isinstance(url, BaseException):
            raise url
        if isinstance(address, BaseException):
            raise address
        return url, address

    def _open_database(self) -> str:
        named = self._options.database_url
        environment: Mapping[str, str] = {URL_VARIABLE: named} if named else os.environ
        settings = (_FEW_CONNECTIONS,) if self._options.shares_processes else ()
        url = resolve_database_url(self._options.home, environment, settings=settings)
        upgrade_beside(url)
        return url

    async def _prepare(self, database: Database) -> None:
        speed = self._options.clock_speed
        if speed is not None:
            origin_s = self._options.clock_origin_s
            await database.run(lambda connection: settle_clock(connection, speed, origin_s))

    def _open_ray(self) -> str | None:
        """Has this process belong to a Ray, and says where that answers; None where everything is emulated."""
        if not self._on_ray:
            return None
        import ray

        from services.execution.runner_pool import EVERY_MACHINE, NAMESPACE, TASK_SLOTS
        from services.runtime.code_on_ray import FINDING_OWN_PACKAGES, join_ray
        from services.runtime.local_ray import start_local_ray

        if self._options.ray_address is not None:
            join_ray(self._options.ray_address, namespace=NAMESPACE, log_to_driver=False)
            return self._options.ray_address
        sessions = self._layout.ray_sessions
        sessions.mkdir(mode=0o700, parents=True, exist_ok=True)
        start_local_ray(
            num_gpus=0,
            resources={EVERY_MACHINE: TASK_SLOTS},
            object_store_memory=_OBJECT_STORE_BYTES,
            include_dashboard=False,
            namespace=NAMESPACE,
            log_to_driver=False,
            _node_ip_address="127.0.0.1",
            _temp_dir=str(sessions),
            _system_config=FINDING_OWN_PACKAGES,
        )
        context = ray.get_runtime_context()
        self._ray_session = sessions / context.get_session_name()
        return str(context.gcs_address)

    def _start_tiers(self, fleet: Fleet) -> None:
        """Starts the tiers that are missing for this fleet."""
        self._tiers.start(self._places(fleet))

    def _places(self, fleet: Fleet) -> Sequence[TierPlace]:
        host = self._options.listen_host
        anywhere = f"{host}:0"
        return [
            TierPlace(TierKind.GLOBAL, f"{host}:{self._port}"),
            *(TierPlace(TierKind.REGIONAL, anywhere, region.region) for region in fleet.regions),
            *(
                TierPlace(TierKind.CLUSTER, anywhere, region.region, cluster.cluster)
                for region in fleet.regions
                for cluster in region.clusters
            ),
        ]

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

    async def _end(self, at_once: asyncio.Event) -> None:
        """Ends the tiers, then Ray, then the database. Whatever goes wrong with one, the next is ended all the same."""
        try:
            # First who would start what is stopped anew.
            await self._tiers.end()
            if self._ray_session is not None:
                await self._let_tasks_save(at_once)
        finally:
            await asyncio.to_thread(self._end_ray_and_database)

    async def _let_tasks_save(self, at_once: asyncio.Event) -> None:
        from services.execution.last_grace import let_tasks_save

        def told(running: int, longest_s: float) -> None:
            tasks = "1 running task saves its work" if running == 1 else f"{running} running tasks save their work"
            self._say(HostState.STOPPING, f"{tasks}, {longest_s:.0f} s at most (topmast down --now does not wait)", "")

        saving = asyncio.ensure_future(let_tasks_save(LONGEST_GRACE_REAL_S, told))
        hurrying = asyncio.ensure_future(at_once.wait())
        await asyncio.wait({saving, hurrying}, return_when=asyncio.FIRST_COMPLETED)
        for task in (saving, hurrying):
            task.cancel()
        await asyncio.gather(saving, hurrying, return_exceptions=True)

    def _end_ray_and_database(self) -> None:
        try:
            if self._on_ray:
                import ray

                if ray.is_initialized():
                    ray.shutdown()
                if self._ray_session is not None:
                    # Sockets and logs of a Ray that is gone. What a killed host leaves behind, `topmast clean` finds.
                    shutil.rmtree(self._ray_session, ignore_errors=True)
                    # Runners that were killed have not left it.
                    shutil.rmtree(WatchedTasks(self._options.home).folder, ignore_errors=True)
        finally:
            if self._options.database_url is None and not os.environ.get(URL_VARIABLE):
                stop_embedded(self._options.home)


def _hosting(options: HostOptions) -> TierHosting:
    if options.tiers_on_ray:
        # They and all that they import are of no use where the tiers share a process beside Ray.
        from services.configuration import load_configuration
        from services.runtime.tier_actors import TierActors

        configuration = load_configuration(options.configuration_file)
        if configuration.metrics.port is not None:
            # Several of them may be on one machine.
            configuration = configuration.with_metrics_at(None, 0)
        return TierActors(options.home, configuration, options.executor)
    settings = ChildSettings(
        "",
        options.home,
        options.executor,
        kernels=True,
        configuration_file=options.configuration_file,
        shared=options.shares_processes,
        metrics_port=options.metrics_port,
        logs=options.logs,
    )
    return TierChildren(settings, shared=options.shares_processes)


def _stop_on_signals(stop: asyncio.Event, at_once: asyncio.Event) -> None:
    """SIGTERM sets `stop`, SIGINT `at_once` too; to be called again once Ray runs in this process.

    `ray.init` puts a handler of its own before ours. That one writes a stack trace, lets ours have the signal, and
    aborts the process three seconds later: too early to end everything in order.
    """

    def set_stop(*further: asyncio.Event) -> None:
        signal.alarm(0)  # It may have come while Ray's handler was there: that one aborts by alarm.
        for event in (stop, *further):
            event.set()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, set_stop)
    loop.add_signal_handler(signal.SIGINT, set_stop, at_once)


def main(arguments: Sequence[str]) -> int:
    """The host process: takes HostOptions as its one argument, in JSON."""
    options = HostOptions.model_validate_json(arguments[0])
    layout = HomeLayout(options.home)
    configure_logging(layout.host_log, options.logs)
    # With it all that it starts: the database, Ray, tiers. Tasks get another one.
    lower_own_score(SERVICE_SCORE)
    try:
        # Before anything is written, started or ended: all of it belongs to the host that there is.
        with host_lock(layout.host_lock):
            return _host(options, layout)
    except HostLockTaken as taken:
        _log.warning("this home has a host already", reason=str(taken))
        return HOME_TAKEN


def _host(options: HostOptions, layout: HomeLayout) -> int:
    process = psutil.Process()
    started_with, digests = options.model_dump(mode="json"), digests_of(options)
    if options.database_url is not None:
        # It may hold a password, and the record is for everybody to read.
        started_with["database_url"] = "one that was named"

    def say(state: HostState, stage: str, address: str) -> None:
        record = HostRecord(
            process.pid, process.create_time(), state, stage, address, options=started_with, digests=digests
        )
        record.write(layout.host_record)

    async def host_until_told() -> None:
        stop, at_once = asyncio.Event(), asyncio.Event()
        _stop_on_signals(stop, at_once)
        await Host(options, say).run(stop, at_once)

    try:
        asyncio.run(host_until_told())
    except (PortNotAvailable, DatabaseNotUpgraded, TiersNotStarted, ClockKept) as error:
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
