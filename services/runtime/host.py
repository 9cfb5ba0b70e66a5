"""The host process of `topmast up`: it has the database, Ray and the tiers running, and ends them in order.

It starts the embedded PostgreSQL (unless a database is named), a Ray of its own (unless one is named, or everything is
emulated), and the tiers, all at the same time as far as they do not need each other; and it stays to start tiers for regions
and clusters that the fleet gains later, and to replace what dies (`kept_parts.py`). Its watcher replaces the host itself. It decides
nothing about workloads: when it is killed, whatever it had started on a Ray of others goes on.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn, Protocol

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
from services.runtime.handed_options import take_options
from services.runtime.home import HomeLayout
from services.runtime.home_processes import ProcessesLeft, end_processes_of
from services.runtime.host_lock import HOME_TAKEN, HostLockTaken, host_lock
from services.runtime.host_options import LONGEST_GRACE_REAL_S, HostOptions
from services.runtime.host_record import HostState, read_whole_host_record
from services.runtime.host_report import HostReport
from services.runtime.kept_database import KeptDatabase
from services.runtime.kept_parts import KeptParts
from services.runtime.own_ray import OwnRay, RayLost
from services.runtime.part_record import PartRecords
from services.runtime.tier_children import TierChildren, TiersNotStarted
from services.runtime.tier_messages import ChildSettings, Surroundings
from services.runtime.tier_place import TierKind, TierPlace
from services.runtime.watcher_link import WatcherLink
from services.security.home_tokens import home_token, keep_home_tokens
from services.security.secret_files import keep_files_private
from services.security.secret_texts import without_passwords
from services.tiers.free_port import PortNotAvailable, free_port, kept_ports
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
    # It listens on loopback only (local_ray.py), and who joins it must look for it there: without this they take the address by which
    # other machines reach this one.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
}
"""For the Ray of our own, and for all that join it, unless the environment says otherwise."""

_FEW_CONNECTIONS = "max_connections=300"
"""Of the embedded database where tiers share a process, and with it a pool: each that it could have takes it 40 KiB."""

_READY_PATIENCE_REAL_S = 120.0
_LOCK_PATIENCE_REAL_S = 10.0
_LEFT_ALONE_REAL_S = 5.0
"""So long may tasks take to end that have lost what watched over them, before they are killed."""

_STANDBY_GROUP = "standby-"
"""Before the names of the processes of tiers that stand by, and so of their logs."""

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

    def __init__(
        self, options: HostOptions, report: HostReport, watcher: WatcherLink, *, again_at: str | None = None
    ) -> None:
        """`again_at`: a former host of the same options has died, where its global scheduler was; its files were applied."""
        self._options = options
        self._report = report
        self._watcher = watcher
        self._layout = HomeLayout(options.home)
        self._on_ray = options.executor is ExecutorKind.RAY
        self._again = again_at is not None
        # Settled once: the global scheduler must be found where it was when its process, or the host, is started again.
        self._port = options.port or _port_of(again_at) or free_port(options.listen_host)
        if self._on_ray and options.ray_address is None:
            # Before anything imports Ray, which reads them then.
            for name, value in _RAY_VARIABLES.items():
                os.environ.setdefault(name, value)
        self._tiers = _hosting(options, report.parts)
        self._standbys = _hosting(options, report.parts, _STANDBY_GROUP) if options.standby else None
        self._standby_port = (_port_of(again_at, 1) or free_port(options.listen_host)) if options.standby else 0
        self._ray_session: Path | None = None
        self._ray: OwnRay | None = None

    async def run(self, stop: asyncio.Event, at_once: asyncio.Event) -> None:
        """Starts everything, stays until `stop` is set, ends everything; `at_once`: tasks that run get no time to save (any more).

        When Ray is lost this process ends with all that it had started but the database, and its watcher starts another one.
        """
        say = self._report.say
        try:
            # 1. Whatever does not need anything else, side by side.
            self._watcher.open()
            self._tiers.prepare()
            say(HostState.STARTING, "the database and Ray" if self._on_ray else "the database")
            database_url, ray_address = await self._open_database_and_ray()
            _stop_on_signals(stop, at_once)
            async with Database(database_url) as database:
                kept = KeptParts(self._report, self._kept_database(), self._ray, database)
                await kept.while_whole(self._serve(database, Surroundings(database_url, ray_address), stop))
        except RayLost as lost:
            self._give_up(str(lost))
        finally:
            try:
                say(HostState.STOPPING, "ending what it had started")
            finally:
                await self._end(at_once)

    async def _serve(self, database: Database, surroundings: Surroundings, stop: asyncio.Event) -> None:
        """Starts the tiers, and others when the fleet gains them, until `stop` is set."""
        options, say = self._options, self._report.say
        fleet = read_fleet(options.fleet_file) if options.fleet_file is not None and not self._again else None
        say(HostState.STARTING, "the compiler (only the first start takes long)")
        await self._tiers.until_prepared()
        # 2. The tiers.
        await self._prepare(database)
        stored_fleet, _ = await database.run(fleet_store.load_fleet)
        say(HostState.STARTING, "the tiers")
        # Somebody may have taken one meanwhile: a tier that cannot listen would be started again and again.
        with kept_ports(options.listen_host, [port for port in (self._port, self._standby_port) if port]):
            await self._start_all_tiers(surroundings, fleet or stored_fleet)
            # 3. What the fleet gains later.
            await self._follow_fleet(database, stop)

    async def _start_all_tiers(self, surroundings: Surroundings, fleet: Fleet) -> None:
        """Says that the service is up when those of this fleet listen."""
        self._tiers.surround(surroundings)
        self._tiers.start(self._places(fleet, self._port))
        address = (await self._tiers.until_listening(_READY_PATIENCE_REAL_S))["global"]
        if not self._again:
            await asyncio.to_thread(self._apply_files, address)
        if self._standbys is not None:
            # Only now, so that the first ones lead.
            standby_address = await self._start_standbys(self._standbys, surroundings, fleet)
            address = f"{address},{standby_address}"
        self._layout.address.write_text(address, encoding="utf-8")
        # Before anybody can read that it is up: who is killed from then on has another one started in its place.
        self._watcher.ready()
        self._report.say(HostState.READY, "", address)

    def _give_up(self, why: str) -> NoReturn:
        """Ends all that hangs on a Ray that was lost, tasks too, and this process: Ray itself would take a minute over it."""
        _log.error("Ray is lost; the host begins anew", why=why)
        self._report.say(HostState.LOST, why)
        try:
            end_processes_of(self._options.home)
        except ProcessesLeft:
            # The next host tries it again, before it starts anything.
            _log.exception("not everything could be ended")
        finally:
            os._exit(1)

    def _kept_database(self) -> KeptDatabase | None:
        """The embedded one; None where a database was named, which others look after."""
        if not self._is_embedded:
            return None
        return KeptDatabase(self._options.home, self._database_settings, self._report.parts)

    @property
    def _is_embedded(self) -> bool:
        return self._options.database_url is None and not os.environ.get(URL_VARIABLE)

    @property
    def _database_settings(self) -> Sequence[str]:
        return (_FEW_CONNECTIONS,) if self._options.shares_processes else ()

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
        url = resolve_database_url(self._options.home, environment, settings=self._database_settings)
        upgrade_beside(url)
        return url

    async def _prepare(self, database: Database) -> None:
        speed = self._options.clock_speed
        await database.run(lambda connection: keep_home_tokens(connection, self._options.home))
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
        _make_private(self._layout.ray_folder)
        sessions.mkdir(mode=0o700, exist_ok=True)
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
        self._ray = OwnRay.of_this_process(self._report.parts)
        return str(context.gcs_address)

    async def _start_standbys(self, standbys: TierHosting, surroundings: Surroundings, fleet: Fleet) -> str:
        """Has a second tier of each stand by; returns the address of the global one."""
        self._report.say(HostState.STARTING, "the tiers that stand by")
        standbys.prepare()
        await standbys.until_prepared()
        standbys.surround(surroundings)
        standbys.start(self._places(fleet, self._standby_port))
        return (await standbys.until_listening(_READY_PATIENCE_REAL_S))["global"]

    def _start_tiers(self, fleet: Fleet) -> None:
        """Starts the tiers that are missing for this fleet."""
        self._tiers.start(self._places(fleet, self._port))
        if self._standbys is not None:
            self._standbys.start(self._places(fleet, self._standby_port))

    def _places(self, fleet: Fleet, port: int) -> Sequence[TierPlace]:
        host = self._options.listen_host
        anywhere = f"{host}:0"
        return [
            TierPlace(TierKind.GLOBAL, f"{host}:{port}"),
            *(TierPlace(TierKind.REGIONAL, anywhere, region.region) for region in fleet.regions),
            *(
                TierPlace(TierKind.CLUSTER, anywhere, region.region, cluster.cluster)
                for region in fleet.regions
                for cluster in region.clusters
            ),
        ]

    def _apply_files(self, address: str) -> None:
        # Not yet where clients find it by the address: that is written down when all is ready.
        with Client(address, token=home_token(self._options.home)) as client:
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
            # First who would start what is stopped anew: the watcher, and tiers that stand by before those whose place they would take.
            await self._watcher.end()
            if self._standbys is not None:
                await self._standbys.end()
            await self._tiers.end()
            if self._ray_session is not None:
                await self._let_tasks_save(at_once)
        finally:
            await asyncio.to_thread(self._end_ray_and_database)

    async def _let_tasks_save(self, at_once: asyncio.Event) -> None:
        from services.execution.last_grace import let_tasks_save

        def told(running: int, longest_s: float) -> None:
            tasks = "1 running task saves its work" if running == 1 else f"{running} running tasks save their work"
            stage = f"{tasks}, {longest_s:.0f} s at most (topmast down --now does not wait)"
            self._report.say(HostState.STOPPING, stage)

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
            if self._is_embedded:
                stop_embedded(self._options.home)
            # The last task is gone when we are.
            end_processes_of(self._options.home, alone_real_s=_LEFT_ALONE_REAL_S)


def _make_private(folder: Path) -> None:
    """Raises PermissionError where somebody else has put it there before us."""
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.lstat().st_uid != os.geteuid():
        raise PermissionError(f"{folder} belongs to somebody else: remove it, or have TOPMAST_HOME elsewhere")
    folder.chmod(0o700)


def _port_of(addresses: str | None, index: int = 0) -> int:
    """Of one of `host:port,host:port`; 0 where there is none."""
    each = (addresses or "").split(",")
    port = each[index].rpartition(":")[2] if index < len(each) else ""
    return int(port) if port.isdigit() else 0


def _hosting(options: HostOptions, parts: PartRecords, group: str = "") -> TierHosting:
    """`group`: before the names of these processes."""
    if options.tiers_on_ray:
        # They and all that they import are of no use where the tiers share a process beside Ray.
        from services.configuration import load_configuration
        from services.runtime.tier_actors import TierActors

        configuration = load_configuration(options.configuration_file)
        if configuration.metrics.port is not None:
            # Several of them may be on one machine.
            configuration = configuration.with_metrics_at(None, 0)
        return TierActors(options.home, configuration, options.executor, group)
    settings = ChildSettings(
        "",
        options.home,
        options.executor,
        kernels=True,
        configuration_file=options.configuration_file,
        # Beside those of tiers that stand by there are others.
        shared=options.shares_processes and not group,
        metrics_port=options.metrics_port,
        logs=options.logs,
    )
    return TierChildren(settings, shared=options.shares_processes, group=group, parts=parts)


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
    """The host process: takes HostOptions, in JSON, from a descriptor that it has inherited."""
    parser = argparse.ArgumentParser(prog="python -m services.runtime.host", description=__doc__)
    parser.add_argument("options", help="the descriptor from which HostOptions come, in JSON")
    parser.add_argument("--watcher", type=int, help="the descriptor of a connection to the watcher that has started it")
    parser.add_argument("--again", action="store_true", help="in the place of one that has died")
    said = parser.parse_args(arguments)
    keep_files_private()
    options = HostOptions.model_validate_json(take_options(said.options))
    layout = HomeLayout(options.home)
    configure_logging(layout.host_log, options.logs)
    # With it all that it starts: the database, Ray, tiers. Tasks get another one.
    lower_own_score(SERVICE_SCORE)
    try:
        # Before anything is written, started or ended: all of it belongs to the host that there is.
        with host_lock(layout.host_lock, _LOCK_PATIENCE_REAL_S if said.again else 0.0):
            return _host(options, layout, said.watcher, again=said.again)
    except HostLockTaken as taken:
        _log.warning("this home has a host already", reason=str(taken))
        return HOME_TAKEN


def _host(options: HostOptions, layout: HomeLayout, connection: int | None, *, again: bool) -> int:
    former = read_whole_host_record(layout.host_record) if again else None
    report = HostReport(layout.host_record, options)

    async def host_until_told() -> None:
        stop, at_once = asyncio.Event(), asyncio.Event()
        _stop_on_signals(stop, at_once)
        watcher = WatcherLink(layout, options.model_dump_json(), connection, report)
        report.say(HostState.STARTING)
        # A host that was killed may have left tasks behind: they end before any of them starts again.
        if killed := await asyncio.to_thread(end_processes_of, options.home):
            _log.warning("processes of a host that had died are ended", processes=killed)
        again_at = (former.address if former is not None else "") if again else None
        await Host(options, report, watcher, again_at=again_at).run(stop, at_once)

    try:
        asyncio.run(host_until_told())
    except (PortNotAvailable, DatabaseNotUpgraded, TiersNotStarted, ClockKept, ProcessesLeft) as error:
        report.say(HostState.FAILED, str(error))
        return 1
    except Exception as error:  # noqa: BLE001 - whatever it was, the process that waits for the host learns it
        _log.exception("the host failed")
        report.say(HostState.FAILED, without_passwords(f"{type(error).__name__}: {error}"))
        return 1
    layout.address.unlink(missing_ok=True)
    layout.host_record.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
