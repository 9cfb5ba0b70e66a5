"""How much memory processes hold, and how much the machine has left, as Linux tells it.

Counted is what cannot be taken back from a process without its doing: anonymous and shared memory. Pages of files are the
kernel's to drop. What is in the swap is not in the memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

PROCESSES = Path("/proc")
MEMORY_OF_MACHINE = PROCESSES / "meminfo"
_VIRTUAL_MEMORY = PROCESSES / "vmstat"
_KIB = 1024


@dataclass(frozen=True, slots=True)
class ProcessTree:
    """Who is whose parent on this machine, at one moment: read once for all tasks."""

    children: dict[int, list[int]]
    started_ticks: dict[int, int]
    """When each began, since the machine did: with it an id is a process for good."""

    @staticmethod
    def now() -> ProcessTree:
        children: dict[int, list[int]] = {}
        started: dict[int, int] = {}
        for entry in PROCESSES.iterdir():
            fields = _fields(entry) if entry.name.isdigit() else []
            if fields:
                process_id = int(entry.name)
                children.setdefault(int(fields[1]), []).append(process_id)
                started[process_id] = int(fields[19])
        return ProcessTree(children, started)

    def below(self, root: int) -> list[int]:
        """All descendants of the process, without itself."""
        found: list[int] = []
        waiting = list(self.children.get(root, ()))
        while waiting:
            process_id = waiting.pop()
            found.append(process_id)
            waiting += self.children.get(process_id, ())
        return found


def started_ticks(process_id: int) -> int | None:
    """When the process began; None when it is gone."""
    fields = _fields(PROCESSES / str(process_id))
    return int(fields[19]) if fields else None


def most_bytes(processes: Sequence[int]) -> int:
    """They hold no more than that together: cheap, and too much where they share memory, as forks do."""
    return sum(
        _sum_of(PROCESSES / str(process_id) / "status", ("RssAnon", "RssShmem")) or 0 for process_id in processes
    )


def exact_bytes(processes: Sequence[int]) -> int:
    """What they hold: of what several processes share each has its part. The kernel walks through all their pages for it. One
    that may not be looked at counts with the most that it can hold."""
    total = 0
    for process_id in processes:
        shared_out = _sum_of(PROCESSES / str(process_id) / "smaps_rollup", ("Pss_Anon", "Pss_Shmem"))
        total += most_bytes([process_id]) if shared_out is None else shared_out
    return total


def available_bytes(source: Path = MEMORY_OF_MACHINE) -> int | None:
    """What the machine can still give without swapping; None where it does not say."""
    return _sum_of(source, ("MemAvailable",))


def kernel_kills(source: Path = _VIRTUAL_MEMORY) -> int:
    """How many processes the kernel has killed for lack of memory since the machine began; 0 where it does not say."""
    try:
        lines = source.read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def _fields(process: Path) -> list[bytes]:
    """Of its `stat`, after the name in brackets, which may hold anything: state, parent, ..."""
    try:
        return (process / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return []


def _sum_of(file: Path, names: Sequence[str]) -> int | None:
    """In bytes; None when the file cannot be read, or has none of these lines."""
    try:
        found = list(_amounts(file, names))
    except OSError:
        return None
    return sum(found) if found else None


def _amounts(file: Path, names: Sequence[str]) -> Iterator[int]:
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        name, _, amount = line.partition(":")
        if name in names:
            yield int(amount.split()[0]) * _KIB
