"""window_avg of MAST's Expression 11: what each tenant held on average over the last seconds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from domain.identifiers import TenantId


@dataclass(frozen=True, slots=True)
class WindowedUse:
    """What a tenant held, averaged over the window."""

    gpus: float = 0.0
    cpus: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class UseStretches:
    """Columns: which tenant held how much over which stretch of time. Live attempts are stretches that end now."""

    tenants: Sequence[TenantId]
    start_s: ArrayLike
    end_s: ArrayLike
    gpu_seconds: ArrayLike
    cpu_seconds: ArrayLike


def window_averages(stretches: UseStretches, now: float, window_s: float) -> Mapping[TenantId, WindowedUse]:
    """The average use of every tenant named, over [now - window_s, now], sorted by tenant.

    A stretch that is only partly in the window counts for that part, as if its use had been even. The result does
    not depend on the order of the rows. Raises ValueError on columns of different length, on a stretch that ends
    before it starts and on negative use.
    """
    if not window_s > 0.0:
        raise ValueError(f"the window must be longer than 0 seconds, not {window_s}")
    start_s, end_s, gpu_seconds, cpu_seconds = (
        np.asarray(column, dtype=np.float64)
        for column in (stretches.start_s, stretches.end_s, stretches.gpu_seconds, stretches.cpu_seconds)
    )
    if any(column.shape != (len(stretches.tenants),) for column in (start_s, end_s, gpu_seconds, cpu_seconds)):
        raise ValueError("the columns of the stretches differ in length")
    length_s = end_s - start_s
    if not (length_s >= 0.0).all():
        raise ValueError("a stretch ends before it starts")
    if not ((gpu_seconds >= 0.0).all() and (cpu_seconds >= 0.0).all()):
        raise ValueError("a stretch has negative use")
    overlap_s = np.maximum(np.minimum(end_s, now) - np.maximum(start_s, now - window_s), 0.0)
    share = np.divide(overlap_s, length_s, out=np.zeros_like(overlap_s), where=length_s > 0.0)

    names = sorted(set(stretches.tenants))
    index = {name: position for position, name in enumerate(names)}
    tenant = np.fromiter((index[name] for name in stretches.tenants), dtype=np.int64, count=len(stretches.tenants))
    gpus = _exact_sums(tenant, gpu_seconds * share, len(names))
    cpus = _exact_sums(tenant, cpu_seconds * share, len(names))
    return {
        name: WindowedUse(gpus[position] / window_s, cpus[position] / window_s) for position, name in enumerate(names)
    }


def _exact_sums(group: NDArray[np.int64], values: NDArray[np.float64], groups: int) -> list[float]:
    """The sum of the values of each group, correctly rounded, so that the order of the rows cannot show."""
    by_group = np.argsort(group, kind="stable")
    ends = np.cumsum(np.bincount(group, minlength=groups))
    return [math.fsum(part.tolist()) for part in np.split(values[by_group], ends[:-1])] if groups else []
