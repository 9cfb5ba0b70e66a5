"""The largest of many names, and one place for all others: what a picture has room for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from simulator.report.panel import OTHERS


def largest_and_others(names: Iterable[str], most: int = 12) -> tuple[tuple[str, ...], Callable[[str], int]]:
    """The names that occur most, by how often and then by name; and a function from any name to its place there.

    Where there are more than `most`, the last place is that of all others together.
    """
    counts = Counter(str(name) for name in names)
    ordered = sorted(counts, key=lambda name: (-counts[name], name))
    shown = ordered if len(ordered) <= most else [*ordered[: most - 1], OTHERS]
    places = {name: place for place, name in enumerate(shown)}
    return tuple(shown), lambda name: places.get(name, len(shown) - 1)
