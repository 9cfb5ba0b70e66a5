"""The placement mechanisms by the names that `fleet.yaml` gives them: those of Topmast, and those that packages bring.

A package brings one as an entry point of the group `topmast.placement_mechanisms`: its value is a `MechanismEntry`, or a
function without parameters that makes one (docs/extending.md has a worked example).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias, TypeGuard

from cluster_manager.capacity.cluster_capacity import ClusterCapacity
from cluster_manager.cells.mechanism import Cells
from cluster_manager.guarded_mechanism import guarded
from cluster_manager.mechanism import PlacementMechanism
from cluster_manager.packing.mechanism import Packing
from domain.fleet import CELLS_MECHANISM, DEFAULT_MECHANISM
from formats.mechanism_names import ENTRY_POINT_GROUP
from formats.plug_ins import plug_ins

MakeMechanism: TypeAlias = Callable[[ClusterCapacity], PlacementMechanism]


class NoMechanism(ValueError):
    """A cluster names a mechanism that there is not, or that cannot be made for it."""


@dataclass(frozen=True, slots=True)
class MechanismEntry:
    """A way to place jobs in a cluster, as clusters choose it."""

    name: str
    """What `mechanism` of a cluster says in `fleet.yaml`."""
    summary: str
    """What it does, in a line, with its source."""
    make: MakeMechanism
    """The mechanism of one cluster, called once for each session or simulation. Clusters may share one."""


_PACKING = Packing()
PACKING = MechanismEntry(
    DEFAULT_MECHANISM,
    "best fit, consolidation where it pays, the fewest and least important victims (MAST §4.3)",
    lambda _view: _PACKING,
)
CELLS = MechanismEntry(
    CELLS_MECHANISM,
    "guaranteed jobs in the cells of their virtual cluster, others on what is idle (HiveD §3)",
    Cells,
)
BUILT_IN: tuple[MechanismEntry, ...] = (PACKING, CELLS)
"""Their names are those of `domain.fleet.PLACEMENT_MECHANISMS`."""
MECHANISMS: Mapping[str, MakeMechanism] = MappingProxyType({entry.name: entry.make for entry in BUILT_IN})


def mechanism_entries() -> tuple[MechanismEntry, ...]:
    """All that there are, by name. Raises FormatError for an entry point that brings none, or a name twice."""
    brought = plug_ins(ENTRY_POINT_GROUP, "MechanismEntry", _is_entry, [entry.name for entry in BUILT_IN])
    return tuple(sorted((*BUILT_IN, *brought), key=lambda entry: entry.name))


def _is_entry(value: object) -> TypeGuard[MechanismEntry]:
    return isinstance(value, MechanismEntry)


def mechanisms_for(names: Collection[str]) -> Mapping[str, MakeMechanism]:
    """What makes the mechanisms, among them those of these names if there are such; packages are asked if they must be."""
    if all(name in MECHANISMS for name in names):
        return MECHANISMS
    return {entry.name: entry.make for entry in mechanism_entries()}


def mechanism_called(
    name: str, cluster: ClusterCapacity, known: Mapping[str, MakeMechanism] = MECHANISMS
) -> PlacementMechanism:
    """The mechanism of this name for the cluster.

    One that a package brings is guarded. Raises NoMechanism for another name, with those that there are, and for a mechanism that cannot be made.
    """
    if name not in known:
        there = ", ".join(sorted(known))
        raise NoMechanism(
            f"cluster {cluster.cluster}: there is no placement mechanism {name}; there is {there}; install the package"
            " that brings it, or name another one in the fleet"
        )
    try:
        made = known[name](cluster)
    except Exception as error:
        # Whatever a package's own code raises.
        described = f"placement mechanism {name} cannot be made: {type(error).__name__}: {error}"
        raise NoMechanism(f"cluster {cluster.cluster}: {described}") from error
    return made if name in MECHANISMS else guarded(name, made, cluster.cluster)
