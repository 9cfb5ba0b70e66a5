"""Wilcoxon's signed-rank test (1945): do the pairs differ in one direction more than chance would have it?"""

from __future__ import annotations

from math import erfc, nan, sqrt

import numpy as np

from simulator.results.run_record import Reals


def signed_rank_p(differences: Reals) -> float:
    """The two-sided p-value by the normal approximation, corrected for ties and continuity.

    Differences of 0 are left out (Wilcoxon's way). Not a number for fewer than 10 others: too few for the
    approximation.
    """
    others = differences[differences != 0.0]
    count = len(others)
    if count < 10:
        return nan
    _, rank_of, sizes = np.unique(np.abs(others), return_inverse=True, return_counts=True)
    # Equal ones share the average of their ranks.
    ranks = (np.cumsum(sizes) - (sizes - 1) / 2)[rank_of]
    positive = float(ranks[others > 0].sum())
    mean = count * (count + 1) / 4
    ties = float((sizes.astype(np.float64) ** 3 - sizes).sum()) / 48
    deviation = sqrt(count * (count + 1) * (2 * count + 1) / 24 - ties)
    if deviation <= 0:
        return nan
    return erfc(max(0.0, abs(positive - mean) - 0.5) / deviation / sqrt(2))
