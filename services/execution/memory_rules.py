"""How much memory a task may use, and which task ends when a machine has too little. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from domain.placement import TaskPlacement
from domain.resources import TaskResources, request_mebibytes

_MIB = 2**20
_GIB = 2**30


@dataclass(frozen=True, slots=True)
class TaskMemory:
    """What a task uses of its machine's memory, and what it was given."""

    name: str
    used_bytes: int
    promised_bytes: int
    started_real_s: float
    beside_bytes: int = 0
    """What commands beside the task use of that."""

    @property
    def excess_bytes(self) -> int:
        """By how much it uses more than it was given."""
        return max(0, self.used_bytes - self.promised_bytes)


def promised_bytes(resources: TaskResources, placement: TaskPlacement) -> int:
    """What the task may count on: what it has at the moment, and never less than it has asked for."""
    return max(placement.mebibytes, _asked_mebibytes(resources)) * _MIB


def asked_limit_bytes(resources: TaskResources, placement: TaskPlacement) -> int | None:
    """More than that ends the task. None where the user left memory open: nobody has said a number that it could exceed, and its
    share of the machine changes with what else runs."""
    return None if resources.memory_gib is None else promised_bytes(resources, placement)


def chosen_to_end(tasks: Sequence[TaskMemory], available_bytes: int, reserve_bytes: int) -> TaskMemory | None:
    """Who ends so that the machine keeps its reserve: who exceeds most what it was given, else who uses most; of several the one
    that started last. None while the reserve is there, or where it would not come back without all of them."""
    missing_bytes = reserve_bytes - available_bytes
    if missing_bytes <= 0 or sum(task.used_bytes for task in tasks) < missing_bytes:
        return None
    return max(tasks, key=lambda task: (task.excess_bytes, task.used_bytes, task.started_real_s, task.name))


def above_its_limit(used_bytes: int, limit: int, beside_bytes: int = 0) -> str:
    """Why a task has ended that used more than it had asked for, with what commands beside it used of that."""
    return f"out of memory: it used {_used(used_bytes, beside_bytes)}, its limit is {_gib(limit)} (--memory-gib)"


def ended_by_kernel(limit: int, *, had_commands: bool = False) -> str:
    """Why a task has ended of which the kernel killed a process at the limit of its control group, in which commands beside it
    are, too: whose process that was is not known."""
    whose = "it, or of a command that exec or run -it started beside it," if had_commands else "it"
    return f"out of memory: the kernel killed a process of {whose} at its limit of {_gib(limit)} (--memory-gib)"


def ended_for_machine(task: TaskMemory, available_bytes: int, reserve_bytes: int) -> str:
    """Why a task has ended that was chosen for its machine's sake."""
    used = _used(task.used_bytes, task.beside_bytes)
    why = (
        f"of its tasks this one exceeded most what it was given: it used {used} and has {_gib(task.promised_bytes)}"
        if task.excess_bytes
        else f"of its tasks this one used most: {used} of the {_gib(task.promised_bytes)} that it has"
    )
    left = f"{_gib(available_bytes)} left, less than its reserve of {_gib(reserve_bytes)}"
    return f"out of memory: the machine had {left}; {why}"


def killed_meanwhile(processes: int) -> str:
    """What is known when a process was killed, and the kernel has killed some of the machine meanwhile."""
    killed = "a process" if processes == 1 else f"{processes} processes"
    return f"maybe out of memory: since the task began the kernel has killed {killed} of its machine for lack of memory"


def _asked_mebibytes(resources: TaskResources) -> int:
    return request_mebibytes(resources.memory_gib or 0.0)


def _gib(amount_bytes: int) -> str:
    return f"{amount_bytes / _GIB:.3g} GiB"


def _used(used_bytes: int, beside_bytes: int) -> str:
    commands = (
        f" ({_at_least(beside_bytes)} of that in commands that exec or run -it started beside it)"
        if beside_bytes
        else ""
    )
    return _at_least(used_bytes) + commands


def _at_least(amount_bytes: int) -> str:
    """Rounded up: what is above a limit is never shown as equal to it."""
    return f"{math.ceil(amount_bytes / _GIB * 100) / 100:.4g} GiB"
