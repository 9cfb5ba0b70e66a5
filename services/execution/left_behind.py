"""Ends on this machine what tasks have left behind: processes whose runner and reaper were killed.

They are found by their control groups, which they cannot leave, and by their environment, where there are no control groups.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from domain.identifiers import ClusterId
from domain.placement import AttemptKey
from services.execution.control_group import ControlGroup, control_groups
from services.execution.process_memory import PROCESSES, ProcessTree
from services.execution.task_mark import TaskMark, mark_of_environment, mark_of_group

LONGEST_END_S = 30.0
"""What was killed and is still there after so long hangs in the kernel."""

_PR_SET_CHILD_SUBREAPER = 36
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.002, 0.5

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class StillThere(Exception):
    """Something of a task runs on this machine that cannot be ended."""

    mark: TaskMark
    process_ids: tuple[int, ...]

    def __str__(self) -> str:
        named = ", ".join(map(str, self.process_ids))
        key = self.mark.key
        return f"attempt {key.attempt} of {key.workload} left processes that do not end ({named})"


def end_left_behind(home: Path, concerns: Callable[[TaskMark], bool], within_s: float = LONGEST_END_S) -> int:
    """Kills what is left of the tasks that this is true of, and returns how many processes that were once nothing of it is there.

    Waits for processes. Raises StillThere.
    """
    killed: set[int] = set()
    give_up_at_s = time.monotonic() + within_s
    wait_s = _FIRST_WAIT_S
    while found := _kill(home, concerns):
        for mark, process_id in found:
            if process_id not in killed:
                _log.warning("left behind", workload=mark.key.workload, attempt=mark.key.attempt, process=process_id)
        killed.update(process_id for _, process_id in found)
        if time.monotonic() >= give_up_at_s:
            mark = found[0][0]
            raise StillThere(mark, tuple(sorted(process_id for other, process_id in found if other == mark)))
        time.sleep(wait_s)
        wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
    return len(killed)


@dataclass(frozen=True, slots=True)
class OthersOfCluster:
    """True of all tasks of a cluster that belong to other attempts than these."""

    cluster: ClusterId
    kept: frozenset[AttemptKey]

    def __call__(self, mark: TaskMark) -> bool:
        return mark.cluster == self.cluster and mark.key not in self.kept


def adopt_orphans() -> None:
    """What loses its parent below this process becomes its child from now on, and no stranger's. Linux alone has that."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), 0, 0, 0)


def children() -> frozenset[int]:
    """Of this process."""
    return frozenset(ProcessTree.now().children.get(os.getpid(), ())) if PROCESSES.is_dir() else frozenset()


def end_orphans(kept: frozenset[int], within_s: float = LONGEST_END_S) -> None:
    """Kills the children of this process that are not to be kept, with all that becomes its child by that, and waits until none is left.

    Returns when that takes too long: what is left then is found by `end_left_behind` or not at all."""
    give_up_at_s = time.monotonic() + within_s
    wait_s = _FIRST_WAIT_S
    while (orphans := children() - kept) and time.monotonic() < give_up_at_s:
        for process_id in sorted(orphans):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process_id, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(process_id, os.WNOHANG)
        time.sleep(wait_s)
        wait_s = min(2 * wait_s, _LONGEST_WAIT_S)


def _kill(home: Path, concerns: Callable[[TaskMark], bool]) -> list[tuple[TaskMark, int]]:
    """Kills what there is now; returns it, sorted."""
    found: set[tuple[TaskMark, int]] = set()
    for mark, group in _groups(home):
        if concerns(mark):
            found.update((mark, process_id) for process_id in group.process_ids())
            with suppress(OSError):
                # Others may not be ended by us; then they are found again, and named.
                if group.kill():
                    group.remove()
    for mark, process_id in _processes(home):
        if concerns(mark):
            found.add((mark, process_id))
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process_id, signal.SIGKILL)
    return sorted(found)


def _groups(home: Path) -> Iterator[tuple[TaskMark, ControlGroup]]:
    for group in control_groups():
        mark = mark_of_group(group.folder.name, home)
        if mark is not None:
            yield mark, group


def _processes(home: Path) -> Iterator[tuple[TaskMark, int]]:
    """Those that say by their environment whose they are, without this one. A zombie has no environment."""
    if not PROCESSES.is_dir():
        return
    for entry in PROCESSES.iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue
        mark = mark_of_environment(environment, home)
        if mark is not None:
            yield mark, int(entry.name)
