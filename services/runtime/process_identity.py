"""Which process is meant, and whether it lives: its id together with when it began.

When it began is counted in ticks since the machine was started where the system tells that (Linux): what is made of it by the
clock of the machine changes when somebody sets that clock.
"""

from __future__ import annotations

from dataclasses import dataclass

import psutil

from services.execution.process_memory import started_ticks

_SAME_START_S = 1.0


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process for good: ids are used again."""

    process_id: int
    started_s: float
    """By the clock of the machine, as it was then."""
    started_ticks: int | None
    """Since the machine was started; None where the system does not tell."""

    @staticmethod
    def of(process: psutil.Process) -> ProcessIdentity:
        return ProcessIdentity(process.pid, process.create_time(), started_ticks(process.pid))

    @property
    def process(self) -> psutil.Process | None:
        """The process; None when it has ended. One that has ended and whose end nobody has looked at yet (a zombie) has ended."""
        try:
            process = psutil.Process(self.process_id)
            if not lives(process):
                return None
            ticks = started_ticks(self.process_id)
            if ticks is not None and self.started_ticks is not None:
                return process if ticks == self.started_ticks else None
            return process if abs(process.create_time() - self.started_s) < _SAME_START_S else None
        except psutil.NoSuchProcess:
            return None


def lives(process: psutil.Process) -> bool:
    """Whether it has not ended; a zombie has."""
    try:
        return process.is_running() and process.status() not in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
    except psutil.NoSuchProcess:
        return False


def is_halted(process: psutil.Process) -> bool:
    """Whether it lives, but does nothing until somebody lets it go on (SIGSTOP)."""
    try:
        return process.status() in {psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP}
    except psutil.NoSuchProcess:
        return False
