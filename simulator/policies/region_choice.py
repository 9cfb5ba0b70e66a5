"""Plug-in point: the choice of a region. Late binding leaves it to the auction; early binding decides at submission."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from simulator.policies.work import Work


@dataclass(frozen=True, slots=True, eq=False)
class RegionLoads:
    """One element for each region; of the GPU model that the workload asks for, of all when it takes any."""

    supply_gpus: NDArray[np.int64]
    """That there are, whatever state their machines are in."""
    demand_gpus: NDArray[np.int64]
    """Of the workloads that are bound to the region and have not ended; one that takes any model asks for all of them in
    proportion."""


class RegionChoice(Protocol):
    """Binds a workload to a region when it is submitted, or leaves it to the auctions."""

    @property
    def name(self) -> str: ...

    @property
    def load_age_s(self) -> float:
        """Loads are made known at multiples of this, so that what it is given is up to so old; 0: they are exact."""
        return 0.0

    def bind(self, work: Work, eligible: Sequence[int], loads: RegionLoads, rng: np.random.Generator) -> int | None:
        """One of the `eligible` regions (positions, ascending, at least one), for good; None: late binding."""
        ...


@dataclass(frozen=True, slots=True)
class LateBinding(RegionChoice):
    """Rule: the auction decides when there is room, and not before (MAST §4.1)."""

    name: str = "auction"

    def bind(self, work: Work, eligible: Sequence[int], loads: RegionLoads, rng: np.random.Generator) -> int | None:
        return None
