"""Which way a table is copied: a min-cost flow over the links between regions (networkx).

From all regions that hold it at once, directly or over a third region that has room to hold the bytes in between. What
a link carries within a time is a capacity; the time is doubled until all bytes arrive. Of all flows that arrive in time
the one over the fewest links is the best, then the one over the fastest.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import networkx as nx

from data_placement.links import Links
from data_placement.migrations.migration import RoutePart
from data_placement.migrations.storage import room
from domain.identifiers import RegionId

LEAST_TIME_S = 60.0
"""Nothing is gained by spreading a copy over several links that one carries within this time."""
MOST_DOUBLINGS = 200
_COST_OF_LINK = 2**20
"""Of a byte over any link; the slowest one costs as much again, so that a way over a third region never costs less than a
direct one."""
_Node: TypeAlias = tuple[str, str]
_START: _Node = ("start", "")
_END: _Node = ("end", "")


@dataclass(frozen=True, slots=True)
class NoRoute(Exception):
    """A sentence that says why there is none."""

    sentence: str

    def __str__(self) -> str:
        return self.sentence


def route(
    size_bytes: int,
    holders: Sequence[RegionId],
    target: RegionId,
    regions: Iterable[RegionId],
    links: Links,
    free: Mapping[RegionId, float],
    committed: Mapping[tuple[RegionId, RegionId], float] | None = None,
    *,
    away: Collection[RegionId] = (),
) -> tuple[RoutePart, ...]:
    """The ways and how many bytes go each of them, in the order of their paths; the bytes add up to the size.

    `free` limits what regions on the way may hold; `committed` are bytes that are still to go over a link for others;
    `away` are regions that cannot be read at the moment. Raises NoRoute when no link with any bandwidth leads there.
    """
    sources = sorted({holder for holder in holders if holder != target and holder not in away})
    if not sources:
        raise NoRoute(f"no region can give a complete copy to {target}: none holds one that can be read")
    between = [region for region in sorted({*regions}) if region not in {*sources, target, *away}]
    committed = committed or {}
    usable = _usable_links(sources, between, target, links)
    if size_bytes == 0:
        return (RoutePart(_least_path(sources, between, target, usable), 0),)
    _least_path(sources, between, target, usable)
    time_s = LEAST_TIME_S
    for _ in range(MOST_DOUBLINGS):
        graph = _graph(size_bytes, sources, between, target, usable, free, committed, time_s)
        if nx.maximum_flow_value(graph, _START, _END) >= size_bytes:
            return _parts(nx.min_cost_flow(graph), sources, between, target)
        time_s *= 2
    raise NoRoute(f"the regions between {', '.join(sources)} and {target} have no room for what would go over them")


def seconds_of(parts: Iterable[RoutePart], links: Links) -> float:
    """How long it takes at least: parts go side by side, the slowest link of a path sets its speed."""
    return max(
        (part.bytes / min(links.rate(*link) for link in part.links) if part.bytes else 0.0 for part in parts),
        default=0.0,
    )


def _usable_links(
    sources: Sequence[RegionId], between: Sequence[RegionId], target: RegionId, links: Links
) -> dict[tuple[RegionId, RegionId], float]:
    """Of the links of which a path can be made those with any bandwidth."""
    pairs = [
        *((source, target) for source in sources),
        *((source, region) for source in sources for region in between),
        *((region, target) for region in between),
    ]
    return {pair: links.rate(*pair) for pair in pairs if links.rate(*pair) > 0}


def _least_path(
    sources: Sequence[RegionId],
    between: Sequence[RegionId],
    target: RegionId,
    usable: Mapping[tuple[RegionId, RegionId], float],
) -> tuple[RegionId, ...]:
    """The first path that there is, direct ones before others; raises NoRoute when there is none."""
    for source in sources:
        if (source, target) in usable:
            return (source, target)
    for source in sources:
        for region in between:
            if (source, region) in usable and (region, target) in usable:
                return (source, region, target)
    raise NoRoute(
        f"no link with any bandwidth leads from {', '.join(sources)} to {target}, neither directly nor over another region"
    )


def _graph(
    size_bytes: int,
    sources: Sequence[RegionId],
    between: Sequence[RegionId],
    target: RegionId,
    usable: Mapping[tuple[RegionId, RegionId], float],
    free: Mapping[RegionId, float],
    committed: Mapping[tuple[RegionId, RegionId], float],
    time_s: float,
) -> nx.DiGraph[_Node]:
    """What can flow within the time. A region in between is two nodes: what passes from one to the other it must hold."""
    graph: nx.DiGraph[_Node] = nx.DiGraph()
    graph.add_node(_START, demand=-size_bytes)
    graph.add_node(_END, demand=size_bytes)
    for source in sources:
        graph.add_edge(_START, ("holds", source), capacity=size_bytes, weight=0)
    for region in between:
        held = math.floor(min(size_bytes, max(0.0, room(free, region))))
        graph.add_edge(("in", region), ("out", region), capacity=held, weight=0)
    slowest = min(usable.values())
    for (source, end), rate in usable.items():
        left = rate * time_s - committed.get((source, end), 0.0)
        start_node: _Node = ("out", source) if source in between else ("holds", source)
        end_node: _Node = _END if end == target else ("in", end)
        capacity = math.floor(min(size_bytes, max(0.0, left)))
        weight = _COST_OF_LINK + math.ceil(_COST_OF_LINK * slowest / rate)
        graph.add_edge(start_node, end_node, capacity=capacity, weight=weight)
    return graph


def _parts(
    flow: Mapping[_Node, Mapping[_Node, int]],
    sources: Sequence[RegionId],
    between: Sequence[RegionId],
    target: RegionId,
) -> tuple[RoutePart, ...]:
    """The flow cut into paths."""
    parts: list[RoutePart] = []
    onward = {region: flow.get(("out", region), {}).get(_END, 0) for region in between}
    for source in sources:
        gives = flow[("holds", source)]
        if gives.get(_END, 0):
            parts.append(RoutePart((source, target), gives[_END]))
        for region in between:
            over = min(gives.get(("in", region), 0), onward[region])
            if over:
                onward[region] -= over
                parts.append(RoutePart((source, region, target), over))
    return tuple(sorted(parts, key=lambda part: part.path))
