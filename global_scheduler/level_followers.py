"""Which workloads follow which level policy: priorities that have the same one are asked about together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from global_scheduler.knowledge import PolicyView
from global_scheduler.levels.policy import LevelPolicy


def followers(
    policies: Sequence[LevelPolicy | None], priority: NDArray[np.int8]
) -> Iterator[tuple[LevelPolicy, NDArray[np.bool_]]]:
    """Every different policy with the workloads that follow it; `policies` has one for each priority, None: none."""
    different: list[LevelPolicy] = []
    for policy in policies:
        if policy is not None and policy not in different:
            different.append(policy)
    for policy in different:
        yield policy, np.array([other == policy for other in policies])[priority]


def rows_of(view: PolicyView, chosen: NDArray[np.bool_]) -> PolicyView:
    """These workloads only; nothing is copied where they are all of them."""
    return view if chosen.all() else view.rows(chosen)
