"""Multi-resource packing with static demands (Tetris, SIGCOMM 2014, §3; Synergy §5.7).

Rule: workloads ask for their best demand of CPUs and memory and hold that to their end. Of those that find room, the one of the
greatest score starts: its alignment, the inner product of what it asks for and what is free on a machine, less its
remaining work, weighed so that on average both count alike. The order of the queue decides between equals.
Invariant: whenever a workload starts, none of a greater score waits that would find room.
Ignores: priorities, quotas, tenants; that CPUs and memory are fungible, so that GPUs are idle where these run out first.
Differs from the paper: the score chooses the workload, and the planner the machine, which is the one that it fits most tightly.
"""

from __future__ import annotations

from dataclasses import dataclass

from cluster_manager.tuning.packing_demands import place_of_next
from cluster_manager.tuning.tetris_packing import TetrisPacking
from global_scheduler.ordering.fifo import FifoOrdering
from simulator.policies.allocation import QueuePass
from simulator.policies.policy import Policy


@dataclass(frozen=True, slots=True)
class GreatestAlignment:
    """The workload of the greatest score goes first."""

    name: str = "greatest_alignment"

    def allocate(self, queue_pass: QueuePass) -> None:
        queue_pass.pass_over_hopeless()
        while heads := queue_pass.heads():
            aligned = [queue_pass.alignment(work) for work in heads]
            work_left = [queue_pass.run_time_s(work) * queue_pass.size(work) for work in heads]
            queue_pass.start(heads[place_of_next(aligned, work_left)])


TETRIS_PACKING = Policy(
    name="tetris_packing",
    summary="best demands of CPUs and memory or nothing, best aligned first, with an oracle (Tetris §3, Synergy §5.7)",
    ordering=FifoOrdering(),
    allocation=GreatestAlignment(),
    tuning=TetrisPacking(),
    takes_ordering=True,
)
