"""Random (Lyra §7.1): any of the machines, drawn without regard to what runs there. To compare others with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regional_scheduler.reclaiming.policy import MachineOnLoan, ReclaimChoice, reclaim_of


@dataclass(frozen=True, slots=True)
class RandomMachines:
    """Every set of so many machines is as likely as every other."""

    name: str = "random_machines"

    def choose(self, on_loan: Sequence[MachineOnLoan], count: int, rng: np.random.Generator) -> ReclaimChoice:
        places = rng.choice(len(on_loan), size=count, replace=False)
        return reclaim_of([on_loan[place] for place in sorted(places.tolist())])
