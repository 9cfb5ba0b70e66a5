"""What a reclaiming policy is: given the machines on loan and what runs on them, it says which go back, and what leaves or shrinks for it.

An attempt is preempted only if base tasks of it are on a machine that goes back. One that has nothing but flexible
tasks there goes on without them (Lyra §4, §5.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from domain.identifiers import MachineId
from domain.placement import AttemptKey
from domain.plan import Reclaim, ScaleIn, TaskName


@dataclass(frozen=True, slots=True)
class AttemptOnMachine:
    """What an attempt has to do with one machine."""

    key: AttemptKey
    gpus: int
    """That it holds on this machine."""
    machines: int
    """On how many machines its base tasks run, on loan or not."""
    flexible: tuple[TaskName, ...] = ()
    """Its flexible tasks on this machine, sorted."""
    has_base_tasks: bool = True
    """Whether any base task is on this machine: then the attempt has to be evicted for it. Without, it scales in."""
    gpus_elsewhere: int = 0
    """That it holds on other machines, on loan or not: what is vacated beyond this machine when it is evicted."""


@dataclass(frozen=True, slots=True)
class MachineOnLoan:
    """A machine that may be given back."""

    machine: MachineId
    attempts: tuple[AttemptOnMachine, ...] = ()
    """Those that would have to be evicted or scaled in for it, by key."""
    leaving: tuple[AttemptKey, ...] = ()
    """Those that are still on it, but leave anyhow, by key."""
    scaling_in: tuple[AttemptKey, ...] = ()
    """Those that go on, and are giving up what they still have on it, by key."""

    @property
    def evicted(self) -> tuple[AttemptOnMachine, ...]:
        """The attempts that would have to be evicted."""
        return tuple([attempt for attempt in self.attempts if attempt.has_base_tasks])

    @property
    def gpus_in_use(self) -> int:
        """GPUs of attempts that would have to be evicted."""
        return sum(attempt.gpus for attempt in self.evicted)

    @property
    def flexible_gpus(self) -> int:
        """GPUs of attempts that would only have to scale in."""
        return sum(attempt.gpus for attempt in self.attempts if not attempt.has_base_tasks)


class ReclaimChoice(NamedTuple):
    """What is done so that machines can go back. It is decided by the machines alone: see `reclaim_of`."""

    scale_ins: tuple[ScaleIn, ...]
    """By attempt: those that go on without their flexible tasks on the machines."""
    reclaim: Reclaim

    @property
    def actions(self) -> tuple[ScaleIn | Reclaim, ...]:
        """In the order in which they are carried out."""
        return (*self.scale_ins, self.reclaim)


class ReclaimingPolicy(Protocol):
    """Chooses the machines to give back."""

    @property
    def name(self) -> str:
        """What the registry knows it by."""
        ...

    def choose(self, on_loan: Sequence[MachineOnLoan], count: int, rng: np.random.Generator) -> ReclaimChoice:
        """`count` of the machines on loan, which come in the order of the fleet; there are at least so many.

        `reclaim_of` says what that takes: whose base tasks are there is evicted, the others there scale in.
        """
        ...


class BadReclaim(ValueError):
    """A policy's answer is none to the question that it was asked."""


def reclaim_of(machines: Sequence[MachineOnLoan]) -> ReclaimChoice:
    """These machines go back: whatever has base tasks on any of them is evicted, and flexible tasks of others go (Lyra §4, §5.3)."""
    evicted = {attempt.key for machine in machines for attempt in machine.evicted}
    released: dict[AttemptKey, list[TaskName]] = {}
    for machine in machines:
        for attempt in machine.attempts:
            if attempt.key not in evicted:
                released.setdefault(attempt.key, []).extend(attempt.flexible)
    scale_ins = tuple([ScaleIn(key, tuple(sorted(released[key]))) for key in sorted(released)])
    return ReclaimChoice(scale_ins, Reclaim(tuple([machine.machine for machine in machines]), tuple(sorted(evicted))))


def check_reclaim(policy: str, choice: ReclaimChoice, on_loan: Sequence[MachineOnLoan], count: int) -> None:
    """Raises BadReclaim unless it is `count` of these machines, each once, and exactly what is on them leaves or scales in."""
    there = {machine.machine: machine for machine in on_loan}
    reclaim = choice.reclaim
    chosen = set(reclaim.machines)
    if len(reclaim.machines) != count or len(chosen) != count or not chosen <= there.keys():
        asked = f"{policy} is asked for {count} of the machines {', '.join(there)}"
        raise BadReclaim(f"{asked} and chooses {', '.join(reclaim.machines) or 'none'}")
    needed = reclaim_of([there[machine] for machine in reclaim.machines])
    if reclaim.victims != needed.reclaim.victims:
        raise BadReclaim(
            f"{policy} gives back {', '.join(reclaim.machines)}: for that it must evict "
            f"{_listed(needed.reclaim.victims)}, but it evicts {_listed(reclaim.victims)}"
        )
    if choice.scale_ins != needed.scale_ins:
        raise BadReclaim(
            f"{policy} gives back {', '.join(reclaim.machines)}: for that it must scale in "
            f"{_tasks_listed(needed.scale_ins)}, but it scales in {_tasks_listed(choice.scale_ins)}"
        )


def _listed(attempts: Sequence[AttemptKey]) -> str:
    return ", ".join(f"attempt {key.attempt} of {key.workload}" for key in attempts) or "nothing"


def _tasks_listed(scale_ins: Sequence[ScaleIn]) -> str:
    listed = [
        f"{_listed([key])} by {', '.join(f'task {name.task} of job {name.job}' for name in released)}"
        for key, released in scale_ins
    ]
    return "; ".join(listed) or "nothing"
