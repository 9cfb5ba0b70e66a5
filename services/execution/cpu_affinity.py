"""Keeps a running task to as many CPUs as it has, by what the operating system lets an ordinary process do: affinity."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from pathlib import Path

_PROCESSES = Path("/proc")


def limit_cpus(root: int, millicpus: int, name: str) -> None:
    """All threads of this process, and of all that it has started, run on so many CPUs from now on; those that come later
    inherit it.

    `root` is the id of a process that becomes the parent of what its descendants leave behind, `name` names the task.
    Fractions count as a whole CPU. A machine of the fleet may be emulated on a smaller one: then it is all CPUs that there
    are. Which ones depends on the name, so that tasks spread. Does nothing where the system has no affinity.
    """
    if not hasattr(os, "sched_setaffinity"):
        return
    cpus = chosen_cpus(sorted(os.sched_getaffinity(0)), millicpus, name)
    limited: set[int] = set()
    # A thread that is being limited may start another one just before: again, until no new one is found.
    while new := sorted(set(_threads_below(root)) - limited):
        for thread in new:
            try:
                os.sched_setaffinity(thread, cpus)
            except (OSError, ValueError):
                # It has ended meanwhile, or its id is another process's by now: then it is not ours to limit.
                continue
        limited.update(new)


def chosen_cpus(present: list[int], millicpus: int, name: str) -> list[int]:
    """As many of the CPUs as that is, at least one and at most all, from a place on that the name decides."""
    count = min(len(present), max(1, -(-millicpus // 1000)))
    first = zlib.crc32(name.encode()) % len(present)
    return sorted((present + present)[first : first + count])


def _threads_below(root: int) -> Iterator[int]:
    """The threads of the process and of all its descendants that there are now."""
    children: dict[int, list[int]] = {}
    for process in _PROCESSES.iterdir():
        if not process.name.isdigit():
            continue
        try:
            # After the name in brackets, which may hold anything: state, parent.
            fields = (process / "stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(process.name))
    waiting = [root]
    while waiting:
        process_id = waiting.pop()
        waiting += children.get(process_id, [])
        try:
            yield from [int(thread.name) for thread in (_PROCESSES / str(process_id) / "task").iterdir()]
        except OSError:
            continue
