"""What a trace asks for: how many workloads, how large and long, whose, and how much at which time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from formats.trace import TraceRow

Reals = NDArray[np.float64]

HOUR_S = 3600.0
BUCKETS_S = (60.0, 600.0, HOUR_S, 6 * HOUR_S, 24 * HOUR_S, 7 * 24 * HOUR_S)
"""How fine the load is shown: the finest of these that needs no more than MOST_BUCKETS."""
MOST_BUCKETS = 200
_MOST_GROUPS = 1000
"""Tenants that a summary lists; the largest."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A distribution in numbers."""

    mean: float
    p10: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float


@dataclass(frozen=True, slots=True)
class Group:
    """What some of the workloads ask for together: those of a tenant, of a region, or of a number of GPUs."""

    name: str
    workloads: int
    gpu_hours: float


@dataclass(frozen=True, slots=True)
class LoadSeries:
    """The load over time, in buckets of equal length."""

    bucket_s: float
    from_s: tuple[float, ...]
    """Where each begins, on the trace's clock."""
    submitted: tuple[int, ...]
    """Workloads submitted in it."""
    submitted_gpus: tuple[float, ...]
    """GPU-seconds submitted in it, divided by its length: how many GPUs would be busy with what comes in."""
    wanted_gpus: tuple[float, ...]
    """GPUs in use on average if every workload ran as soon as it was submitted."""


@dataclass(frozen=True, slots=True)
class TraceSummary:
    """Figures of a trace. Spreads are of the GPU workloads; a GPU-hour is an hour of one GPU asked for."""

    workloads: int
    gpu_workloads: int
    first_submit_s: float
    last_submit_s: float
    gpu_hours: float
    offered_gpus: float
    """GPU-hours over the hours from the first to the last submission: the least GPUs that could keep up."""
    wanted_gpus_mean: float
    """In that time, if every workload ran as soon as it was submitted; so are the next two."""
    wanted_gpus_p95: float
    wanted_gpus_max: float
    gpus: Spread
    duration_s: Spread
    by_gpus: tuple[Group, ...]
    """By the power of two that the number of GPUs reaches: `1`, `2`, `3-4`, `5-8`, ...; `0` is without GPUs."""
    by_tenant: tuple[Group, ...]
    """Most GPU-hours first; the largest thousand."""
    tenants: int
    by_region: tuple[Group, ...]
    load: LoadSeries


def summarise(rows: Sequence[TraceRow]) -> TraceSummary:
    """The figures of these rows, which need not be in order. Raises ValueError when there are none."""
    if not rows:
        raise ValueError("a trace without workloads has no figures")
    submit_s = np.array([row.submit_s for row in rows], dtype=np.float64)
    duration_s = np.array([row.duration_s for row in rows], dtype=np.float64)
    gpus = np.array([row.gpus for row in rows], dtype=np.float64)
    with_gpus = gpus > 0
    first, last = float(submit_s.min()), float(submit_s.max())
    gpu_seconds = float(gpus @ duration_s)
    mean, p95, greatest = _wanted(submit_s, duration_s, gpus, last)
    tenants = _groups((row.tenant for row in rows), rows)
    by_size = {group.name: group for group in _groups((_size_class(row.gpus) for row in rows), rows)}
    return TraceSummary(
        workloads=len(rows),
        gpu_workloads=int(with_gpus.sum()),
        first_submit_s=first,
        last_submit_s=last,
        gpu_hours=gpu_seconds / HOUR_S,
        offered_gpus=gpu_seconds / (last - first) if last > first else 0.0,
        wanted_gpus_mean=mean,
        wanted_gpus_p95=p95,
        wanted_gpus_max=greatest,
        gpus=_spread(gpus[with_gpus]),
        duration_s=_spread(duration_s[with_gpus]),
        by_gpus=tuple(by_size[name] for name in sorted(by_size, key=lambda name: int(name.partition("-")[0]))),
        by_tenant=tenants[:_MOST_GROUPS],
        tenants=len(tenants),
        by_region=_groups((row.region or "" for row in rows), rows) if any(row.region for row in rows) else (),
        load=_load(submit_s, duration_s, gpus, first, last),
    )


def _spread(values: Reals) -> Spread:
    if not len(values):
        return Spread(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    p10, p50, p90, p95, p99 = (float(value) for value in np.percentile(values, [10, 50, 90, 95, 99]))
    return Spread(float(values.mean()), p10, p50, p90, p95, p99, float(values.max()))


def _groups(names: Iterable[str], rows: Sequence[TraceRow]) -> tuple[Group, ...]:
    """Most GPU-hours first."""
    counts: dict[str, int] = {}
    gpu_seconds: dict[str, float] = {}
    for name, row in zip(names, rows, strict=True):
        counts[name] = counts.get(name, 0) + 1
        gpu_seconds[name] = gpu_seconds.get(name, 0.0) + row.gpus * row.duration_s
    order = sorted(counts, key=lambda name: (-gpu_seconds[name], name))
    return tuple(Group(name, counts[name], gpu_seconds[name] / HOUR_S) for name in order)


def _size_class(gpus: int) -> str:
    """`0`, `1`, `2`, `3-4`, `5-8`, `9-16`, ..."""
    if gpus <= 2:
        return str(gpus)
    upper = 1 << (gpus - 1).bit_length()
    return f"{upper // 2 + 1}-{upper}"


def _wanted(submit_s: Reals, duration_s: Reals, gpus: Reals, last: float) -> tuple[float, float, float]:
    """Mean, 95th percentile in time, and greatest number of GPUs wanted from the first submission to `last`."""
    times = np.concatenate([submit_s, submit_s + duration_s])
    changes = np.concatenate([gpus, -gpus])
    order = np.argsort(times, kind="stable")
    times, wanted = times[order], np.cumsum(changes[order])
    # At the same moment the last change counts: what ends makes room for what begins.
    settled = np.append(times[1:] > times[:-1], True)
    times, wanted = times[settled], wanted[settled]
    inside = times <= last
    times, wanted = times[inside], wanted[inside]
    lengths = np.diff(np.append(times, max(last, float(times[-1]))))
    greatest = float(wanted.max())
    if lengths.sum() <= 0:
        return greatest, greatest, greatest
    by_height = np.argsort(wanted, kind="stable")
    reached = np.cumsum(lengths[by_height]) / lengths.sum()
    p95 = float(wanted[by_height][min(int(np.searchsorted(reached, 0.95)), len(wanted) - 1)])
    return float(wanted @ lengths / lengths.sum()), p95, greatest


def _load(submit_s: Reals, duration_s: Reals, gpus: Reals, first: float, last: float) -> LoadSeries:
    bucket_s = next((size for size in BUCKETS_S if (last - first) / size < MOST_BUCKETS - 1), BUCKETS_S[-1])
    while (last - first) / bucket_s >= MOST_BUCKETS - 1:
        bucket_s *= 2
    start = first // bucket_s * bucket_s
    count = int((last - start) // bucket_s) + 1
    edges: Reals = start + bucket_s * np.arange(count + 1, dtype=np.float64)
    bucket = np.minimum(((submit_s - start) // bucket_s).astype(np.int64), count - 1)
    submitted = np.bincount(bucket, minlength=count)
    submitted_gpus = np.bincount(bucket, weights=gpus * duration_s, minlength=count) / bucket_s
    used = _integral(submit_s, gpus, edges) - _integral(submit_s + duration_s, gpus, edges)
    return LoadSeries(
        bucket_s,
        tuple(edges[:-1].tolist()),
        tuple(int(value) for value in submitted),
        tuple(submitted_gpus.tolist()),
        tuple(np.maximum(np.diff(used) / bucket_s, 0.0).tolist()),
    )


def _integral(times: Reals, weights: Reals, until: Reals) -> Reals:
    """For each moment the sum over all earlier times of the weight, times how long ago that was."""
    order = np.argsort(times, kind="stable")
    times, weights = times[order], weights[order]
    count = np.searchsorted(times, until, side="right")
    total = np.concatenate([[0.0], np.cumsum(weights)])
    moment = np.concatenate([[0.0], np.cumsum(weights * times)])
    found: Reals = total[count] * until - moment[count]
    return found
