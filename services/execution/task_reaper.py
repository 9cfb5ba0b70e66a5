"""Stands between a task runner and the user's process, so that nothing of a task outlives either of them.

Run as a program of its own (`python -I -S task_reaper.py`), standard library only: it starts in milliseconds, and has one
thread, so that it may run code between fork and exec. It is two processes, the guard and below it the reaper. Both adopt what
loses its parent (PR_SET_CHILD_SUBREAPER), so all that the task starts stays below them, also what detaches itself.

The reaper kills all of it when the main process has ended, when it is asked to, when its standard input is closed (the runner
is dead, however it died), and when the guard is dead. When the reaper is dead, the guard does so, and the kernel kills the main
process at once (PR_SET_PDEATHSIG). When both are dead, what is left is adopted by the runner, which kills it. When all
three are dead it is found again by its control group or its environment (`services.execution.left_behind`). Adopting
and dying along are Linux; elsewhere what detaches itself from the process group escapes.

Standard input: one line of JSON, the launch (as Launch has it); then the lines
`terminate` (SIGTERM to the process group) or `kill`. Standard output: one line of JSON, `{"process_id": ...}` or
`{"failure": ...}`; when everything has ended, `{"exit_code": ...}` (negative: killed by that signal). It ends
without that line when the guard or the reaper was killed.
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
import traceback
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


class LaunchUser(TypedDict):
    """In numbers, as the system has them."""

    user: int
    group: int
    groups: list[int]


class Launch(TypedDict):
    """What to start: the program, its whole environment, where, and the file that gets all that it prints."""

    arguments: list[str]
    environment: dict[str, str]
    directory: str
    log: str
    umask: NotRequired[int]
    """For the files that it makes; otherwise as this process has it."""
    afterwards: NotRequired[list[str]]
    """Run when everything has ended: what ends that which is no descendant, as a container is none."""
    standard: NotRequired[list[int]]
    """Inherited descriptors for its standard input, output and error, in place of the file."""
    terminal: NotRequired[bool]
    """Those are a terminal, which becomes the one that controls it."""
    journal: NotRequired[str]
    """The file that is told how the main process ended by itself, before anybody else is (`services.execution.task_journal`)."""
    user: NotRequired[LaunchUser]
    """As whom; left out: as whoever runs this."""


def main() -> int:
    commands = _Commands()
    launch: Launch = json.loads(commands.first_line())
    woken_by_children = _wake_on_child()
    prctl = _prctl()
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    # Nothing is ever written: its end is the end of the guard.
    guarded, guarding = os.pipe()
    reaper = os.fork()
    if reaper:
        os.close(guarded)
        return _guard(reaper, launch)
    code = 1
    try:
        os.close(guarding)
        prctl(_PR_SET_CHILD_SUBREAPER, 1)
        code = _reap_until_end(launch, commands, woken_by_children, guarded, prctl)
    except BaseException:  # noqa: BLE001  # there is nobody above it: it is said, and that is all
        traceback.print_exc()
    finally:
        # Not one line more of this program: it is the guard's.
        os._exit(code)


def _guard(reaper: int, launch: Launch) -> int:
    """Waits for the reaper, and does its work if that was killed. What it holds open of the task it closes."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), sys.stdin.fileno())
    for descriptor in set(launch.get("standard", ())):
        os.close(descriptor)
    while True:
        ended, status = os.waitpid(-1, 0)
        if ended == reaper:
            break
    if not os.WIFSIGNALED(status):
        return os.WEXITSTATUS(status)
    _end_children()
    run_afterwards(launch)
    return 1


def _reap_until_end(
    launch: Launch, commands: _Commands, woken_by_children: int, guarded: int, prctl: Callable[[int, int], None]
) -> int:
    """Starts the task, and returns when nothing of it is left."""
    try:
        child = _start(launch, prctl)
    except (OSError, ValueError) as error:
        _tell({"failure": str(error)})
        return 1
    _tell({"process_id": child.pid})
    asked = unguarded = False
    while (exit_code := _reap(child)) is None:
        sources = [
            woken_by_children,
            *([] if unguarded else [guarded]),
            *([] if commands.ended else [sys.stdin.fileno()]),
        ]
        ready, _, _ = select.select(sources, [], [])
        if woken_by_children in ready:
            os.read(woken_by_children, 4096)
            # If it has ended by itself, then not because it was asked to in the same moment.
            continue
        if guarded in ready:
            asked = unguarded = True
            _signal_group(child.pid, signal.SIGKILL)
        if sys.stdin.fileno() in ready:
            for command in commands.next_lines():
                asked = True
                _signal_group(child.pid, signal.SIGTERM if command == b"terminate" else signal.SIGKILL)
    if not asked:
        _note_end(launch, exit_code)
    _signal_group(child.pid, signal.SIGKILL)
    _end_children()
    run_afterwards(launch)
    if not unguarded:
        _tell({"exit_code": exit_code})
    return 0


def _note_end(launch: Launch, exit_code: int) -> None:
    """For the case that nobody is left to report it."""
    journal = launch.get("journal")
    if not journal:
        return
    # On a line of its own, also after a write that broke off.
    line = "\n" + json.dumps({"exit_code": exit_code, "ended_real_s": time.time()}) + "\n"
    try:
        with Path(journal).open("ab") as file:
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        # The runner will report it, and its journal say what it can.
        return


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

    def begin() -> None:
        _go_first()
        if launch.get("terminal"):
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        user = launch.get("user")
        if user is not None:
            os.setgroups(user["groups"])
            os.setgid(user["group"])
            os.setuid(user["user"])
        # After that: the kernel forgets it with every change of user.
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != reaper:
            os._exit(1)

    with _standard(launch) as (reading, writing, complaining):
        return subprocess.Popen(
            launch["arguments"],
            env=launch["environment"],
            cwd=launch["directory"],
            stdin=reading,
            stdout=writing,
            stderr=complaining,
            start_new_session=True,
            umask=launch.get("umask", -1),
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
    ended = _collect()
    if child.pid in ended:
        child.returncode = os.waitstatus_to_exitcode(ended[child.pid])
    return child.returncode


def _collect() -> dict[int, int]:
    """Takes note of every child that has ended: of each how."""
    ended: dict[int, int] = {}
    while True:
        try:
            process_id, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if process_id == 0:
            return ended
        ended[process_id] = status


def _end_children() -> None:
    """Kills what the main process left behind; returns when nothing is left.

    Orphans become children of this process, so killing children again and again reaches every descendant. A process
    that cannot be killed yet is waited for: what it holds is still in use.
    """
    wait_s = 0.001
    while True:
        _collect()
        left = _children()
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
