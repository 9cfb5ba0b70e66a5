"""Priority classes: how a workload stands among those of its own tenant, below the tenant's priority (decision 089)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

LOW, NORMAL, HIGH = "low", "normal", "high"

IMPORTANCE: Final[Mapping[str, int]] = MappingProxyType({LOW: -1, NORMAL: 0, HIGH: 1})
"""Greater goes first. What every workload has that says nothing is 0."""


def importance_of(priority_class: str) -> int:
    """Of a workload that says this; "" is NORMAL. Raises KeyError for what is no class."""
    return IMPORTANCE[priority_class or NORMAL]
