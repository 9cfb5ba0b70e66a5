"""Asking an inference side how many machines it needs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from domain.identifiers import ClusterId
from domain.inference import InferenceDemand


class NoDemand(Exception):
    """The inference side does not say what it needs, or says what cannot be. The message says which."""


@dataclass(frozen=True, slots=True)
class LendingCluster:
    """What an inference side is told when it is asked."""

    cluster: ClusterId
    machines: int
    lent: int
    returning: int


class DemandSource(Protocol):
    """One inference side."""

    async def demand(self, about: LendingCluster, now: float) -> InferenceDemand:
        """What it needs now. Raises NoDemand."""
        ...

    async def close(self) -> None:
        """Lets go of what it holds."""
        ...


def checked_demand(demand: InferenceDemand, machines: int) -> InferenceDemand:
    """The same; raises NoDemand for what cannot be."""
    if demand.needed_machines < 0:
        raise NoDemand(f"it needs {demand.needed_machines} machines; that must be 0 or more")
    lends = demand.lends_machines
    if lends is not None and not 0 <= lends <= machines:
        raise NoDemand(f"it lends {lends} machines, but the cluster has {machines}; it may lend 0 to {machines}")
    within_s = demand.reclaim_within_s
    if within_s is not None and not (math.isfinite(within_s) and within_s >= 0):
        raise NoDemand(f"machines are to be back within {within_s:g} s; that must be 0 or more")
    return demand
