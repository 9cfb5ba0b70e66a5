"""A part of a trace: a window of time, some tenants or regions, the first so many, a random share."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from formats.trace import TraceRow


@dataclass(frozen=True, slots=True)
class Slice:
    """What is kept: rows of which all of this is true. The steps are taken in this order."""

    from_s: float | None = None
    """Submitted at this time of the trace's clock or later."""
    until_s: float | None = None
    """Submitted before this time."""
    tenants: Collection[str] = ()
    """Empty: all."""
    regions: Collection[str] = ()
    """Empty: all; else only rows that are bound to one of these."""
    share: float | None = None
    """Of what is left, so much at random: 0.1 is a tenth, rounded to whole rows."""
    count: int | None = None
    """Of what is left, the first so many."""
    rebase: bool = False
    """The clock is moved so that `from_s`, or else the first row, is at 0."""


def slice_rows(rows: Sequence[TraceRow], wanted: Slice, rng: np.random.Generator) -> tuple[TraceRow, ...]:
    """The rows that are wanted, in their order; the same seed draws the same ones. May be empty."""
    tenants, regions = frozenset(wanted.tenants), frozenset(wanted.regions)
    kept = [
        row
        for row in rows
        if (wanted.from_s is None or row.submit_s >= wanted.from_s)
        and (wanted.until_s is None or row.submit_s < wanted.until_s)
        and (not tenants or row.tenant in tenants)
        and (not regions or row.region in regions)
    ]
    if wanted.share is not None:
        places = rng.permutation(len(kept))[: round(wanted.share * len(kept))]
        kept = [kept[place] for place in sorted(places.tolist())]
    if wanted.count is not None:
        kept = kept[: wanted.count]
    if not wanted.rebase or not kept:
        return tuple(kept)
    zero_s = wanted.from_s if wanted.from_s is not None else kept[0].submit_s
    return tuple(replace(row, submit_s=row.submit_s - zero_s) for row in kept)
