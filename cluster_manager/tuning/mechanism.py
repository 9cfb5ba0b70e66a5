"""What is asked of a way to give CPUs and memory to jobs, and what it answers (Synergy §3.3, §4, §5.7)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from cluster_manager.tuning.demand import Demand, GpuAmounts


class MachineRoom(NamedTuple):
    """What a machine has for the jobs in question: its capacity, less what others hold there."""

    gpus: int
    millicpus: int
    mebibytes: int


class RunnableJob(NamedTuple):
    """A job that seeks a place in a round, with all its GPUs at once."""

    gpus: int
    demand: Demand
    remaining_s: float = math.inf
    """Work that is left, at the speed of the proportional share."""


class Part(NamedTuple):
    """So many of a job's GPUs are on this machine, by its position."""

    machine: int
    gpus: int


class PlacedJob(NamedTuple):
    """A job that runs, and stays on the machines and GPUs that it has."""

    parts: tuple[Part, ...]
    """Each machine once."""
    demand: Demand
    held: GpuAmounts

    @property
    def gpus(self) -> int:
        return sum(part.gpus for part in self.parts)


class JobAllocation(NamedTuple):
    """Where a job runs, and what it holds there for each GPU."""

    parts: tuple[Part, ...]
    """In the order of machines, each once."""
    amounts: GpuAmounts
    speed: float
    """1 with its proportional share."""


class TuningMechanism(Protocol):
    """One way to share out CPUs and memory. It keeps nothing between two calls."""

    @property
    def name(self) -> str: ...

    def allocate(self, jobs: Sequence[RunnableJob], machines: Sequence[MachineRoom]) -> Sequence[JobAllocation | None]:
        """A round from nothing: for each job, in the order of the scheduling policy, where it runs; None: not now.

        No machine is given out beyond its room.
        """
        ...

    def retuned(self, jobs: Sequence[PlacedJob], machines: Sequence[MachineRoom]) -> Sequence[GpuAmounts]:
        """What each job that runs holds for each GPU from now on, where what they hold now fits the machines."""
        ...

    def asks(self, demand: Demand) -> tuple[GpuAmounts, ...]:
        """With which amounts one more job seeks a place, one after the other until there is one."""
        ...

    @property
    def reverts_others(self) -> bool:
        """Whether a job that finds no place with the last of these takes it from others, down to their base."""
        ...


def total_speed(allocations: Sequence[JobAllocation | None]) -> float:
    """The throughput of a round (Synergy, Expression 1): the speeds of all jobs that run."""
    return math.fsum(allocation.speed for allocation in allocations if allocation is not None)
