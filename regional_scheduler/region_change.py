"""A region's capacity after its machines have changed: what is held stays held, everything remembered is forgotten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from domain.fleet import MachineState, Region
from domain.identifiers import MachineId
from domain.placement import order_of_holding
from regional_scheduler.region_capacity import RegionCapacity
from regional_scheduler.voluntary_releases import ReleaseSource


def capacity_after_change(
    before: RegionCapacity,
    region: Region,
    states: Mapping[MachineId, MachineState],
    sources: Sequence[ReleaseSource] = (),
) -> RegionCapacity:
    """The region as it is now, with all that `before` holds; `before` stays as it was.

    `sources` say what attempts can do without besides flexible tasks; none: as before. A new capacity has new memories: what
    found no room on the old machines may find some on these. What is kept for gangs stays kept for them. Raises InventoryError when something is held on a machine
    that is gone or has become too small.
    """
    after = RegionCapacity(region, states, rule=before.rule)
    for source in sources:
        after.voluntary.add_source(source)
    after.voluntary.go_on_from(before.voluntary)
    after.reserved.go_on_from(before.reserved)
    after.faults.go_on_from(before.faults)
    holdings = before.holdings()
    for holding in sorted(
        holdings, key=lambda one: order_of_holding(one.key, one.started_s, before.is_leaving(one.key))
    ):
        after.hold(holding)
        if before.is_leaving(holding.key):
            after.begin_eviction(holding.key)
    return after
