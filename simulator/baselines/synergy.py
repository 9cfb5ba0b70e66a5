"""Synergy (OSDI 2022): CPUs and memory where they help, under any order of the queue (§2.2).

Rule: which workloads run is the order's choice by their GPUs alone. `synergy_proportional` gives each the CPUs and the memory
that its GPUs come with (§2, the baseline).
Invariant: GPUs are never idle for lack of CPUs or memory, where workloads leave them open.
Ignores: priorities, quotas.
"""

from __future__ import annotations

from global_scheduler.ordering.fifo import FifoOrdering
from simulator.policies.policy import Policy

SYNERGY_PROPORTIONAL = Policy(
    name="synergy_proportional",
    summary="proportional shares of CPUs and memory, in a chosen order (Synergy §2)",
    ordering=FifoOrdering(),
    takes_ordering=True,
)
