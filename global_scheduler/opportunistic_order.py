"""Whose over-quota workloads go first where clusters are divided into cells (HiveD §3.3): weighted max-min.

Rule: what is idle goes, GPU by GPU, to the tenant that uses the least opportunistically for its weight. Which of a
tenant's workloads that is, its level and the ordering policy say. So the credit of an entry is minus what its tenant
uses for its weight once everything of the tenant up to this entry has started; starting the first of them changes no
other credit.
Invariant: within a tenant and a level, the order is that of the ordering policy.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from global_scheduler.scan_view import ScanView

GPUS_AT_LEAST = 0.01
"""Of each entry: so those without GPUs have an order, too."""


def max_min_credits(
    view: ScanView,
    running_within_quota: NDArray[np.bool_],
    within_quota: NDArray[np.bool_],
    level: NDArray[np.int16],
    credit: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Ordering credits, one per pending entry: those that are over quota are ordered between tenants, too.

    `credit` is what the ordering policies say. Entries within quota keep it; where there are over-quota ones of their
    priority and level, these come after them.
    """
    over = np.flatnonzero(~within_quota)
    if not len(over):
        return credit
    tenants, pending = view.tenants, view.pending
    use = opportunistic_gpus(view, running_within_quota)
    order = over[np.lexsort((over, -credit[over], level[over], pending.tenant[over]))]
    tenant = pending.tenant[order]
    gpus = np.maximum(np.asarray(pending.known.gpus)[order], GPUS_AT_LEAST)
    up_to = np.cumsum(gpus)
    first = np.searchsorted(tenant, tenant, "left")
    started = use[tenant] + up_to - up_to[first] + gpus[first]
    fair = credit.copy()
    fair[order] = min(0.0, float(credit[within_quota].min(initial=0.0))) - started / tenants.fair_share_weight[tenant]
    return fair


def opportunistic_gpus(view: ScanView, running_within_quota: NDArray[np.bool_]) -> NDArray[np.float64]:
    """[tenant] the GPUs of its live attempts that are over quota and stay."""
    running = view.running
    stays = ~running_within_quota & ~running.leaving
    gpus = np.asarray(running.known.gpus)[stays]
    return np.bincount(running.tenant[stays], weights=gpus, minlength=len(view.tenants.ids)).astype(np.float64)
