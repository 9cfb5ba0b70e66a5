"""Plug-in point: reclaiming. Which loaned machines go back when the inference clusters want some of them (Lyra §4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np


@dataclass(frozen=True, slots=True)
class LoanedMachine:
    """A machine on loan: what would have to leave it. Attempts that are leaving anyhow are not told."""

    machine: int
    """Its place in the fleet: unique, and the last key of every sort."""
    workloads: tuple[int, ...]
    """Indices of the workloads that run there, ascending."""
    gpus_in_use: int
    machines_of_workloads: tuple[int, ...] = ()
    """On how many machines in all, on loan or not, each of these workloads runs."""


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


@dataclass(frozen=True, slots=True)
class RandomMachines:
    """Rule: any of them, drawn without regard to what runs there (Lyra §7.1, "Random")."""

    name: str = "random_machines"

    def choose(self, loaned: Sequence[LoanedMachine], count: int, rng: np.random.Generator) -> tuple[int, ...]:
        places = rng.choice(len(loaned), size=count, replace=False)
        return tuple(loaned[place].machine for place in sorted(places.tolist()))
