"""The level of every workload that waits, and of every attempt that runs, under the level policy of its priority."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from global_scheduler.arithmetic import Floats
from global_scheduler.knowledge import PolicyView
from global_scheduler.levels.policy import WORST_LEVEL, LevelPolicy


class AssignedLevels(NamedTuple):
    """What attempts get."""

    level: NDArray[np.int16]
    next_change_s: float
    """When the first of them changes its level if all go on; infinity: never."""


def queued_levels(
    policies: Sequence[LevelPolicy | None], priority: NDArray[np.int8], queue: PolicyView
) -> NDArray[np.int16]:
    """The level of each workload that waits; `policies` has one for each priority, None: level 0.

    Raises ValueError when a policy gives a level that is none.
    """
    level = np.zeros(len(queue), np.int16)
    if not len(queue):
        return level
    for number, policy in enumerate(policies):
        if policy is not None:
            chosen = priority == number
            level[chosen] = _checked(policy, policy.queued_levels(queue.rows(chosen)))
    return level


def running_levels(
    policies: Sequence[LevelPolicy | None], priority: NDArray[np.int8], attempts: PolicyView
) -> AssignedLevels:
    """The level of each live attempt from `now` on. One that has not started yet is where it would be if it waited.

    Raises ValueError when a policy gives a level that is none.
    """
    level = queued_levels(policies, priority, attempts)
    next_change_s = math.inf
    if all(policy is None for policy in policies):
        return AssignedLevels(level, next_change_s)
    started = ~np.isnan(attempts.known.started_s)
    for number, policy in enumerate(policies):
        if policy is None:
            continue
        chosen = started & (priority == number)
        running = policy.running_levels(attempts.rows(chosen))
        level[chosen] = _checked(policy, running.level)
        next_change_s = min(next_change_s, float(running.until_s.min(initial=math.inf)))
    return AssignedLevels(level, next_change_s)


def _checked(policy: LevelPolicy, level: Floats) -> Floats:
    if level.size and not (level.min() >= 0 and level.max() <= WORST_LEVEL and (np.floor(level) == level).all()):
        raise ValueError(
            f"the level policy {policy.name} gave levels from {level.min():g} to {level.max():g};"
            f" scan passes know whole numbers from 0 to {WORST_LEVEL}"
        )
    return level
