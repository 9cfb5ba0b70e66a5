"""The placement mechanisms by the names that `fleet.yaml` gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from cluster_manager.capacity.cluster_capacity import ClusterCapacity
from cluster_manager.mechanism import PlacementMechanism
from cluster_manager.packing.mechanism import Packing

MakeMechanism: TypeAlias = Callable[[ClusterCapacity], PlacementMechanism]

MECHANISMS: Mapping[str, MakeMechanism] = MappingProxyType({"packing": lambda _view: Packing()})
"""What makes the mechanism of a cluster."""
