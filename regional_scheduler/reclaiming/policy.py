"""What a reclaiming policy is: given the machines on loan and what runs on them, it says which go back and which attempts leave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from domain.identifiers import MachineId
from domain.placement import AttemptKey
from domain.plan import Reclaim


@dataclass(frozen=True, slots=True)
class AttemptOnMachine:
    """What an attempt has to do with one machine."""

    key: AttemptKey
    gpus: int
    """That it holds on this machine."""
    machines: int
    """On how many machines it runs in all, on loan or not."""


@dataclass(frozen=True, slots=True)
class MachineOnLoan:
    """A machine that may be given back."""

    machine: MachineId
    attempts: tuple[AttemptOnMachine, ...] = ()
    """Those that would have to be evicted for it, by key."""
    leaving: tuple[AttemptKey, ...] = ()
    """Those that are still on it, but leave anyhow, by key."""

    @property
    def gpus_in_use(self) -> int:
        """GPUs of attempts that would have to be evicted."""
        return sum(attempt.gpus for attempt in self.attempts)


class ReclaimingPolicy(Protocol):
    """Chooses the machines to give back."""

    @property
    def name(self) -> str:
        """What the registry knows it by."""
        ...

    def choose(self, on_loan: Sequence[MachineOnLoan], count: int, rng: np.random.Generator) -> Reclaim:
        """`count` of the machines on loan, which come in the order of the fleet; there are at least so many.

        The victims are all that would have to be evicted for it, sorted by key.
        """
        ...


class BadReclaim(ValueError):
    """A policy's answer is none to the question that it was asked."""


def reclaim_of(machines: Sequence[MachineOnLoan]) -> Reclaim:
    """These machines go back, and whatever runs on them is evicted."""
    evicted = {attempt.key for machine in machines for attempt in machine.attempts}
    return Reclaim(tuple(machine.machine for machine in machines), tuple(sorted(evicted)))


def check_reclaim(policy: str, reclaim: Reclaim, on_loan: Sequence[MachineOnLoan], count: int) -> None:
    """Raises BadReclaim unless it is `count` of these machines, each once, and exactly their attempts are evicted."""
    there = {machine.machine: machine for machine in on_loan}
    chosen = set(reclaim.machines)
    if len(reclaim.machines) != count or len(chosen) != count or not chosen <= there.keys():
        asked = f"{policy} is asked for {count} of the machines {', '.join(there)}"
        raise BadReclaim(f"{asked} and chooses {', '.join(reclaim.machines) or 'none'}")
    needed = reclaim_of([there[machine] for machine in reclaim.machines]).victims
    if reclaim.victims != needed:
        raise BadReclaim(
            f"{policy} gives back {', '.join(reclaim.machines)}: for that it must evict {_listed(needed)}, "
            f"but it evicts {_listed(reclaim.victims)}"
        )


def _listed(attempts: Sequence[AttemptKey]) -> str:
    return ", ".join(f"attempt {key.attempt} of {key.workload}" for key in attempts) or "nothing"
