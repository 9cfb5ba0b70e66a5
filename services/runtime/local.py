"""`topmast up` and `topmast down`: a whole service on this machine, behind one host process."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import NoReturn

import psutil

from cluster_manager.cells.declared import declarations_of, fleet_with_virtual_clusters
from formats.fleet_file import read_fleet_file
from formats.problems import FieldProblem, FormatError
from formats.tenants_file import read_tenants
from services.database.embedded import stop_embedded
from services.metrics.settings import LOOPBACK
from services.metrics.targets import served_metrics
from services.runtime.executor_kind import ExecutorKind
from services.runtime.handed_options import handed_over
from services.runtime.home import HomeLayout
from services.runtime.home_processes import ProcessesLeft, end_processes_of, marked
from services.runtime.home_state import HomeState, look_at
from services.runtime.host_lock import HOME_TAKEN, HostLockTaken, host_lock, host_lock_holder, host_lock_is_held
from services.runtime.host_options import LONGEST_GRACE_REAL_S, HostOptions
from services.runtime.host_record import HostState, read_whole_host_record
from services.runtime.option_differences import OptionDifference, digests_of, option_differences
from services.runtime.process_identity import lives
from services.security.secret_files import close_home, make_private_folders
from services.tiers.free_port import require_port
from topmast_server.processes import module_command

_POLL_REAL_S = 0.1
_LOG_TAIL_LINES = 15
_MENDING_PATIENCE_REAL_S = 15.0


class ServiceNotStarted(Exception):
    """The service did not come up; the message says how far it got and where its logs are."""


class ServiceNotStopped(Exception):
    """Something of it is still there; the message says what."""


class HomeNotWritable(Exception):
    """Nothing can be written in the home: a service could store nothing there."""


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
    mended: tuple[str, ...] = ()
    """What was down of the service that was running, or of its records, and is whole again."""
    tasks_are_root: bool = False
    """Though nobody has said that they may be."""


class StartInterrupted(KeyboardInterrupt):
    """Who waited for the service does not any more; it goes on starting."""


def up(
    options: HostOptions, *, patience_s: float = 180.0, progress: Callable[[str], None] = lambda stage: None
) -> RunningService:
    """Starts the service of this home, unless it is up already; returns when it takes calls, and all its parts run.

    `progress` gets what it is busy with. Raises ServiceNotStarted, and before anything is started FormatError for a file
    that makes no sense, PortNotAvailable and HomeNotWritable; StartInterrupted where it goes on without the caller.
    """
    options, tasks_are_root = _checked(options)
    layout = HomeLayout(options.home)
    state = _require_free(options, layout)
    if state.was_up:
        return _until_whole(options, layout, state, patience_s, progress)
    closed = close_home(layout.home)
    watcher = _spawn_watcher(options, layout)
    try:
        service = _until_ready(watcher, layout, patience_s, progress)
    except KeyboardInterrupt as interrupt:
        raise StartInterrupted from interrupt
    return replace(service, mended=(*_left_behind(state), *_closed(closed)), tasks_are_root=tasks_are_root)


def _closed(count: int) -> tuple[str, ...]:
    return (f"others could read or write {count} files and folders of the home, and cannot any more",) if count else ()


def stay_up(options: HostOptions) -> NoReturn:
    """Becomes the watcher of this home's host, which starts the service and stays until it is told to stop (SIGTERM or SIGINT).

    Raises as `up` does before anything is started, and ServiceNotStarted for a home whose service is up.
    """
    options, _ = _checked(options)
    layout = HomeLayout(options.home)
    state = _require_free(options, layout)
    if state.was_up:
        raise ServiceNotStarted(f"Topmast is up from {options.home} already; take it down first (topmast down)")
    close_home(layout.home)
    make_private_folders(layout.home, layout.host_log.parent)
    with handed_over(options.model_dump_json()) as descriptor:
        command = _watcher_command(descriptor, layout)
        os.execve(command[0], command, marked(options.home, os.environ))  # noqa: S606 - our own program, without a shell


def _require_free(options: HostOptions, layout: HomeLayout) -> HomeState:
    """How the home is, where a service is up or can be started; else raises what `up` does."""
    state = look_at(layout)
    if state.host is None and not state.watcher_lives and not host_lock_is_held(layout.host_lock):
        _check_port(options)
        _check_home(layout)
    elif not state.was_up:
        if not state.damaged or state.host is None:
            raise ServiceNotStarted(_whose(layout))
        state = _until_readable(layout)
    return state


def _until_readable(layout: HomeLayout) -> HomeState:
    """A host that lives writes its damaged record anew. Raises ServiceNotStarted when it does not."""
    deadline = time.monotonic() + _MENDING_PATIENCE_REAL_S
    while True:
        state = look_at(layout)
        if not state.damaged:
            if not state.was_up:
                raise ServiceNotStarted(_whose(layout))
            return replace(state, damaged="the record of the host was damaged; the host has written it anew")
        if time.monotonic() > deadline:
            raise ServiceNotStarted(f"{state.damaged}; this one does not: 'topmast down' ends it")
        time.sleep(_POLL_REAL_S)


def _left_behind(state: HomeState) -> tuple[str, ...]:
    """What a service that was not taken down had left, and is mended by starting another one."""
    if state.damaged:
        return ("the record of the former host was damaged; it was written anew",)
    return state.down


def _until_whole(
    options: HostOptions, layout: HomeLayout, state: HomeState, patience_s: float, progress: Callable[[str], None]
) -> RunningService:
    """The running service, as soon as nothing of it is down: its host and watcher start again what is."""
    seen: set[str] = set()
    mended: tuple[str, ...] = (state.damaged,) if state.damaged else ()
    deadline = time.monotonic() + patience_s
    while True:
        mended = mended or state.down
        for sentence in state.down:
            if sentence not in seen:
                seen.add(sentence)
                progress(sentence)
        if state.is_whole and state.record is not None:
            record = state.record
            differences = option_differences(options, digests_of(options), record.options, record.digests)
            metrics = served_metrics(options.home)
            return RunningService(record.address, record.process_id, True, metrics, differences, mended)
        if state.host is None and not state.watcher_lives:
            raise ServiceNotStarted("the service ended while it was being mended; bring it up again (topmast up)")
        if time.monotonic() > deadline:
            down = "; ".join(state.down) or "its host is not ready"
            raise ServiceNotStarted(f"Topmast is not whole after {patience_s:.0f} s: {down} (log: {layout.host_log})")
        time.sleep(_POLL_REAL_S)
        state = look_at(layout)


def _until_ready(
    watcher: int, layout: HomeLayout, patience_s: float, progress: Callable[[str], None]
) -> RunningService:
    deadline = time.monotonic() + patience_s
    last_stage = ""
    while time.monotonic() < deadline:
        ended, status = os.waitpid(watcher, os.WNOHANG)
        record = read_whole_host_record(layout.host_record)
        if record is not None and record.watcher_id == watcher:
            if record.state is HostState.READY and record.process is not None:
                return RunningService(
                    record.address, record.process_id, was_running=False, metrics=served_metrics(layout.home)
                )
            if ended and record.state in {HostState.FAILED, HostState.LOST}:
                raise ServiceNotStarted(f"{record.stage} (log: {layout.host_log})")
            if record.stage != last_stage:
                last_stage = record.stage
                progress(last_stage)
        if ended:
            if os.waitstatus_to_exitcode(status) == HOME_TAKEN:
                raise ServiceNotStarted(_whose(layout))
            raise ServiceNotStarted(f"the host process ended at once; its log says:\n{_log_tail(layout.host_log)}")
        time.sleep(_POLL_REAL_S)
    os.kill(watcher, signal.SIGTERM)
    raise ServiceNotStarted(f"not ready after {patience_s:.0f} s, busy with {last_stage or 'nothing yet'}")


def _whose(layout: HomeLayout) -> str:
    """Whose the home is, which somebody else starts or stops at this moment."""
    record = read_whole_host_record(layout.host_record)
    if record is None or record.process is None:
        holder = host_lock_holder(layout.watcher_lock) or host_lock_holder(layout.host_lock)
        who = f"process {holder}" if holder is not None else "another process"
        return f"{who} is just beginning to start the service of {layout.home}; wait until it is up"
    if record.state is HostState.STOPPING:
        return f"process {record.process_id} is stopping the service of {layout.home}; try again when it has ended"
    doing = f" (busy with {record.stage})" if record.stage else ""
    return (
        f"process {record.process_id} is starting the service of {layout.home} already{doing}; wait until it is up, or end"
        f" it with topmast down --home {layout.home}"
    )


def _checked(options: HostOptions) -> tuple[HostOptions, bool]:
    """The options with what the host needs of scheduler.yaml before it has read that, and whether tasks run as root and nobody has said so.

    Raises FormatError with every problem of the first wrong file: the host reads some of them only at the end; and UserImpossible
    where no task could be started on this machine as it is configured.
    """
    starts_tasks = options.executor is ExecutorKind.RAY and options.ray_address is None
    tasks_are_root = starts_tasks and os.geteuid() == 0
    for named in (options.configuration_file, options.fleet_file, options.tenants_file):
        if named is not None and named.exists() and not named.is_file():
            # The host reads it again, and a pipe would be empty by then.
            raise FormatError(str(named), [FieldProblem("", "is no file that can be read twice; write it to a file")])
    if options.configuration_file is not None:
        # Everything that can be configured takes a second to import.
        from services.configuration import load_configuration
        from services.execution.task_user import task_user

        configuration = load_configuration(options.configuration_file)
        if configuration.tls.certificate is not None:
            told = "is for `topmast serve`: what `topmast up` starts stays on loopback and talks in plain text; leave it out"
            raise FormatError(str(options.configuration_file), [FieldProblem("tls", told)])
        if starts_tasks:
            settled = configuration.tasks.run_as is not None or configuration.tasks.allow_root is not None
            tasks_are_root = tasks_are_root and not settled
            task_user(configuration.tasks.settings())
        options = options.model_copy(update={"logs": configuration.logs})
    fleet = read_fleet_file(options.fleet_file).fleet if options.fleet_file is not None else None
    tenants = read_tenants(options.tenants_file) if options.tenants_file is not None else ()
    if fleet is not None:
        fleet_with_virtual_clusters(fleet, declarations_of(tenants))
    return options, tasks_are_root


def _check_port(options: HostOptions) -> None:
    """Raises PortNotAvailable when the global scheduler could not listen where it is to."""
    if options.port:
        require_port(options.listen_host, options.port)
    if options.metrics_port and options.shares_processes:
        require_port(LOOPBACK, options.metrics_port, option="--metrics-port")


def _check_home(layout: HomeLayout) -> None:
    """Raises HomeNotWritable when nothing can be written there. A home that is not there yet is made only when all else is well."""
    folder = layout.home
    while not folder.exists():
        folder = folder.parent
    try:
        if not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        with TemporaryFile(dir=folder) as probe:
            probe.write(b"\0")
    except OSError as error:
        raise HomeNotWritable(
            f"nothing can be written in {folder} ({error.strerror}), so that there can be no service in {layout.home}: make"
            " it writable, or name another folder with --home or TOPMAST_HOME"
        ) from error


def _watcher_command(descriptor: int, layout: HomeLayout) -> list[str]:
    """`descriptor`: from where the options come, which may name a password."""
    return module_command(
        "services.runtime.host_watcher",
        str(descriptor),
        str(layout.watcher_lock),
        str(layout.watcher_record),
    )


def _spawn_watcher(options: HostOptions, layout: HomeLayout) -> int:
    """The process id of a watcher that leaves our session at once, and starts the host. Both stay when we end."""
    make_private_folders(layout.home, layout.host_log.parent)
    with handed_over(options.model_dump_json()) as descriptor:
        command = _watcher_command(descriptor, layout)
        return os.posix_spawn(
            command[0],
            command,
            marked(options.home, os.environ),
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(layout.host_log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
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
    """Stops the service of this home in order; False when nothing of it was up. Raises ServiceNotStopped.

    Running tasks get their grace to save, unless it is to be done `at_once`. A host that has not ended `patience_s` after that is
    killed. `progress` gets what is waited for. Nothing of the service is left when this returns, also of one whose host, or
    watcher, was killed: their locks, the mark in the environment of what they had started, and the database's folder tell what there is.
    """
    layout = HomeLayout(home)
    if not layout.host_lock.exists():
        return stop_embedded(home)
    deadline = time.monotonic() + patience_s + (0.0 if at_once else LONGEST_GRACE_REAL_S)
    number = signal.SIGINT if at_once else signal.SIGTERM
    told: set[int] = set()
    last_stage = ""
    while holders := _holders(layout):
        for process_id in holders:
            if process_id not in told:
                told.add(process_id)
                # The watcher starts no other host then. Whoever is halted could not heed it.
                _send(process_id, signal.SIGTERM if process_id == holders[0] and len(holders) > 1 else number)
                _send(process_id, signal.SIGCONT)
        if time.monotonic() > deadline:
            progress(f"killing process {holders[-1]}, which does not end in order (log: {layout.host_log})")
            for process_id in holders:
                _send(process_id, signal.SIGKILL)
            deadline = time.monotonic() + patience_s
        record = read_whole_host_record(layout.host_record)
        if record is not None and record.state is HostState.STOPPING and record.stage != last_stage:
            last_stage = record.stage
            progress(last_stage)
        time.sleep(_POLL_REAL_S)
    for process_id in told:
        _until_gone(process_id)
    return _end_rest(home, layout) or bool(told)


def _holders(layout: HomeLayout) -> list[int]:
    """Those that hold the locks of the home: the watcher first, who would start another host."""
    holders = (host_lock_holder(layout.watcher_lock), host_lock_holder(layout.host_lock))
    return [process_id for process_id in holders if process_id is not None]


def _end_rest(home: Path, layout: HomeLayout) -> bool:
    """Ends what there is of a service without host and watcher; whether there was anything."""
    try:
        with host_lock(layout.host_lock):
            ended = end_processes_of(home) > 0
            ended |= stop_embedded(home)
            for path in (layout.address, layout.host_record, layout.watcher_record):
                path.unlink(missing_ok=True)
            return ended
    except HostLockTaken as taken:
        raise ServiceNotStopped(f"another process has begun to start the service of {home} meanwhile") from taken
    except ProcessesLeft as left:
        raise ServiceNotStopped(str(left)) from left


def _until_gone(process_id: int) -> None:
    """It gives its lock back a moment before it has gone. Nothing is left of it if it was our child."""
    while True:
        with suppress(ChildProcessError):
            os.waitpid(process_id, os.WNOHANG)
        try:
            if not lives(psutil.Process(process_id)):
                return
        except psutil.NoSuchProcess:
            return
        time.sleep(_POLL_REAL_S)


def _send(process_id: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(process_id, number)


def _log_tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(lines[-_LOG_TAIL_LINES:])
