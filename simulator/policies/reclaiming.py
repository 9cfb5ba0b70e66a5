"""Plug-in point: reclaiming. Which loaned machines go back when the inference clusters want some of them (Lyra §4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np


@dataclass(frozen=True, slots=True)
class LoanedMachine:
    """A machine on loan: what would have to leave it."""

    machine: int
    """Its place in the fleet: unique, and the last key of every sort."""
    workloads: tuple[int, ...]
    """Indices of the workloads that run there, ascending."""
    gpus_in_use: int


class ReclaimingPolicy(Protocol):
    """Chooses the machines to return."""

    @property
    def name(self) -> str: ...

    def choose(self, loaned: Sequence[LoanedMachine], count: int, rng: np.random.Generator) -> tuple[int, ...]:
        """The places of `count` of the loaned machines (there are at least so many), each once."""
        ...


@dataclass(frozen=True, slots=True)
class FewestWorkloadsFirst:
    """Rule: the machines that host the fewest workloads go back first (Lyra §7.1, "Smallest (Job) Count First")."""

    name: str = "fewest_workloads"

    def choose(self, loaned: Sequence[LoanedMachine], count: int, rng: np.random.Generator) -> tuple[int, ...]:
        ranked = sorted(loaned, key=lambda machine: (len(machine.workloads), machine.gpus_in_use, machine.machine))
        return tuple(machine.machine for machine in ranked[:count])
