"""AFS as Lyra compares with it (§7.1): one flexible task after the other to whoever gains most throughput for each GPU.

Rule: in each cluster, of what is idle or held by flexible tasks; throughput counts in times that of a job's base tasks.
Greedy, without regard to how much work is left but for ties.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cluster_manager.elastic.allocation import greatest_marginal_throughput
from domain.scaling import LINEAR_SCALING, Scaling
from regional_scheduler.adjustment import AdjustableAttempt, Resize
from regional_scheduler.elastic.resizing import resizes
from regional_scheduler.region_capacity import RegionCapacity


@dataclass(frozen=True, slots=True)
class AfsElastic:
    """Needs run times for ties only."""

    scaling: Scaling = LINEAR_SCALING
    name: str = "afs"

    def resize(
        self, region: RegionCapacity, attempts: Sequence[AdjustableAttempt], now: float, *, anything_waits: bool
    ) -> Sequence[Resize]:
        return resizes(region, attempts, self.scaling, now, greatest_marginal_throughput, redistributes=True)
