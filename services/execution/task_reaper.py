"""Stands between a task runner and the user's process, so that nothing of a task outlives either of them.

Run as a program of its own (`python -I -S task_reaper.py`), standard library only: it starts in milliseconds, and has one
thread, so that it may run code between fork and exec. It becomes the reaper of everything the task starts, also of what
detaches itself, and kills all of it when the main process has ended, when it is asked to, or when its standard input is
closed: that happens when the runner dies, however it dies. Should the reaper itself be killed, the kernel kills the
main process (PR_SET_PDEATHSIG) and the runner its process group. The last two are Linux; elsewhere what detaches itself
from the process group escapes.

Standard input: one line of JSON, the launch (as Launch has it); then the lines
`terminate` (SIGTERM to the process group) or `kill`. Standard output: one line of JSON, `{"process_id": ...}` or
`{"failure": ...}`; when everything has ended, `{"exit_code": ...}` (negative: killed by that signal).
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NotRequired, TypedDict

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_OOM_SCORE = 1000
"""When the machine has no memory left the kernel ends what the task has started before anything else."""
_LONGEST_WAIT_S = 0.5
_LONGEST_AFTERWARDS_S = 60.0


class Launch(TypedDict):
    """What to start: the program, its whole environment, where, and the file that gets all that it prints."""

    arguments: list[str]
    environment: dict[str, str]
    directory: str
    log: str
    afterwards: NotRequired[list[str]]
    """Run when everything has ended: what ends that which is no descendant, as a container is none."""
    standard: NotRequired[list[int]]
    """Inherited descriptors for its standard input, output and error, in place of the file."""
    terminal: NotRequired[bool]
    """Those are a terminal, which becomes the one that controls it."""


def main() -> int:
    commands = _Commands()
    launch: Launch = json.loads(commands.first_line())
    woken_by_children = _wake_on_child()
    prctl = _prctl()
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    guard = _guard(launch)
    try:
        child = _start(launch, prctl)
    except (OSError, ValueError) as error:
        _tell({"failure": str(error)})
        return 1
    _tell({"process_id": child.pid})
    while (exit_code := _reap(child)) is None:
        sources = [woken_by_children] if commands.ended else [woken_by_children, sys.stdin.fileno()]
        ready, _, _ = select.select(sources, [], [])
        if woken_by_children in ready:
            os.read(woken_by_children, 4096)
        if sys.stdin.fileno() in ready:
            for command in commands.next_lines():
                _signal_group(child.pid, signal.SIGTERM if command == b"terminate" else signal.SIGKILL)
    _end_descendants(child, guard)
    run_afterwards(launch)
    _tell({"exit_code": exit_code})
    return 0


class _Commands:
    """Lines from standard input; its end counts as `kill`."""

    def __init__(self) -> None:
        self._unread = b""
        self.ended = False

    def first_line(self) -> bytes:
        while b"\n" not in self._unread:
            received = os.read(sys.stdin.fileno(), 65536)
            if not received:
                sys.exit(1)
            self._unread += received
        line, self._unread = self._unread.split(b"\n", 1)
        return line

    def next_lines(self) -> list[bytes]:
        received = os.read(sys.stdin.fileno(), 4096)
        if not received:
            self.ended = True
            return [b"kill"]
        *lines, self._unread = (self._unread + received).split(b"\n")
        return lines


def _start(launch: Launch, prctl: Callable[[int, int], None]) -> subprocess.Popen[bytes]:
    """The user's process in a session of its own. Raises OSError or ValueError when it cannot be started."""
    reaper = os.getpid()

    def die_with_reaper() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != reaper:
            os._exit(1)
        _go_first()

    def begin() -> None:
        die_with_reaper()
        if launch.get("terminal"):
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    with _standard(launch) as (reading, writing, complaining):
        return subprocess.Popen(
            launch["arguments"],
            env=launch["environment"],
            cwd=launch["directory"],
            stdin=reading,
            stdout=writing,
            stderr=complaining,
            start_new_session=True,
            preexec_fn=begin,  # noqa: PLW1509  # safe: this program has one thread
        )


def _go_first() -> None:
    """Anybody may raise their own score; all that this process starts inherits it."""
    try:
        Path("/proc/self/oom_score_adj").write_text(str(_OOM_SCORE), encoding="ascii")
    except OSError:
        return


@contextmanager
def _standard(launch: Launch) -> Iterator[tuple[int, int, int]]:
    """Its standard input, output and error. None of them stays open here: their readers wait for the end."""
    given = launch.get("standard")
    if given:
        reading, writing, complaining = given
        try:
            yield reading, writing, complaining
        finally:
            for descriptor in set(given):
                os.close(descriptor)
        return
    with Path(launch["log"]).open("ab") as log:
        yield subprocess.DEVNULL, log.fileno(), subprocess.STDOUT


def run_afterwards(launch: Launch) -> None:
    """Runs what is to be done when the task has ended; its own failure changes nothing."""
    command = launch.get("afterwards")
    if not command:
        return
    try:
        subprocess.run(
            command,
            env=launch["environment"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_LONGEST_AFTERWARDS_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return


def _wake_on_child() -> int:
    """A file descriptor that becomes readable when a child ends. Terminating the reaper itself is not for others."""
    woken, wake = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    # A handler and not SIG_IGN: what is ignored would stay ignored in the user's process.
    def stay(number: int, frame: FrameType | None) -> None:
        del number, frame

    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stay)
    return woken


def _reap(child: subprocess.Popen[bytes]) -> int | None:
    """Collects every child that has ended; the exit code of the main one once it has."""
    while True:
        try:
            process_id, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            break
        if process_id == 0:
            break
        if process_id == child.pid:
            child.returncode = os.waitstatus_to_exitcode(status)
    return child.returncode


def _guard(launch: Launch) -> int | None:
    """A process that does what is to be done afterwards also when this one is killed; None when there is nothing to do."""
    if not launch.get("afterwards"):
        return None
    # Nothing is ever written: its end is the end of this process.
    reading, writing = os.pipe()
    guard = os.fork()
    if guard:
        os.close(reading)
        return guard
    os.close(writing)
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    os.read(reading, 1)
    run_afterwards(launch)
    os._exit(0)


def _end_descendants(child: subprocess.Popen[bytes], guard: int | None) -> None:
    """Kills what the main process left behind; returns when nothing is left.

    Orphans become children of the reaper, so killing children again and again reaches every descendant. A process
    that cannot be killed yet is waited for: what it holds is still in use.
    """
    wait_s = 0.001
    _signal_group(child.pid, signal.SIGKILL)
    while True:
        _reap(child)
        left = [process_id for process_id in _children() if process_id != guard]
        if not left:
            return
        for process_id in left:
            try:
                os.kill(process_id, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(wait_s)
        wait_s = min(2 * wait_s, _LONGEST_WAIT_S)


def _children() -> list[int]:
    """All direct children, from /proc; none where there is no /proc."""
    own = str(os.getpid()).encode()
    found: list[int] = []
    processes = Path("/proc")
    if not processes.is_dir():
        return found
    for entry in processes.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue
        if fields[1] == own:
            found.append(int(entry.name))
    return found


def _signal_group(leader: int, number: int) -> None:
    try:
        os.killpg(leader, number)
    except ProcessLookupError:
        return


def _prctl() -> Callable[[int, int], None]:
    """prctl(2) with one argument, looked up before the fork; does nothing where there is none."""
    if sys.platform != "linux":
        return lambda option, argument: None
    function = ctypes.CDLL(None, use_errno=True).prctl

    def prctl(option: int, argument: int) -> None:
        function(option, ctypes.c_ulong(argument), 0, 0, 0)

    return prctl


def _tell(message: dict[str, object]) -> None:
    try:
        os.write(sys.stdout.fileno(), json.dumps(message).encode() + b"\n")
    except BrokenPipeError:
        # The runner is gone; that everything here ends is all it would want to know.
        return


if __name__ == "__main__":
    sys.exit(main())
