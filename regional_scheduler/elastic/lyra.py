"""Lyra's second phase (§5.2): flexible tasks go where completions come earlier by the most seconds in all.

Rule: a multiple-choice knapsack in each cluster. A job is a group; each number of tasks that it may have is an item, whose
weight is the GPUs of its flexible tasks and whose value the seconds by which it completes earlier than with its base
tasks; the capacity is what is idle or held by flexible tasks. It is solved exactly, by dynamic programming. Base tasks, the
first phase, are the queue's (shortest job first) and come before.

Beyond the paper a resize has a price: each costs its job `resize_pause_s`, and what is taken from a job must bring others
`loss_weight` times as much.

Invariant: while nothing arrives or ends, the pauses of all resizes together are no longer than the work that is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cluster_manager.elastic.allocation import MostReduction
from domain.scaling import LINEAR_SCALING, Scaling
from regional_scheduler.adjustment import AdjustableAttempt, Resize
from regional_scheduler.elastic.resizing import resizes
from regional_scheduler.region_capacity import RegionCapacity


@dataclass(frozen=True, slots=True)
class LyraElastic:
    """Run times must be known or estimated: see `candidates.expected_remaining_s`."""

    scaling: Scaling = LINEAR_SCALING
    resize_pause_s: float = 30.0
    """For how long a resize stops the work of a job. Lyra §7.5 measures 63 s for a preemption, which also stops its containers."""
    loss_weight: float = 2.0
    """How many times what a job loses counts against what others gain."""
    name: str = "lyra"

    def resize(
        self, region: RegionCapacity, attempts: Sequence[AdjustableAttempt], now: float, *, anything_waits: bool
    ) -> Sequence[Resize]:
        allocate = MostReduction(self.resize_pause_s, self.loss_weight)
        return resizes(region, attempts, self.scaling, now, allocate, redistributes=True)
