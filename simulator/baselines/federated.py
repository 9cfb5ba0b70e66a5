"""Early binding to the region of least demand over supply (MAST §5.6, "federated approach"; §4.1, Table 1 (1)).

Rule: at its submission a workload is bound to the eligible region where the GPUs that are asked for, over the GPUs that
there are, both of the model that it wants, are the least; there it stays. Everything else is as under `mast`.
Invariant: no other eligible region had a smaller demand over supply when the workload was submitted.
Ignores: whether there is room at that moment, run times, and what the workload could evict where.

The paper does not say how old the load is that its simulation goes by. `federated` knows it exactly, which no federation
does; `federated_stale` knows what was made known every five minutes.
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
class LeastLoaded(RegionChoice):
    """Binds to the region of the least demand over supply; ties go to the first."""

    name: str = "least_loaded"
    load_age_s: float = 0.0

    def bind(self, work: Work, eligible: Sequence[int], loads: RegionLoads, rng: np.random.Generator) -> int | None:
        # A workload without GPUs may be eligible where there are none of them.
        return min(
            eligible,
            key=lambda region: (float(loads.demand_gpus[region]) / max(float(loads.supply_gpus[region]), 1.0), region),
        )


FEDERATED = Policy(
    name="federated",
    summary="MAST with early binding to the region of least demand over supply (MAST §5.6)",
    ordering=CreditOrdering(),
    scans=True,
    eviction=SPARES_WORK,
    region_choice=LeastLoaded(),
)

STALE_LOAD_S = 300.0

FEDERATED_STALE = Policy(
    name="federated_stale",
    summary="federated, with load information that is up to five minutes old (MAST §5.6)",
    ordering=CreditOrdering(),
    scans=True,
    eviction=SPARES_WORK,
    region_choice=LeastLoaded(load_age_s=STALE_LOAD_S),
)
