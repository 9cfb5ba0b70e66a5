"""Which attempts may be evicted to make room for another workload, and from when on (design I5 and I15).

Rule: a newcomer may evict an attempt if its standing is strictly better, the attempt has run for the minimum run time,
and its workload has been evicted less often in the last hour than the limit says. A guaranteed attempt may be spared
from newcomers that are not guaranteed themselves (HiveD §3: opportunistic jobs never push out guaranteed ones). A
newcomer is guaranteed within its tenant's quota; an attempt is what it was when it was dispatched, as long as it lives.

The facts that only time changes are put into one number, `evictable_from_s`, when an attempt is dispatched or starts;
`may_evict` compares that with `now`. The kernels compile `may_evict` itself, PostgreSQL's guard is tested against it.

The rule is about making room only: reclaiming, lost and drained machines and cancelling are not bound by it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from domain.rank import Standing

ALWAYS_S = -math.inf
"""`evictable_from_s` of an attempt that may be evicted at any time."""
NEVER_S = math.inf
"""`evictable_from_s` of an attempt that may not be evicted at all."""

HOUR_S = 3600.0


class VictimChoice(StrEnum):
    """Which of the attempts of one standing leave for a newcomer, where not all of them must."""

    PUBLISHED = "published"
    """The longest-running first until what they hold suffices; of those the largest, so that the fewest leave (MAST §4.3)."""
    LEAST_WORK_DESTROYED = "least_work_destroyed"
    """Those of which the least work is lost: see `domain.work_destroyed`; then the fewest, then the longest-running."""


DEFAULT_RESTART_COST_S = 60.0
LEAST_RESTART_COST_S = 0.001
MOST_RESTART_COST_S = 1e6


@dataclass(frozen=True, slots=True)
class EvictionRule:
    """How far evictions are bounded, and whom they hit. The defaults bound nothing but the standing."""

    minimum_run_time_s: float = 0.0
    """An attempt is not evicted before it has run so long; one that has not started, so long after its dispatch."""
    evictions_per_workload_and_hour: int | None = None
    """A workload is evicted at most so often within any hour; None: as often as others need its place."""
    spares_guaranteed: bool = False
    """True: a newcomer that is not guaranteed (over its quota) never evicts an attempt that is, whatever their standings."""
    victims: VictimChoice = VictimChoice.PUBLISHED
    restart_cost_s: float = DEFAULT_RESTART_COST_S
    """What it costs an attempt to be evicted and start again, besides the work since its last checkpoint; all its GPUs
    stand idle for so long."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.minimum_run_time_s < math.inf:
            raise ValueError(f"minimum_run_time_s must be 0 or more and finite, not {self.minimum_run_time_s}")
        limit = self.evictions_per_workload_and_hour
        if limit is not None and limit < 0:
            raise ValueError(f"evictions_per_workload_and_hour must be 0 or more, not {limit}")
        if not LEAST_RESTART_COST_S <= self.restart_cost_s <= MOST_RESTART_COST_S:
            raise ValueError(
                f"restart_cost_s must be from {LEAST_RESTART_COST_S} to {MOST_RESTART_COST_S:g}, not {self.restart_cost_s}:"
                " no eviction is free"
            )

    @property
    def spares_work(self) -> bool:
        """Whether the work that evictions destroy decides between victims of one standing."""
        return self.victims is VictimChoice.LEAST_WORK_DESTROYED

    @property
    def waits_for_time(self) -> bool:
        """Whether an attempt may become evictable merely because time passes."""
        return self.minimum_run_time_s > 0.0 or self.evictions_per_workload_and_hour is not None


DEFAULT_RULE = EvictionRule()


class Evictor(NamedTuple):
    """What needs room."""

    standing: Standing
    guaranteed: bool


class Victim(NamedTuple):
    """A live attempt that might be evicted."""

    standing: Standing
    spared: bool
    """Whether newcomers that are not guaranteed must leave it alone: see `is_spared`."""
    evictable_from_s: float


def may_evict(newcomer: Evictor, victim: Victim, now: float) -> bool:
    """Whether the newcomer may evict the attempt at this time. Numba compiles this very function for the kernels."""
    return (
        newcomer.standing < victim.standing
        and victim.evictable_from_s <= now
        and (newcomer.guaranteed or not victim.spared)
    )


def is_spared(rule: EvictionRule, *, guaranteed: bool) -> bool:
    """Whether an attempt is left alone by newcomers that are not guaranteed."""
    return rule.spares_guaranteed and guaranteed


def evictable_from_s(
    rule: EvictionRule, dispatched_s: float, started_s: float | None, preempted_s: Sequence[float] = ()
) -> float:
    """From when on an attempt may be evicted (seconds since the epoch); ALWAYS_S when the rule does not bound that.

    `started_s` is None while it has not started. `preempted_s` says when attempts of the same workload were asked to
    leave for others, in any order; those older than an hour do not matter.
    """
    from_s = ALWAYS_S
    if rule.minimum_run_time_s > 0.0:
        since_s = dispatched_s if started_s is None else max(dispatched_s, started_s)
        from_s = since_s + rule.minimum_run_time_s
    limit = rule.evictions_per_workload_and_hour
    if limit is None or len(preempted_s) < limit:
        return from_s
    if limit == 0:
        return NEVER_S
    return max(from_s, sorted(preempted_s)[-limit] + HOUR_S)


def remembered_preemptions(rule: EvictionRule, preempted_s: Sequence[float]) -> tuple[float, ...]:
    """As many of these times as the rule ever looks at: the newest, in ascending order."""
    limit = rule.evictions_per_workload_and_hour
    return tuple(sorted(preempted_s)[-limit:]) if limit else ()
