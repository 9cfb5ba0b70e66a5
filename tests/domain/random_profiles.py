"""Profiles for hypothesis: any grid, never decreasing."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from domain.sensitivity import SensitivityProfile


@st.composite
def profiles(draw: st.DrawFn, most_points: int = 5) -> SensitivityProfile:
    """A profile with at most so many points along each axis."""
    cpus = sorted(draw(st.sets(st.integers(1, 24), min_size=1, max_size=most_points)))
    memory = sorted(draw(st.sets(st.integers(1, 25), min_size=1, max_size=most_points)))
    cells = len(cpus) * len(memory)
    raw = draw(st.lists(st.integers(1, 300), min_size=cells, max_size=cells))
    grid = np.array(raw, dtype=np.float64).reshape(len(cpus), len(memory)) / 100.0
    grid = np.maximum.accumulate(np.maximum.accumulate(grid, axis=0), axis=1)
    return SensitivityProfile(
        tuple(map(float, cpus)), tuple(20.0 * each for each in memory), tuple(map(tuple, grid.tolist()))
    )
