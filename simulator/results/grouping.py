"""Rows of a table by what they have in common."""

from __future__ import annotations

import numpy as np

from simulator.results.run_record import Integers


def positions_by_group(group: Integers, groups: int) -> tuple[Integers, ...]:
    """For each group from 0 on the positions of its members, in order; members of a group below 0 are left out."""
    order = np.argsort(group, kind="stable")
    bounds = np.searchsorted(group[order], np.arange(groups + 1))
    return tuple(order[bounds[i] : bounds[i + 1]] for i in range(groups))
