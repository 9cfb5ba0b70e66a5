"""What to drain before a fleet can be applied without the machines on which something is."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

_MOST_NAMES = 8


def names_to_drain(busy: AbstractSet[str], going: AbstractSet[str], places: Mapping[str, tuple[str, str]]) -> list[str]:
    """Names for `topmast drain` that stand for all busy ones of the machines that are going, and for none that stays: regions
    and clusters that go as a whole, then machines, each sorted; clusters instead where they would be very many.

    `places`: the region and the cluster of every machine that there is; of one that is missing nothing is known.
    """
    staying = [place for machine, place in places.items() if machine not in going]
    kept_regions, kept_clusters = {region for region, _ in staying}, {cluster for _, cluster in staying}
    named: set[tuple[int, str]] = set()
    for machine in busy:
        region, cluster = places.get(machine, ("", ""))
        if region and region not in kept_regions:
            named.add((0, region))
        elif cluster and cluster not in kept_clusters:
            named.add((1, cluster))
        else:
            named.add((2, machine))
    if len(named) > _MOST_NAMES:
        return sorted({"/".join(places[machine]) for machine in busy if machine in places})
    return [name for _, name in sorted(named)]
