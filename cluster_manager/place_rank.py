"""Which of two places in different clusters of a region is better: one rule, in plain Python and for kernels.

Rule: the parts of the score that differ between the clusters of a region, in the order of importance (design §4):
work destroyed by priority from 0 on (0 under a rule that does not go by it), evicted workloads by priority from 0 on, minus
the seconds they have been running, spread, fragmentation. Of clusters
whose best-priority victims have the same priority, one that need not look at machines of last resort wins. Ties go to
the first cluster of the fleet file.
"""

from __future__ import annotations

from collections.abc import Sequence

from cluster_manager.capacity.tables import Reals
from cluster_manager.mechanism import AffinityLevel, Place, Query
from domain.eviction import DEFAULT_RULE, EvictionRule
from domain.placement import Holding
from domain.tenant import LOWEST_PRIORITY
from domain.work_destroyed import UNITS_PER_GPU_S
from kernels.compiled import compiled_copy

# The fields of a rank, in the order of importance; of each the least is the best.
BEST_PRIORITY = 0
"""Minus the best priority of a victim; minus one worse than all when there is none."""
ON_LAST_RESORT = 1
"""1 where machines of last resort had to be considered."""
WORK = 2
"""The units of work that evicting those of priority 0 destroys; then of priority 1, and so on. 0 where no rule asks for it."""
COUNTS = WORK + LOWEST_PRIORITY + 1
"""How many victims have priority 0; then those of priority 1, and so on."""
RUNNING_S = COUNTS + LOWEST_PRIORITY + 1
"""Minus the seconds that the victims have been running."""
SPREAD = RUNNING_S + 1
"""The first that does not depend on the victims."""
FRAGMENTATION = SPREAD + 1
RANK_FIELDS = FRAGMENTATION + 1


def comes_before(rank: Sequence[float] | Reals, than: Sequence[float] | Reals, fields: int) -> bool:
    """Whether the one rank is strictly better than the other, looking at so many fields."""
    for field in range(fields):
        if rank[field] != than[field]:
            return bool(rank[field] < than[field])
    return False


rank_comes_before = compiled_copy(comes_before)


def rank_of(place: Place, now_s: float, rule: EvictionRule = DEFAULT_RULE) -> tuple[float, ...]:
    """The rank of a place where evictions are bounded by that rule."""
    victims = place.victims
    best_priority = min([victim.standing.priority for victim in victims], default=LOWEST_PRIORITY + 1)
    counts = by_priority(victims)
    ranked = *destroyed_units(victims, now_s, rule), *counts, running_s(victims, now_s)
    return (-best_priority, place.last_resort, *ranked, place.spread, place.fragmentation)


def destroyed_units(victims: Sequence[Holding], now_s: float, rule: EvictionRule) -> tuple[int, ...]:
    """The units of work that evicting them destroys, by their priority; 0 under a rule that does not go by it."""
    units = [0] * (LOWEST_PRIORITY + 1)
    if rule.spares_work:
        for victim in victims:
            units[victim.standing.priority] += victim.work_destroyed(rule.restart_cost_s, now_s)
    return tuple(units)


def destroyed_gpu_s(victims: Sequence[Holding], now_s: float, rule: EvictionRule) -> tuple[float, ...]:
    """The same in GPU-seconds."""
    return tuple([units / UNITS_PER_GPU_S for units in destroyed_units(victims, now_s, rule)])


def running_s(victims: Sequence[Holding], now_s: float) -> float:
    """Minus the seconds that the victims have been running."""
    return 0.0 - sum([max(now_s - victim.started_s, 0.0) for victim in victims])


def by_priority(victims: Sequence[Holding]) -> tuple[int, ...]:
    """The victims counted by priority."""
    counts = [0] * (LOWEST_PRIORITY + 1)
    for victim in victims:
        counts[victim.standing.priority] += 1
    return tuple(counts)


def least_spread(query: Query) -> int:
    """No place has less: one rack, and as few machines as the largest ones would do when empty."""
    if query.affinity.level is AffinityLevel.CLUSTER:
        return 0
    most = query.kind.most_on_one
    return (query.tasks + most - 1) // most - 1
