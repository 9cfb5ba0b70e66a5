"""Weighted max-min shares of what is left for opportunistic work (HiveD §3.3)."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush

from domain.identifiers import TenantId


def max_min_shares(
    gpus: int, demands: Mapping[TenantId, int], weights: Mapping[TenantId, float]
) -> dict[TenantId, int]:
    """How many of the GPUs each tenant gets: nobody more than it demands, and nobody less while another, for its weight,
    has more. What giving GPUs one by one to whoever has the least for its weight gives; ties go by name.

    Tenants without a weight have 1. Raises ValueError for negative numbers and weights that are not positive.
    """
    tenants = sorted(demands)
    weight = {tenant: weights.get(tenant, 1.0) for tenant in tenants}
    if gpus < 0 or any(demands[tenant] < 0 for tenant in tenants):
        raise ValueError("GPUs and demands must be 0 or more")
    if not all(weight[tenant] > 0 for tenant in tenants):
        raise ValueError("the weights of fair shares must be greater than 0")
    shares = _below_the_level(gpus, demands, weight)
    left = gpus - sum(shares.values())
    waiting = [
        ((shares[tenant] + 1) / weight[tenant], tenant) for tenant in tenants if shares[tenant] < demands[tenant]
    ]
    heapify(waiting)
    while left and waiting:
        _, tenant = heappop(waiting)
        shares[tenant] += 1
        left -= 1
        if shares[tenant] < demands[tenant]:
            heappush(waiting, ((shares[tenant] + 1) / weight[tenant], tenant))
    return shares


def _below_the_level(
    gpus: int, demands: Mapping[TenantId, int], weight: Mapping[TenantId, float]
) -> dict[TenantId, int]:
    """What everybody has for certain: a GPU below its share where the water stands at the same level for all."""
    shares = dict.fromkeys(sorted(demands), 0)
    rising = sorted((tenant for tenant in shares if demands[tenant]), key=lambda t: (demands[t] / weight[t], t))
    left, total = float(gpus), sum(weight[tenant] for tenant in rising)
    level = 0.0
    for tenant in rising:
        level = demands[tenant] / weight[tenant]
        if level * total > left:
            level = left / total
            break
        left -= demands[tenant]
        total -= weight[tenant]
    for tenant in rising:
        shares[tenant] = min(demands[tenant], max(0, int(level * weight[tenant]) - 1))
    return shares
