"""Gandiva's elasticity as Lyra compares with it (§7.1): jobs grow while there is idle capacity and nothing waits.

Rule: those that run longest grow first, into what nobody holds. What has grown shrinks only for what waits, which is the
planner's to decide (design §4: flexible tasks are the first capacity that counts as available).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cluster_manager.elastic.allocation import opportunistic_growth
from domain.scaling import LINEAR_SCALING
from regional_scheduler.adjustment import AdjustableAttempt, Resize
from regional_scheduler.elastic.resizing import resizes
from regional_scheduler.region_capacity import RegionCapacity


@dataclass(frozen=True, slots=True)
class GandivaElastic:
    """Needs to know nothing of run times."""

    name: str = "gandiva_elastic"

    def resize(
        self, region: RegionCapacity, attempts: Sequence[AdjustableAttempt], now: float, *, anything_waits: bool
    ) -> Sequence[Resize]:
        if anything_waits:
            return ()
        return resizes(region, attempts, LINEAR_SCALING, now, opportunistic_growth, redistributes=False)
