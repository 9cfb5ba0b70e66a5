"""`topmast up` and `topmast down`: a whole service on this machine, behind one host process."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from cluster_manager.cells.declared import declarations_of, fleet_with_virtual_clusters
from formats.fleet_file import read_fleet_file
from formats.problems import FieldProblem, FormatError
from formats.tenants_file import read_tenants
from services.database.embedded import stop_embedded
from services.metrics.settings import LOOPBACK
from services.metrics.targets import served_metrics
from services.runtime.home import HomeLayout
from services.runtime.host_lock import HOME_TAKEN, host_lock_is_held
from services.runtime.host_options import LONGEST_GRACE_REAL_S, HostOptions
from services.runtime.host_record import HostState, read_host_record
from services.runtime.option_differences import OptionDifference, digests_of, option_differences
from services.tiers.free_port import require_port
from topmast_server.processes import module_command

_POLL_REAL_S = 0.1
_LOG_TAIL_LINES = 15


class ServiceNotStarted(Exception):
    """The service did not come up; the message says how far it got and where its logs are."""


class ServiceNotStopped(Exception):
    """The host process did not end in time."""


@dataclass(frozen=True, slots=True)
class RunningService:
    """A service that is up."""

    address: str
    process_id: int
    was_running: bool
    metrics: tuple[str, ...] = ()
    """Where processes of tiers serve their metrics."""
    not_taken_over: tuple[OptionDifference, ...] = ()
    """What was asked for, and is otherwise in the service that was running."""


class StartInterrupted(KeyboardInterrupt):
    """Who waited for the service does not any more; it goes on starting."""


def up(
    options: HostOptions, *, patience_s: float = 180.0, progress: Callable[[str], None] = lambda stage: None
) -> RunningService:
    """Starts the service of this home, unless it is up already; returns when it takes calls.

    `progress` gets what it is busy with. Raises ServiceNotStarted, and before anything is started FormatError for a file
    that makes no sense and PortNotAvailable; StartInterrupted where it goes on without the caller.
    """
    options = _check_files(options)
    layout = HomeLayout(options.home)
    record = read_host_record(layout.host_record)
    if record is not None and record.process is not None and record.state is HostState.READY:
        differences = option_differences(options, digests_of(options), record.options, record.digests)
        return RunningService(
            record.address,
            record.process_id,
            was_running=True,
            metrics=served_metrics(options.home),
            not_taken_over=differences,
        )
    if host_lock_is_held(layout.host_lock):
        raise ServiceNotStarted(_whose(layout))
    _check_port(options)
    layout.host_log.parent.mkdir(parents=True, exist_ok=True)
    host = _spawn_host(options, layout.host_log)
    try:
        return _until_ready(host, layout, patience_s, progress)
    except KeyboardInterrupt as interrupt:
        raise StartInterrupted from interrupt


def _until_ready(host: int, layout: HomeLayout, patience_s: float, progress: Callable[[str], None]) -> RunningService:
    deadline = time.monotonic() + patience_s
    last_stage = ""
    while time.monotonic() < deadline:
        record = read_host_record(layout.host_record)
        if record is not None and record.process_id == host:
            if record.state is HostState.READY:
                return RunningService(record.address, host, was_running=False, metrics=served_metrics(layout.home))
            if record.state is HostState.FAILED:
                os.waitpid(host, 0)
                raise ServiceNotStarted(f"{record.stage} (log: {layout.host_log})")
            if record.stage != last_stage:
                last_stage = record.stage
                progress(last_stage)
        ended, status = os.waitpid(host, os.WNOHANG)
        if ended:
            if os.waitstatus_to_exitcode(status) == HOME_TAKEN:
                raise ServiceNotStarted(_whose(layout))
            raise ServiceNotStarted(f"the host process ended at once; its log says:\n{_log_tail(layout.host_log)}")
        time.sleep(_POLL_REAL_S)
    os.kill(host, signal.SIGTERM)
    raise ServiceNotStarted(f"not ready after {patience_s:.0f} s, busy with {last_stage or 'nothing yet'}")


def _whose(layout: HomeLayout) -> str:
    """Whose the home is, which somebody else starts or stops at this moment."""
    record = read_host_record(layout.host_record)
    if record is None or record.process is None:
        return f"another process is just beginning to start the service of {layout.home}; wait until it is up"
    if record.state is HostState.STOPPING:
        return f"process {record.process_id} is stopping the service of {layout.home}; try again when it has ended"
    doing = f" (busy with {record.stage})" if record.stage else ""
    return (
        f"process {record.process_id} is starting the service of {layout.home} already{doing}; wait until it is up, or end"
        f" it with topmast down --home {layout.home}"
    )


def _check_files(options: HostOptions) -> HostOptions:
    """The options with what the host needs of scheduler.yaml before it has read that.

    Raises FormatError with every problem of the first wrong file: the host reads some of them only at the end.
    """
    for named in (options.configuration_file, options.fleet_file, options.tenants_file):
        if named is not None and named.exists() and not named.is_file():
            # The host reads it again, and a pipe would be empty by then.
            raise FormatError(str(named), [FieldProblem("", "is no file that can be read twice; write it to a file")])
    if options.configuration_file is not None:
        # Everything that can be configured takes a second to import.
        from services.configuration import load_configuration

        options = options.model_copy(update={"logs": load_configuration(options.configuration_file).logs})
    fleet = read_fleet_file(options.fleet_file).fleet if options.fleet_file is not None else None
    tenants = read_tenants(options.tenants_file) if options.tenants_file is not None else ()
    if fleet is not None:
        fleet_with_virtual_clusters(fleet, declarations_of(tenants))
    return options


def _check_port(options: HostOptions) -> None:
    """Raises PortNotAvailable when the global scheduler could not listen where it is to."""
    if options.port:
        require_port(options.listen_host, options.port)
    if options.metrics_port and options.shares_processes:
        require_port(LOOPBACK, options.metrics_port, option="--metrics-port")


def _spawn_host(options: HostOptions, log: Path) -> int:
    """The process id of a host that leaves our session at once. It stays when we end."""
    return os.posix_spawn(
        sys.executable,
        module_command("services.runtime.host", options.model_dump_json()),
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )


def down(
    home: Path,
    *,
    at_once: bool = False,
    patience_s: float = 60.0,
    progress: Callable[[str], None] = lambda stage: None,
) -> bool:
    """Stops the service of this home in order; False when none was up. Raises ServiceNotStopped.

    Running tasks get their grace to save, unless it is to be done `at_once`; `patience_s` comes on top of that. `progress`
    gets what is waited for. A host that was killed has taken its Ray with it, but not the database: that is stopped here then.
    """
    layout = HomeLayout(home)
    record = read_host_record(layout.host_record)
    process = None if record is None else record.process
    if process is None:
        return stop_embedded(home)
    process.send_signal(signal.SIGINT if at_once else signal.SIGTERM)
    deadline = time.monotonic() + patience_s + (0.0 if at_once else LONGEST_GRACE_REAL_S)
    last_stage = ""
    while True:
        try:
            process.wait(_POLL_REAL_S)
        except psutil.TimeoutExpired as error:
            if time.monotonic() > deadline:
                raise ServiceNotStopped(
                    f"process {process.pid} is still there after {patience_s:.0f} s (log: {layout.host_log})"
                ) from error
            record = read_host_record(layout.host_record)
            if record is not None and record.state is HostState.STOPPING and record.stage != last_stage:
                last_stage = record.stage
                progress(last_stage)
        else:
            return True


def _log_tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(lines[-_LOG_TAIL_LINES:])
