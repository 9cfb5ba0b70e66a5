"""Lyra (EuroSys '23): elastic jobs on a training cluster and on what inference lends, and what it is compared with (§7.1).

Rule: the first phase is shortest job first on base demands (§5.2), by run times that are known or estimated, and nothing is
preempted for it; whoever waits takes flexible tasks first. The second phase distributes what is left in rounds. Machines
that inference wants back are those that cost the fewest evictions, which is what its preemption cost is for (§4).
Invariant: but for reclaims nothing is ever evicted.
Ignores: priorities and quotas; the long may starve.
"""

from __future__ import annotations

from dataclasses import replace

from global_scheduler.ordering.fifo import FifoOrdering
from global_scheduler.ordering.shortest_remaining import ShortestRemaining
from regional_scheduler.elastic.afs import AfsElastic
from regional_scheduler.elastic.gandiva import GandivaElastic
from regional_scheduler.elastic.lyra import LyraElastic
from regional_scheduler.reclaiming.fewest_evictions import FewestEvictions
from simulator.policies.policy import Policy

LYRA = Policy(
    name="lyra",
    summary="loans and elastic jobs: shortest job first with an oracle, a knapsack of flexible tasks (Lyra §4, §5)",
    ordering=ShortestRemaining(),
    reclaiming=FewestEvictions(),
    elastic=LyraElastic(),
)
LYRA_LOANING_ONLY = replace(
    LYRA, name="lyra_loaning_only", summary="Lyra with base demands only, with an oracle (Lyra §7.3)", elastic=None
)
LYRA_ELASTIC_ONLY = replace(
    LYRA, name="lyra_elastic_only", summary="Lyra without loans, with an oracle (Lyra §7.4)", uses_loans=False
)
AFS = Policy(
    name="afs",
    summary="shortest job first with an oracle, flexible tasks by marginal throughput as AFS has it (Lyra §7.1)",
    ordering=ShortestRemaining(),
    uses_loans=False,
    elastic=AfsElastic(),
)
GANDIVA_ELASTIC = Policy(
    name="gandiva_elastic",
    summary="first in, first out; jobs grow into idle GPUs while nothing waits, as in Gandiva (Lyra §7.1)",
    ordering=FifoOrdering(),
    uses_loans=False,
    elastic=GandivaElastic(),
)
