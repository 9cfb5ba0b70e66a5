"""The placement mechanisms by the names that `fleet.yaml` gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from cluster_manager.capacity.cluster_capacity import ClusterCapacity
from cluster_manager.mechanism import PlacementMechanism
from cluster_manager.packing.mechanism import Packing
from domain.fleet import DEFAULT_MECHANISM

MakeMechanism: TypeAlias = Callable[[ClusterCapacity], PlacementMechanism]

_PACKING = Packing()

MECHANISMS: Mapping[str, MakeMechanism] = MappingProxyType({DEFAULT_MECHANISM: lambda _view: _PACKING})
"""What makes the mechanism of a cluster. The names are those of `domain.fleet.PLACEMENT_MECHANISMS`."""


def mechanism_called(
    name: str, cluster: ClusterCapacity, known: Mapping[str, MakeMechanism] = MECHANISMS
) -> PlacementMechanism:
    """The mechanism of this name for the cluster. Raises ValueError, with the names that there are, for another one."""
    if name not in known:
        there = ", ".join(sorted(known))
        raise ValueError(f"cluster {cluster.cluster}: there is no placement mechanism {name}; there is {there}")
    return known[name](cluster)
