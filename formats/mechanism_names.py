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
    brought = plug_ins(ENTRY_POINT_GROUP, "placement mechanism", _is_entry, PLACEMENT_MECHANISMS)
    return (*PLACEMENT_MECHANISMS, *(mechanism.name for mechanism in brought))


def _is_entry(value: object) -> TypeGuard[Named]:
    """As far as can be seen from here: a region that is to use it would stop otherwise."""
    return isinstance(getattr(value, "name", None), str) and callable(getattr(value, "make", None))
