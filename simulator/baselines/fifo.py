"""First in, first out, without preemption (Tiresias §5.1, §5.3; Lyra §7.1).

Rule: in the order of submission. `yarn_cs` blocks behind the first that finds no room, `fifo` lets later ones pass; both
take whole machines as far as they can. `best_effort` lets later ones pass and takes any GPUs that are idle.
Invariant: under `yarn_cs` no workload starts before an earlier submission.
Ignores: priorities, quotas, run times.
"""

from __future__ import annotations

from global_scheduler.ordering.fifo import FifoOrdering
from simulator.policies.allocation import HeadOfLine
from simulator.policies.placement import Scattered
from simulator.policies.policy import Policy

FIFO = Policy(
    name="fifo",
    summary="first in, first out; what finds no room is passed over (Lyra §7.1, Baseline)",
    ordering=FifoOrdering(),
)
YARN_CS = Policy(
    name="yarn_cs",
    summary="first in, first out, with head-of-line blocking and consolidation (Tiresias §5.1)",
    ordering=FifoOrdering(),
    allocation=HeadOfLine(),
)
BEST_EFFORT = Policy(
    name="best_effort",
    summary="first in, first out without head-of-line blocking, on any idle GPUs (Tiresias §5.3)",
    ordering=FifoOrdering(),
    placement=Scattered(),
)
