"""The level of every workload that waits, and of every attempt that runs, under the level policy of its priority."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from domain.rank import OVER_QUOTA_LEVELS
from global_scheduler.arithmetic import Floats
from global_scheduler.knowledge import PolicyView
from global_scheduler.level_followers import followers, rows_of
from global_scheduler.levels.policy import WORST_LEVEL, LevelPolicy
from global_scheduler.policy_failed import PolicyFailed, asking, column_of

_KIND = "level"


class AssignedLevels(NamedTuple):
    """What attempts get."""

    level: NDArray[np.int16]
    next_change_s: float
    """When the first of them changes its level if all go on; infinity: never."""

    def below_within_quota(self, within_quota: NDArray[np.bool_]) -> AssignedLevels:
        """The same where a tenant has a quota at the lowest priority."""
        return self._replace(level=below_within_quota(self.level, within_quota))


def queued_levels(
    policies: Sequence[LevelPolicy | None], priority: NDArray[np.int8], queue: PolicyView
) -> NDArray[np.int16]:
    """The level of each workload that waits; `policies` has one for each priority, None: level 0.

    Raises PolicyFailed when a policy raises, or gives a level that is none, and OracleNeeded.
    """
    level = np.zeros(len(queue), np.int16)
    if not len(queue):
        return level
    for policy, chosen in followers(policies, priority):
        rows = rows_of(queue, chosen)
        with asking(policy.name, _KIND):
            level[chosen] = _checked(policy, policy.queued_levels(rows), len(rows))
    return level


def running_levels(
    policies: Sequence[LevelPolicy | None], priority: NDArray[np.int8], attempts: PolicyView
) -> AssignedLevels:
    """The level of each live attempt from `now` on. One that has not started yet is where it would be if it waited.

    Raises PolicyFailed when a policy raises, or gives a level that is none, and OracleNeeded.
    """
    level = queued_levels(policies, priority, attempts)
    next_change_s = math.inf
    if all(policy is None for policy in policies):
        return AssignedLevels(level, next_change_s)
    started = ~np.isnan(attempts.known.started_s)
    for policy, following in followers(policies, priority):
        chosen = started & following
        rows = rows_of(attempts, chosen)
        with asking(policy.name, _KIND):
            running = policy.running_levels(rows)
            level[chosen] = _checked(policy, running.level, len(rows))
            until_s = column_of(running.until_s, len(rows), policy.name, _KIND)
        next_change_s = min(next_change_s, float(until_s.min(initial=math.inf)))
    return AssignedLevels(level, next_change_s)


def below_within_quota(level: NDArray[np.int16], within_quota: NDArray[np.bool_]) -> NDArray[np.int16]:
    """The levels where a tenant has a quota at the lowest priority: what is over quota stands below all within (`domain.rank`)."""
    stands: NDArray[np.int16] = np.where(within_quota, level, level + OVER_QUOTA_LEVELS).astype(np.int16)
    return stands


def _checked(policy: LevelPolicy, level: Floats, length: int) -> Floats:
    level = column_of(level, length, policy.name, _KIND)
    if level.size and not (level.min() >= 0 and level.max() <= WORST_LEVEL and (np.floor(level) == level).all()):
        raise PolicyFailed(
            policy.name,
            _KIND,
            f"gave levels from {level.min():g} to {level.max():g}; scan passes know whole numbers from 0 to {WORST_LEVEL}",
        )
    return level
