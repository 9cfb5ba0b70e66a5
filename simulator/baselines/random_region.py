"""Early binding to a random region: what a federation is without any estimate of load (compare MAST §4.1, §5.6).

Rule: at its submission a workload is bound to one of the eligible regions, all equally likely; there it stays.
Everything else is as under `mast`.
Invariant: the same seed gives the same regions.
Ignores: how large regions are, and how loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from global_scheduler.ordering.credit import CreditOrdering
from simulator.policies.policy import SPARES_WORK, Policy
from simulator.policies.region_choice import RegionChoice, RegionLoads
from simulator.policies.work import Work


@dataclass(frozen=True, slots=True)
class AnyRegion(RegionChoice):
    """Draws the region."""

    name: str = "any_region"

    def bind(self, work: Work, eligible: Sequence[int], loads: RegionLoads, rng: np.random.Generator) -> int | None:
        return eligible[int(rng.integers(len(eligible)))]


RANDOM_REGION = Policy(
    name="random_region",
    summary="MAST with early binding to a random region",
    ordering=CreditOrdering(),
    scans=True,
    eviction=SPARES_WORK,
    region_choice=AnyRegion(),
)
