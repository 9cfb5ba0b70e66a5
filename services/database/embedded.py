"""The embedded PostgreSQL: a real server whose data is in `TOPMAST_HOME/postgres`, started when it is needed.

A supervisor of its own (supervisor.py) keeps the server running; neither belongs to the process that asked for them,
so that the database outlives every tier. It asks for a password, which is in a file that only the user of the service reads.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import psutil
import psycopg

from services.database.server_processes import end_server_processes, find_server_processes
from services.security.secret_files import make_private_folders
from topmast_server.processes import module_command

DATABASE_NAME = "topmast"
SERVER_USER = "postgres"
_PORT = 5432
"""Only a part of the socket's name: the server listens on no network address."""

_SOCKET_PATH_LIMIT_BYTES = 103 if sys.platform == "darwin" else 107
_POLL_S = 0.02
_LOG_TAIL_LINES = 20
_SUPERVISOR_MODULE = "services.database.supervisor"


class EmbeddedServerFailed(Exception):
    """The embedded server could not be started; the message ends with what its logs say."""


@dataclass(frozen=True, slots=True)
class EmbeddedLayout:
    """Where everything of an embedded server is."""

    folder: Path

    @staticmethod
    def of(home: Path) -> EmbeddedLayout:
        return EmbeddedLayout(home.expanduser().resolve() / "postgres")

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def server_log(self) -> Path:
        return self.folder / "server.log"

    @property
    def supervisor_log(self) -> Path:
        return self.folder / "supervisor.log"

    @property
    def lock(self) -> Path:
        """Locked by the supervisor as long as it lives; its process id is in it."""
        return self.folder / "supervisor.lock"

    @property
    def pass_file(self) -> Path:
        """The password of the server, as libpq reads it (`services.database.server_password`)."""
        return self.folder / "pgpass"

    @property
    def ready(self) -> Path:
        """Exists from the moment the server first answered until it is stopped on purpose: {"url": ...}."""
        return self.folder / "ready.json"

    @property
    def socket_folder(self) -> Path:
        """Beside the data, or, when that path is too long for a socket, in /tmp under a name made from it."""
        beside = self.folder / "socket"
        if len(os.fsencode(beside / f".s.PGSQL.{_PORT}")) <= _SOCKET_PATH_LIMIT_BYTES:
            return beside
        digest = hashlib.sha256(os.fsencode(self.folder)).hexdigest()[:16]
        return Path("/tmp") / f"topmast-{digest}"  # noqa: S108 - a private folder: see make_private_folder

    def url(self, database: str = DATABASE_NAME) -> str:
        """The URL of one of its databases, for libpq and SQLAlchemy alike. It names the file with the password, and does not hold it."""
        socket_folder, pass_file = quote(str(self.socket_folder), safe=""), quote(str(self.pass_file), safe="")
        return f"postgresql://{SERVER_USER}@/{quote(database)}?host={socket_folder}&port={_PORT}&passfile={pass_file}"


def start_embedded(
    home: Path, *, settings: Sequence[str] = (), stop_with_us: bool = False, patience_s: float = 60.0
) -> str:
    """Makes sure that the embedded server of `home` runs and answers, and returns its URL.

    Starts its supervisor, detached from us, when there is none. Safe to call from several processes at once.

    Args:
        home: TOPMAST_HOME; created when missing.
        settings: further settings of PostgreSQL, as `name=value`; used only when the supervisor is started here.
        stop_with_us: the server is stopped when this process ends, however it ends (for tests).
        patience_s: seconds to wait for it.

    Raises:
        EmbeddedServerFailed: it does not start or does not answer in time; says what its logs say.
    """
    layout = EmbeddedLayout.of(home)
    make_private_folders(layout.folder.parent, layout.folder)
    supervisor: int | None = None
    deadline = time.monotonic() + patience_s
    while True:
        if (url := _ready_url(layout)) is not None and answers(url):
            if supervisor is None or _exit_code(supervisor) is not None or supervisor_process_id(layout) == supervisor:
                return url
            # Ours came second and is about to notice: if we left it behind, it could yet take the place of one
            # that is stopped right after.
        elif supervisor is None and not is_supervised(layout):
            supervisor = _spawn_supervisor(home, settings, stop_with_us)
        if supervisor is not None and (exit_code := _exit_code(supervisor)) is not None:
            if exit_code != 0:
                raise EmbeddedServerFailed(f"the embedded PostgreSQL does not start:\n{_log_tail(layout)}")
            supervisor = None  # another process had started one: wait for that
        if time.monotonic() > deadline:
            raise EmbeddedServerFailed(
                f"no answer from the embedded PostgreSQL in {patience_s} s:\n{_log_tail(layout)}"
            )
        time.sleep(_POLL_S)


def stop_embedded(home: Path, patience_s: float = 90.0) -> bool:
    """Stops the embedded server of `home` and its supervisor; returns False when neither was running.

    Raises TimeoutError when it does not stop in time.
    """
    layout = EmbeddedLayout.of(home)
    signalled: list[int] = []
    deadline = time.monotonic() + patience_s
    while is_supervised(layout):
        supervisor = supervisor_process_id(layout)
        # Another one that was just being started may have taken its place.
        if supervisor is not None and supervisor not in signalled:
            _send(supervisor, signal.SIGTERM)
            signalled.append(supervisor)
        if time.monotonic() > deadline:
            raise TimeoutError(f"the supervisor of the embedded PostgreSQL (process {supervisor}) does not stop")
        time.sleep(_POLL_S)
    for supervisor in signalled:
        # It gives the lock back a moment before it has gone. If it was our child, nothing of it is left.
        while _exit_code(supervisor) is None or _is_there(supervisor):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the supervisor of the embedded PostgreSQL (process {supervisor}) does not end")
            time.sleep(_POLL_S)
    # A supervisor that was killed leaves the server running.
    left_over = end_server_processes(layout.data)
    layout.ready.unlink(missing_ok=True)
    return bool(signalled) or left_over > 0


def is_there(home: Path) -> bool:
    """True when there is an embedded database in `home`, whether its server runs or not."""
    return EmbeddedLayout.of(home).data.exists()


def is_running(home: Path) -> bool:
    """True when the embedded server of `home` has a supervisor or any process."""
    layout = EmbeddedLayout.of(home)
    return is_supervised(layout) or bool(find_server_processes(layout.data))


def is_supervised(layout: EmbeddedLayout) -> bool:
    """True while a supervisor lives: it holds the lock."""
    try:
        with layout.lock.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def supervisor_process_id(layout: EmbeddedLayout) -> int | None:
    """The process id of the living supervisor; None when there is none, or it has not said yet."""
    if not is_supervised(layout):
        return None
    text = layout.lock.read_text(encoding="ascii").strip()
    try:
        command = psutil.Process(int(text)).cmdline()
    except (ValueError, psutil.NoSuchProcess):
        return None
    # The number may still be that of the supervisor before, and belong to any program by now.
    return int(text) if _SUPERVISOR_MODULE in command else None


def answers(url: str) -> bool:
    """True when a server answers at the URL and takes connections."""
    try:
        with psycopg.connect(url, connect_timeout=2):
            return True
    except psycopg.OperationalError:
        return False


def _ready_url(layout: EmbeddedLayout) -> str | None:
    if not is_supervised(layout):
        return None
    try:
        return str(json.loads(layout.ready.read_text())["url"])
    except FileNotFoundError:
        return None


def _spawn_supervisor(home: Path, settings: Sequence[str], stop_with_us: bool) -> int:
    """Starts a supervisor that leaves our session at once; returns its process id."""
    layout = EmbeddedLayout.of(home)
    command = module_command(_SUPERVISOR_MODULE, "--home", str(home.expanduser().resolve()))
    for setting in settings:
        command += ["--setting", setting]
    if stop_with_us:
        command.append("--stop-with-standard-input")
    reader, writer = os.pipe()
    log_flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    file_actions = [
        (os.POSIX_SPAWN_DUP2, reader, 0) if stop_with_us else (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(layout.supervisor_log), log_flags, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    try:
        return os.posix_spawn(sys.executable, command, os.environ, file_actions=file_actions)
    finally:
        os.close(reader)
        if not stop_with_us:
            os.close(writer)  # otherwise the system closes it when we end: that is what the supervisor waits for


def _exit_code(process_id: int) -> int | None:
    """The exit code of a child of ours, None while it runs."""
    try:
        ended, status = os.waitpid(process_id, os.WNOHANG)
    except ChildProcessError:
        return 0  # it was collected elsewhere; the lock shows whether a supervisor lives
    return os.waitstatus_to_exitcode(status) if ended else None


def _is_there(process_id: int) -> bool:
    """Whether the process lives; one that has ended and that its parent has not looked at (a zombie) does not."""
    try:
        return psutil.Process(process_id).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _send(process_id: int, number: signal.Signals) -> None:
    try:
        os.kill(process_id, number)
    except ProcessLookupError:
        return


def _log_tail(layout: EmbeddedLayout) -> str:
    lines: list[str] = []
    for path in (layout.supervisor_log, layout.server_log):
        if path.exists():
            lines += [f"{path}:", *path.read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:]]
    return "\n".join(lines)
