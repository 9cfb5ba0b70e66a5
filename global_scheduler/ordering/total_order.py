"""The one order: (priority, level, -ordering credit, submit time, id) (design §4)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from domain.tenant import LOWEST_PRIORITY
from global_scheduler.ordering.policy import OrderingPolicy, QueueView
from global_scheduler.policy_failed import PolicyFailed, asking, column_of

_KIND = "ordering"
_MOST_GROUPS_BY_RADIX = int(np.iinfo(np.uint16).max)


def ordering_credits(
    queue: QueueView,
    priority: NDArray[np.int8],
    policies: Sequence[OrderingPolicy],
) -> NDArray[np.float64]:
    """Each entry's ordering credit under the policy of its priority; there is one policy per priority.

    Raises PolicyFailed on a policy that raises, or gives an entry no finite number, and OracleNeeded on one that asks for
    what is unknown.
    """
    different: list[OrderingPolicy] = []
    for policy in policies:
        if policy not in different:
            different.append(policy)
    if len(different) == 1:
        return _finite_credits(different[0], queue)
    chosen = np.empty_like(queue.credit)
    for policy in different:
        follows = np.array([other == policy for other in policies])
        np.copyto(chosen, _finite_credits(policy, queue), where=follows[priority])
    return chosen


def _finite_credits(policy: OrderingPolicy, queue: QueueView) -> NDArray[np.float64]:
    with asking(policy.name, _KIND):
        numbers = column_of(policy.ordering_credit(queue), len(queue), policy.name, _KIND)
    if not np.isfinite(numbers).all():
        raise PolicyFailed(policy.name, _KIND, "gave an entry no finite ordering credit")
    return numbers


def total_order(
    priority: NDArray[np.int8], level: NDArray[np.int16], ordering_credit: NDArray[np.float64]
) -> NDArray[np.int64]:
    """The positions of the entries from the head of the queue on.

    The entries stand by (submit time, id), so stable sorts keep that order among equals and no tie is left.
    """
    by_credit = np.argsort(-ordering_credit, kind="stable")
    levels = int(level.max(initial=0)) + 1
    # Few groups: 16-bit keys are sorted by radix, in linear time.
    few = (LOWEST_PRIORITY + 1) * levels <= _MOST_GROUPS_BY_RADIX
    group = (priority.astype(np.int64) * levels + level).astype(np.uint16 if few else np.int64)
    order: NDArray[np.int64] = by_credit[np.argsort(group[by_credit], kind="stable")]
    return order
