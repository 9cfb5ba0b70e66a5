"""Synergy (OSDI 2022): CPUs and memory where they help, under any order of the queue (§2.2).

Rule: which workloads run is the order's choice. `synergy_proportional` gives each the CPUs and the memory that its GPUs come
with (§2, the baseline). `synergy_greedy` gives each its best demand, and passes over those for which no machine has all of
it (§3.3). `synergy_tune` starts each with its best demand where that is idle, else with less, down to its proportional share,
which others give back where they hold more than theirs; and tunes what runs in every round (§4.2). `synergy_opt` does as
`synergy_tune`, and tunes by an exact program (§4.1).
Invariant: but for `synergy_greedy` GPUs are never idle for lack of CPUs or memory; none is slower than with its proportional
share (I7).
Ignores: priorities, quotas. Workloads without a sensitivity profile hold their proportional share.
Differs from the paper: a job stays on its machines until it ends or is evicted, where Synergy may move every job in every round.
"""

from __future__ import annotations

from cluster_manager.tuning.greedy import Greedy
from cluster_manager.tuning.opt import Opt
from cluster_manager.tuning.tune import Tune
from global_scheduler.ordering.fifo import FifoOrdering
from simulator.policies.policy import Policy

SYNERGY_PROPORTIONAL = Policy(
    name="synergy_proportional",
    summary="proportional shares of CPUs and memory, in a chosen order (Synergy §2)",
    ordering=FifoOrdering(),
    takes_ordering=True,
)
SYNERGY_GREEDY = Policy(
    name="synergy_greedy",
    summary="best demands of CPUs and memory or nothing, in a chosen order (Synergy §3.3)",
    ordering=FifoOrdering(),
    tuning=Greedy(),
    takes_ordering=True,
)
SYNERGY_TUNE = Policy(
    name="synergy_tune",
    summary="CPUs and memory tuned by sensitivity, none below its share, in a chosen order (Synergy §4.2)",
    ordering=FifoOrdering(),
    tuning=Tune(),
    takes_ordering=True,
)
SYNERGY_OPT = Policy(
    name="synergy_opt",
    summary="CPUs and memory tuned by an exact program, in a chosen order (Synergy §4.1)",
    ordering=FifoOrdering(),
    tuning=Opt(),
    takes_ordering=True,
)
