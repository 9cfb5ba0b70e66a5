"""Synergy-GREEDY (§3.3): first fit by best demands.

Rule: the next job of the scheduling policy goes to the first machine that has its best demand in every resource; a job
that fits nowhere is skipped in this round.

Invariant: none; GPUs stay idle where CPUs or memory run out first, which is what Synergy-TUNE is for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cluster_manager.tuning.mechanism import JobAllocation, MachineRoom, RunnableJob
from cluster_manager.tuning.static_demands import StaticDemands, first_fit


@dataclass(frozen=True, slots=True)
class Greedy(StaticDemands):
    """See the module."""

    name: str = "greedy"

    def allocate(self, jobs: Sequence[RunnableJob], machines: Sequence[MachineRoom]) -> list[JobAllocation | None]:
        return first_fit(jobs, machines, range(len(jobs)))
