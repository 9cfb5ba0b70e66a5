"""Fewest evictions: goes beyond Lyra's heuristic (`least_preemption_cost`), which evicts more than it must in large reclaims.

Rule: machines that are idle, or have flexible tasks only, go back first (Lyra §5.3). When they do not suffice, attempts
are evicted by a greedy search over what vacates the most machines for each eviction, tried with several measures,
from which needless evictions are then taken back (`eviction_search`). Of all machines that this vacates those go back
where the fewest GPUs of flexible tasks are lost.
Invariant: never a needless victim: without any single one of them fewer machines would be vacated than are to go back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from domain.placement import AttemptKey
from regional_scheduler.reclaiming.eviction_search import HostedAttempts, fewest_evictions
from regional_scheduler.reclaiming.policy import MachineOnLoan, ReclaimChoice, reclaim_of


@dataclass(frozen=True, slots=True)
class FewestEvictions:
    """Needs no randomness."""

    name: str = "fewest_evictions"

    def choose(self, on_loan: Sequence[MachineOnLoan], count: int, rng: np.random.Generator) -> ReclaimChoice:
        keys, hosted = hosted_attempts(on_loan)
        evicted = fewest_evictions(hosted, count)
        return vacated_by({key for key, leaves in zip(keys, evicted.tolist(), strict=True) if leaves}, on_loan, count)


def vacated_by(evicted: set[AttemptKey], on_loan: Sequence[MachineOnLoan], count: int) -> ReclaimChoice:
    """`count` of the machines that are vacated when these attempts leave, those first where the fewest flexible GPUs go."""
    ranked: list[tuple[int, int]] = []
    for place, machine in enumerate(on_loan):
        lost_gpus = 0
        for attempt in machine.attempts:
            if attempt.key not in evicted:
                if attempt.has_base_tasks:
                    break
                lost_gpus += attempt.gpus
        else:
            ranked.append((lost_gpus, place))
    ranked.sort()
    return reclaim_of([on_loan[place] for place in sorted(place for _, place in ranked[:count])])


def hosted_attempts(on_loan: Sequence[MachineOnLoan]) -> tuple[list[AttemptKey], HostedAttempts]:
    """The attempts that have base tasks on any of the machines, in the order in which they come, and which is where."""
    numbers: dict[AttemptKey, int] = {}
    gpus: list[int] = []
    attempts: list[int] = []
    machines: list[int] = []
    first_attempt = [0]
    for place, machine in enumerate(on_loan):
        for attempt in machine.attempts:
            if not attempt.has_base_tasks:
                continue
            number = numbers.setdefault(attempt.key, len(gpus))
            if number == len(gpus):
                gpus.append(attempt.gpus + attempt.gpus_elsewhere)
            attempts.append(number)
            machines.append(place)
        first_attempt.append(len(attempts))
    of_entry = np.array(attempts, np.int64)
    counts = np.bincount(of_entry, minlength=len(gpus)) if gpus else np.zeros(0, np.int64)
    hosted = HostedAttempts(
        np.array(first_attempt, np.int64),
        of_entry,
        np.concatenate((np.zeros(1, np.int64), np.cumsum(counts))),
        np.array(machines, np.int64)[np.argsort(of_entry, kind="stable")],
        np.array(gpus, np.int64),
    )
    return list(numbers), hosted
