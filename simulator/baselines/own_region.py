"""A queue per region: users choose their region themselves, as in public clouds (MAST §1).

Rule: a workload runs only in the region that its trace names, and in the first eligible region when it names none, or
one that cannot host it. Everything else is as under `mast`.
Invariant: no workload ever runs outside of its own region.
Ignores: load; that is the point of it.

Compare it with others under the setting `trace_regions_bind: false`: otherwise they are held to those regions too.
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
class OwnRegion(RegionChoice):
    """Binds to the region that the trace names."""

    name: str = "own_region"

    def bind(self, work: Work, eligible: Sequence[int], loads: RegionLoads, rng: np.random.Generator) -> int | None:
        return work.own_region if work.own_region in eligible else eligible[0]


OWN_REGION = Policy(
    name="own_region",
    summary="MAST with a queue per region: workloads stay where their trace says (MAST §1)",
    ordering=CreditOrdering(),
    scans=True,
    eviction=SPARES_WORK,
    region_choice=OwnRegion(),
)
