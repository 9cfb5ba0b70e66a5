"""How much memory each process of a service holds."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psutil

from services.runtime.home_processes import processes_of

_BYTES_PER_MIB = 1024 * 1024


def memory_by_process_mib(home: Path) -> dict[str, float]:
    """Resident MiB by what a process is and its id, of all processes of the home's service but PostgreSQL's own."""
    held: dict[str, float] = {}
    for process in processes_of(home):
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            words = process.cmdline()
            name = next((word for word in words if "::" in word or word.startswith("services.")), process.name())
            held[f"{name} {process.pid}"] = round(process.memory_info().rss / _BYTES_PER_MIB, 1)
    return held
