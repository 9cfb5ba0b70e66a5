"""Regions of a trace: its own (ITP's clusters), none, or drawn from a seed where a trace has none."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from domain.identifiers import RegionId
from formats.trace import TraceRow


def regions_of_trace(rows: Iterable[TraceRow]) -> tuple[RegionId, ...]:
    """The regions that rows are bound to, sorted."""
    return tuple(sorted({row.region for row in rows if row.region is not None}))


def anywhere(rows: Iterable[TraceRow]) -> tuple[TraceRow, ...]:
    """The rows, bound to no region: where they run is the scheduler's to choose."""
    return tuple(row if row.region is None else replace(row, region=None) for row in rows)


def assign_regions(
    rows: Sequence[TraceRow], regions: Sequence[tuple[RegionId, int]], rng: np.random.Generator
) -> tuple[TraceRow, ...]:
    """The rows, each without a region bound to one that is drawn with the regions' GPUs as weights.

    A gang goes only where there are GPUs enough for it; one that is too large everywhere goes to the largest region.
    A row takes one draw, whatever it is, so that the same seed treats the rows after it alike. Raises ValueError when
    no region has a GPU.
    """
    sizes = np.array([gpus for _, gpus in regions], dtype=np.float64)
    if not len(sizes) or sizes.sum() <= 0:
        raise ValueError("there is no region with a GPU to which rows could be assigned")
    draws = rng.random(len(rows))
    assigned = []
    for row, draw in zip(rows, draws.tolist(), strict=True):
        if row.region is not None:
            assigned.append(row)
            continue
        able = np.where(sizes >= row.gpus, sizes, 0.0)
        if not able.any():
            able = np.where(sizes == sizes.max(), sizes, 0.0)
        place = int(np.searchsorted(np.cumsum(able), draw * able.sum(), side="right"))
        assigned.append(replace(row, region=regions[min(place, len(regions) - 1)][0]))
    return tuple(assigned)


def region_gpus_for_load(
    rows: Iterable[TraceRow], load: float, gpus_per_machine: int = 1
) -> tuple[tuple[str, int], ...]:
    """How many GPUs each region of the trace needs to be offered this load, as names and sizes, sorted.

    Offered are the GPU-seconds of the region's rows, over the time from its first submission to its last. With
    `gpus_per_machine` sizes are rounded up to whole machines. Raises ValueError for a load that is not positive.
    """
    if not load > 0:
        raise ValueError(f"the load must be more than 0, not {load:g}")
    gpu_seconds: dict[str, float] = {}
    first: dict[str, float] = {}
    last: dict[str, float] = {}
    for row in rows:
        if row.region is None:
            continue
        gpu_seconds[row.region] = gpu_seconds.get(row.region, 0.0) + row.gpus * row.duration_s
        first[row.region] = min(first.get(row.region, math.inf), row.submit_s)
        last[row.region] = max(last.get(row.region, -math.inf), row.submit_s)
    return tuple(
        (name, _whole_machines(gpu_seconds[name] / max(last[name] - first[name], 1.0) / load, gpus_per_machine))
        for name in sorted(gpu_seconds)
    )


def _whole_machines(gpus: float, gpus_per_machine: int) -> int:
    return max(1, math.ceil(gpus / gpus_per_machine - 1e-9)) * gpus_per_machine
