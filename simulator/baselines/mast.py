"""MAST, as the live service runs it (MAST §4): scan passes, quota, credit, auctions, preemption by priority.

Rule: scan passes rank the queue by <priority, credit>; in that order every workload gets the best plan of all regions.
Invariant: within-quota use never exceeds a quota (I4); only strictly worse standings are evicted (I5).
Ignores: how long workloads run.

Of the attempts of one standing those leave of which the least work is lost; `eviction.victims: published` is the paper's own
choice, the longest-running and the largest.
"""

from __future__ import annotations

from global_scheduler.ordering.credit import CreditOrdering
from simulator.policies.policy import SPARES_WORK, Policy

MAST = Policy(
    name="mast",
    summary="the service's own: quota, credit, auctions, preemption by priority (MAST §4)",
    ordering=CreditOrdering(),
    scans=True,
    eviction=SPARES_WORK,
)
