"""Promotion of the starving: which workloads that wait go back to the best level, and when the next one will.

A policy of levels that knows promotion says from when on each waiting workload is promoted; scan passes and simulations
apply it. A promoted workload begins anew: what it attained and how long it ran count from zero (Tiresias §3.2.3: "both t_J
and δ_J are reset to zero to ensure that a promoted job is not demoted right away").
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol, TypeGuard

import numpy as np
from numpy.typing import NDArray

from global_scheduler.arithmetic import Numbers
from global_scheduler.knowledge import KnownColumns, KnownWork, PolicyInput, PolicyView
from global_scheduler.level_followers import followers, rows_of
from global_scheduler.levels.policy import LevelPolicy
from global_scheduler.policy_failed import PolicyFailed, asking, column_of

_KIND = "level"


class PromotingLevels(LevelPolicy, Protocol):
    """A level policy under which the starving are promoted."""

    def promoted_from_s(self, queue: PolicyInput[Numbers]) -> Numbers:
        """From when on each of the waiting is promoted if it goes on waiting; infinity: never.

        Only for those that wait at a level which promotion makes better. The time must not depend on `now`.
        """
        ...


class Promotions(NamedTuple):
    """Decided at one moment."""

    promoted: NDArray[np.int64]
    """Positions among the waiting, ascending."""
    next_s: float
    """When the next one is to be promoted if all that remain go on waiting; infinity: never."""


def promotes(policy: LevelPolicy | None) -> TypeGuard[PromotingLevels]:
    """Whether the policy knows promotion at all."""
    return hasattr(policy, "promoted_from_s")


def promotions(policies: Sequence[LevelPolicy | None], priority: NDArray[np.int8], queue: PolicyView) -> Promotions:
    """Which are promoted at the time of the view; `policies` has one for each priority, None: level 0.

    Raises PolicyFailed when a policy raises, or gives what is no time.
    """
    none = np.zeros(0, np.int64)
    if not any(promotes(policy) for policy in policies):
        return Promotions(none, math.inf)
    from_s = np.full(len(queue), math.inf)
    for policy, chosen in followers(policies, priority):
        if not promotes(policy):
            continue
        rows = rows_of(queue, chosen)
        with asking(policy.name, _KIND):
            times_s = column_of(policy.promoted_from_s(rows), len(rows), policy.name, _KIND)
            if np.isnan(times_s).any():
                raise PolicyFailed(policy.name, _KIND, "gave no time from when on an entry is promoted")
            from_s[chosen] = times_s
    due = from_s <= queue.now
    promoted = np.flatnonzero(due) if due.any() else none
    return Promotions(promoted, float(from_s[~due].min(initial=math.inf)))


def with_promoted(known: KnownColumns, promoted: NDArray[np.int64]) -> KnownColumns:
    """What is known of the waiting once these have been promoted."""
    if not len(promoted):
        return known
    attained_gpu_s, attained_s = known.attained_gpu_s.copy(), known.attained_s.copy()
    attained_gpu_s[promoted] = 0.0
    attained_s[promoted] = 0.0
    if isinstance(known, KnownWork):
        return replace(known, attained_gpu_s=attained_gpu_s, attained_s=attained_s)
    return KnownWork(
        known.gpus,
        known.submitted_s,
        known.queued_since_s,
        attained_gpu_s,
        known.started_s,
        attained_s,
        known.first_started_s,
        known.estimates,
    )
