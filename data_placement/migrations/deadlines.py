"""When copies should be complete: soft deadlines, the earlier the higher the priority of those who need them (MAST §3.5)."""

from __future__ import annotations

from types import MappingProxyType

FIRST_ON_DEMAND_S = 1_800.0
"""Of copies that workloads wait for, at the highest priority; each lower one has twice the time of the one above it."""
PLANNED_S = MappingProxyType({0: 4 * 3_600.0, 1: 12 * 3_600.0})
"""Of moves of a plan, by the highest priority of the table's readers; those of others go in the background."""


def on_demand_deadline_s(priority: int, now: float) -> float:
    """Of a copy for workloads of this priority (0 is the highest) that wait for it since now."""
    return now + FIRST_ON_DEMAND_S * 2.0**priority


def planned_deadline_s(priority: int | None, now: float) -> float | None:
    """Of a move of a plan that is applied now; None: in the background. `priority` None: nobody reads the table."""
    within_s = None if priority is None else PLANNED_S.get(priority)
    return None if within_s is None else now + within_s
