"""Run times that are estimated wrongly (Lyra §7.4, Table 9): for policies that must know them, not for the work itself."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LYRA_MARGIN = 0.25
"""Lyra, Table 9: "each incorrect prediction has a random error margin within 25%"."""


def estimate_factors(
    workloads: int, wrong_share: float, rng: np.random.Generator, margin: float = LYRA_MARGIN
) -> NDArray[np.float64]:
    """[workload] what its run time is to be multiplied by to get its estimate.

    So many of them, rounded, are wrong, any of them as likely as any other; a wrong one is anything from 1 - margin to
    1 + margin, the others are 1. Raises ValueError for a share that is none, or a margin that is not from 0 to below 1.
    """
    if not 0.0 <= wrong_share <= 1.0:
        raise ValueError(f"the share of wrong estimates is from 0 to 1, not {wrong_share}")
    if not 0.0 <= margin < 1.0:
        raise ValueError(f"the margin of wrong estimates is from 0 to below 1, not {margin}")
    factors = np.ones(workloads)
    wrong = rng.choice(workloads, size=round(wrong_share * workloads), replace=False)
    factors[wrong] = rng.uniform(1.0 - margin, 1.0 + margin, len(wrong))
    return factors
