"""Finish-time fairness: those go first that sharing has slowed down the most (Themis, NSDI 2020, §3; "FTF" of Synergy §2.2).

Rule: a workload's rho is the time from its submission to its end if it ran from now on, over the time that it would take
alone; the greatest rho goes first.
Invariant: of two that wait and would both find room, the one of the greater rho starts first.
Ignores: how many GPUs a workload takes, and tenants: each workload is an application of its own. None is evicted for another,
where Themis takes GPUs back when their lease ends.
Fails when: there is neither an oracle nor an estimate.
"""

from __future__ import annotations

from dataclasses import dataclass

from global_scheduler.arithmetic import Numbers
from global_scheduler.knowledge import Knowledge
from global_scheduler.ordering.policy import OrderingInput

SHORTEST_S = 1e-3
"""A workload with less work than this counts as having so much: rho is finite."""


@dataclass(frozen=True, slots=True)
class FinishTimeFairness:
    """The greater rho, the greater the credit. It changes with time, so that it is for queues that scan passes rank."""

    name: str = "finish_time_fairness"
    needs: Knowledge = Knowledge.ORACLE

    def ordering_credit(self, queue: OrderingInput[Numbers]) -> Numbers:
        known, remaining_s = queue.known, queue.remaining_s(self.name)
        alone_s = queue.arithmetic.larger(known.attained_s + remaining_s, SHORTEST_S)
        return (queue.now - known.submitted_s + remaining_s) / alone_s
