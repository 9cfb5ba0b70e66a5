"""The watcher of a home's host: starts it, and starts it again when it has died or hangs, with growing pauses.

It is small, knows nothing but the process and imports nothing that takes memory. The two are connected: the host gives a sign of life
every few seconds, and when the watcher is killed the host starts another one, which takes over here. Told to stop (SIGTERM, SIGINT)
it tells the host, waits for it, and ends with its exit code. A host that never was ready is not started again: whoever wanted it
learns why.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

from services.runtime.handed_options import handed_over, take_options
from services.runtime.host_lock import HOME_TAKEN, HostLockTaken, host_lock
from services.security.secret_files import keep_files_private
from topmast_server.processes import module_command

ALIVE, READY, ENDS = b".", b"r", b"e"
"""What the host says: that it lives, that it is up, that it is ending in order."""

SIGN_EVERY_REAL_S = 5.0
_HALTED_LOOKS = 12
_SILENT_LOOKS = 60
"""So many looks without a sign of life, and the host is killed: fewer when it is halted (SIGSTOP) than when it may only be short of
processor time. Counted, not timed: a machine that stood still looked at nothing."""

_HALTED, _ZOMBIE = frozenset({"T", "t"}), "Z"

_LOCK_PATIENCE_REAL_S = 5.0
_FIRST_PAUSE_REAL_S = 0.2
_LONGEST_PAUSE_REAL_S = 30.0
_WELL_AFTER_REAL_S = 60.0
_GONE_POLL_REAL_S = 0.05


class _StopRequest:
    """Set by SIGTERM and SIGINT; wakes who waits at `wake`."""

    def __init__(self) -> None:
        self._requested = False
        self.wake, woken = socket.socketpair()
        woken.setblocking(False)
        self._woken = woken
        signal.set_wakeup_fd(woken.fileno())
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._take)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def _take(self, _number: int, _frame: FrameType | None) -> None:
        self._requested = True

    def is_requested(self) -> bool:
        return self._requested

    def wait(self, duration_s: float) -> None:
        """Returns after that time, or when a stop is requested."""
        deadline = time.monotonic() + duration_s
        while not self._requested and (left_s := deadline - time.monotonic()) > 0:
            select.select([self.wake], [], [], left_s)


class _Host:
    """One run of the host."""

    def __init__(self, process_id: int, link: socket.socket, *, ours: bool) -> None:
        """`ours`: we have started it, and learn its exit code."""
        self.process_id = process_id
        self.was_ready = not ours
        self.ends_in_order = False
        self.began = time.monotonic()
        self._link = link
        self._ours = ours

    def until_ended(self, stop: _StopRequest) -> int:
        """Its exit code, negative for a signal; 0 where another process started it. Killed when it has been silent for too long."""
        told, spoke, silent_looks = False, False, 0
        while True:
            if stop.is_requested() and not told:
                told = True
                self._send(signal.SIGTERM)
            readable = select.select([self._link] if told else [self._link, stop.wake], [], [], SIGN_EVERY_REAL_S)[0]
            if self._link in readable:
                said = self._said()
                if not said:
                    return self._exit_code()
                spoke, silent_looks = True, 0
                self.was_ready |= READY in said
                self.ends_in_order |= ENDS in said
            elif not readable and spoke and not told and not self.ends_in_order:
                silent_looks += 1
                if silent_looks >= (_HALTED_LOOKS if _state(self.process_id) in _HALTED else _SILENT_LOOKS):
                    _log("the host gives no sign of life; it is killed", process=self.process_id)
                    self._send(signal.SIGKILL)

    def _said(self) -> bytes:
        try:
            return self._link.recv(4096)
        except ConnectionResetError:
            return b""

    def _send(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.process_id, number)

    def _exit_code(self) -> int:
        self._link.close()
        if self._ours:
            return os.waitstatus_to_exitcode(os.waitpid(self.process_id, 0)[1])
        while _is_there(self.process_id):
            time.sleep(_GONE_POLL_REAL_S)
        return 0


def watch(options: str, record: Path, adopted: _Host | None = None) -> int:
    """Keeps the host of these options (JSON) running until it, or this process, is told to stop; the exit code of the last one."""
    stop = _StopRequest()
    host = adopted or _start(options, again=False)
    was_ready, pause_s, losses = False, _FIRST_PAUSE_REAL_S, 0
    while True:
        _write(record, losses)
        exit_code = host.until_ended(stop)
        was_ready |= host.was_ready
        if stop.is_requested() or host.ends_in_order or not was_ready or exit_code == HOME_TAKEN:
            _remove(record)
            return exit_code
        losses += 1
        if time.monotonic() - host.began > _WELL_AFTER_REAL_S:
            pause_s = _FIRST_PAUSE_REAL_S
        _log(
            "the host has ended; another one is started", process=host.process_id, exit_code=exit_code, pause_s=pause_s
        )
        _write(record, losses, host_ended_s=time.time())
        stop.wait(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_REAL_S)
        if stop.is_requested():
            _remove(record)
            return 0
        host = _start(options, again=True)


def _start(options: str, *, again: bool) -> _Host:
    """Starts a host in a session of its own. It stays when we end."""
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.set_inheritable(True)
        with handed_over(options) as descriptor:
            arguments = [str(descriptor), "--watcher", str(theirs.fileno()), *(["--again"] if again else [])]
            command = module_command("services.runtime.host", *arguments)
            process_id = os.posix_spawn(sys.executable, command, os.environ, setsid=True)
    return _Host(process_id, ours, ours=True)


def _is_there(process_id: int) -> bool:
    """Whether the process lives; a zombie does not."""
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return _state(process_id) != _ZOMBIE


def _state(process_id: int) -> str:
    """The letter that Linux has for what the process does; "" where it does not tell."""
    try:
        stat = Path(f"/proc/{process_id}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
    return stat.rpartition(") ")[2][:1]


def _write(record: Path, losses: int, host_ended_s: float | None = None) -> None:
    """What `topmast status` says of us: how many hosts we have lost, and since when there is none."""
    document = {"process_id": os.getpid(), "losses": losses, "host_ended_s": host_ended_s}
    written = record.with_suffix(".new")
    try:
        written.write_text(json.dumps(document), encoding="utf-8")
        written.replace(record)
    except OSError as error:
        _log("the record of the watcher cannot be written", error=str(error))


def _remove(record: Path) -> None:
    try:
        record.unlink(missing_ok=True)
    except OSError as error:
        _log("the record of the watcher cannot be removed", error=str(error))


def _log(event: str, **further: object) -> None:
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    # A full disk takes the lines of a log, and must not end who writes them.
    with suppress(OSError):
        sys.stderr.write(json.dumps({**further, "event": event, "level": "warning", "timestamp": moment}) + "\n")
        sys.stderr.flush()


def main(arguments: Sequence[str]) -> int:
    """The descriptor from which the options come, LOCK, RECORD, and for a host that runs already the descriptor of the connection to it and its process id."""
    keep_files_private()
    options, lock, record = take_options(arguments[0]), Path(arguments[1]), Path(arguments[2])
    adopted = None
    if arguments[3:]:
        link = socket.socket(fileno=int(arguments[3]))
        link.set_inheritable(False)
        adopted = _Host(int(arguments[4]), link, ours=False)
    try:
        with host_lock(lock, _LOCK_PATIENCE_REAL_S if adopted is not None else 0.0):
            return watch(options, record, adopted)
    except HostLockTaken as taken:
        _log("this home has a watcher already", reason=str(taken))
        return HOME_TAKEN


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
