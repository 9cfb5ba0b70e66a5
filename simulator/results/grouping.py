"""Rows of a table by what they have in common."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulator.results.run_record import Integers, Reals


def sums_by_group(group: Integers, values: NDArray[np.bool_ | np.integer | np.floating], groups: int) -> Reals:
    """For each group from 0 on the sum of its members' values; members of a group below 0 are left out."""
    inside = group >= 0
    return np.bincount(group[inside], weights=values[inside], minlength=groups).astype(np.float64)


def positions_by_group(group: Integers, groups: int) -> tuple[Integers, ...]:
    """For each group from 0 on the positions of its members, in order; members of a group below 0 are left out."""
    order = np.argsort(group, kind="stable")
    bounds = np.searchsorted(group[order], np.arange(groups + 1))
    return tuple(order[bounds[i] : bounds[i + 1]] for i in range(groups))
