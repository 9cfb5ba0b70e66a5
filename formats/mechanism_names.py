"""The placement mechanisms that a fleet file may name: those of Topmast, and those that installed packages bring.

What they are, `cluster_manager.mechanisms` says: here they only have names.
"""

from __future__ import annotations

from typing import Final, TypeGuard

from domain.fleet import PLACEMENT_MECHANISMS
from formats.plug_ins import Named, plug_ins

ENTRY_POINT_GROUP: Final = "topmast.placement_mechanisms"


def mechanism_names() -> tuple[str, ...]:
    """Those of Topmast, then those of packages. Raises FormatError for an entry point that brings none, or a name twice."""
    brought = plug_ins(ENTRY_POINT_GROUP, "placement mechanism", _has_name, PLACEMENT_MECHANISMS)
    return (*PLACEMENT_MECHANISMS, *(mechanism.name for mechanism in brought))


def _has_name(value: object) -> TypeGuard[Named]:
    return isinstance(getattr(value, "name", None), str)
