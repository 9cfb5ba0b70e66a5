"""Workloads that wait for each other, as a tree: below each those that wait for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from topmast import GraphWorkload, WorkloadGraph

SEEN = "(as above)"
_BRANCH, _LAST, _THROUGH, _NOTHING = "├── ", "└── ", "│   ", "    "


def tree_lines(graph: WorkloadGraph, asked_for: str) -> Iterator[str]:
    """One line each, from those that wait for nobody here. What stands below several is told in full below the first of them."""
    known = {one.workload: one for one in graph.workloads}
    below: dict[str, list[GraphWorkload]] = {one.workload: [] for one in graph.workloads}
    for one in graph.workloads:
        for needed in dict.fromkeys(one.needs):
            if needed in below:
                below[needed].append(one)
    seen: set[str] = set()
    # A list of what is still to be told, for a chain of a thousand is as deep.
    left = [(one, "", "") for one in reversed(graph.workloads) if not any(needed in known for needed in one.needs)]
    while left:
        one, lead, under = left.pop()
        again = one.workload in seen
        seen.add(one.workload)
        yield lead + _words(one, asked_for, known) + (f" {SEEN}" if again and below[one.workload] else "")
        if not again:
            left += _children(below[one.workload], under)


def _children(waiting: Sequence[GraphWorkload], under: str) -> list[tuple[GraphWorkload, str, str]]:
    """The last first, as they are taken from the end."""
    rows = [(one, under + _BRANCH, under + _THROUGH) for one in waiting[:-1]]
    rows += [(one, under + _LAST, under + _NOTHING) for one in waiting[-1:]]
    return rows[::-1]


def _words(one: GraphWorkload, asked_for: str, known: Mapping[str, GraphWorkload]) -> str:
    """w-2 (train) PENDING after ok:prepare; those of the graph are called by their names."""
    named = [_named(text, known) for text in one.after]
    after = f" after {', '.join(named)}" if named else ""
    mark = " <" if one.workload == asked_for else ""
    return f"{one.workload} ({one.name}) {one.state.value}{after}{mark}"


def _named(text: str, known: Mapping[str, GraphWorkload]) -> str:
    condition, _, workload = text.partition(":")
    return f"{condition}:{known[workload].name if workload in known else workload}"
