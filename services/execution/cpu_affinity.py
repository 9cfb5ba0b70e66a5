"""Keeps a running task to as many CPUs as it has, by what the operating system lets an ordinary process do: affinity.

Memory has no such limit outside of control groups: a task only learns how much of it it has.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from pathlib import Path

_PROCESSES = Path("/proc")


def limit_cpus(session: int, millicpus: int, name: str) -> None:
    """All threads of all processes in this session run on so many CPUs from now on; those they start later inherit it.

    `session` is the process id of the session's leader, `name` names the task. Fractions count as a whole CPU. A
    machine of the fleet may be emulated on a smaller one: then it is all CPUs that there are. Which ones depends on
    the name, so that tasks spread. Does nothing where the system has no affinity.
    """
    if not hasattr(os, "sched_setaffinity"):
        return
    cpus = chosen_cpus(sorted(os.sched_getaffinity(0)), millicpus, name)
    for thread in _threads_of_session(session):
        try:
            os.sched_setaffinity(thread, cpus)
        except (ProcessLookupError, PermissionError):
            # It has ended meanwhile, or its id is another process's by now: then it is not ours to limit.
            continue


def chosen_cpus(present: list[int], millicpus: int, name: str) -> list[int]:
    """As many of the CPUs as that is, at least one and at most all, from a place on that the name decides."""
    count = min(len(present), max(1, -(-millicpus // 1000)))
    first = zlib.crc32(name.encode()) % len(present)
    return sorted((present + present)[first : first + count])


def _threads_of_session(session: int) -> Iterator[int]:
    for process in _PROCESSES.iterdir():
        if not process.name.isdigit():
            continue
        try:
            # After the name in brackets, which may hold anything: state, parent, group, session.
            fields = (process / "stat").read_bytes().rpartition(b")")[2].split()
            if int(fields[3]) == session:
                yield from sorted(int(thread.name) for thread in (process / "task").iterdir())
        except OSError:
            continue
