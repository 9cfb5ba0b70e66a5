"""The processes of a Ray that this process has started: whether it is whole.

It works only as a whole: without its GCS it gives up after a minute, without its raylet nothing of it runs, and the raylet ends
when one of its agents does. So it is lost with the first of these two.
"""

from __future__ import annotations

from collections.abc import Sequence

import psutil

from services.runtime.part_record import PartRecords
from services.runtime.process_identity import is_halted, lives

_NAMES = ("gcs_server", "raylet")
_HALTED_LOOKS = 30
"""So many looks at a process that is halted (SIGSTOP) in between, and it counts as lost."""


class RayLost(Exception):
    """Ray cannot go on; the message says which of its processes is gone."""


class OwnRay:
    """To be asked about once a second."""

    def __init__(self, processes: Sequence[psutil.Process], parts: PartRecords) -> None:
        self._processes = {_name(process): process for process in processes}
        self._parts = parts
        self._halted_looks = 0
        for name, process in self._processes.items():
            parts.says_up(f"ray {name}", process.pid)

    @staticmethod
    def of_this_process(parts: PartRecords) -> OwnRay:
        """Of the one that this process has started."""
        return OwnRay([one for one in psutil.Process().children() if _name(one) in _NAMES], parts)

    def look(self) -> None:
        """Raises RayLost."""
        for name, process in self._processes.items():
            if not lives(process):
                raise self._lost(name, "has ended")
        halted = [name for name, process in self._processes.items() if is_halted(process)]
        self._halted_looks = self._halted_looks + 1 if halted else 0
        if self._halted_looks >= _HALTED_LOOKS:
            raise self._lost(halted[0], "is halted")

    def _lost(self, name: str, what: str) -> RayLost:
        self._parts.says_down(f"ray {name}", f"process {self._processes[name].pid} {what}")
        return RayLost(f"{name} of Ray (process {self._processes[name].pid}) {what}")


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""
