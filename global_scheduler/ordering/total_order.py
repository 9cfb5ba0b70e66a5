"""The one order: (priority, level, -ordering credit, submit time, id) (design §4)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from domain.tenant import LOWEST_PRIORITY
from global_scheduler.ordering import policy_named
from global_scheduler.ordering.policy import OrderingInput, OrderingPolicy


def ordering_credits(
    queue: OrderingInput,
    priority: NDArray[np.int8],
    ordering: tuple[str, ...],
    plugged_in: tuple[OrderingPolicy, ...] = (),
) -> NDArray[np.float64]:
    """Each entry's ordering credit under the policy of its priority; `ordering` names one policy per priority.

    Policies that are `plugged_in` are known by their names too, before those of this package.

    Raises ValueError on an unknown policy, and on a policy that gives an entry no finite number.
    """
    names = sorted(set(ordering))
    known = {policy.name: policy for policy in plugged_in}
    by_policy = {name: (known.get(name) or policy_named(name)).ordering_credit(queue) for name in names}
    for name, numbers in by_policy.items():
        if not np.isfinite(numbers).all():
            raise ValueError(f"the ordering policy {name} gave an entry no finite ordering credit")
    if len(names) == 1:
        return by_policy[names[0]]
    chosen = np.empty_like(queue.credit)
    for name, numbers in by_policy.items():
        follows = np.array([policy == name for policy in ordering])
        np.copyto(chosen, numbers, where=follows[priority])
    return chosen


def total_order(
    priority: NDArray[np.int8], level: NDArray[np.int16], ordering_credit: NDArray[np.float64]
) -> NDArray[np.int64]:
    """The positions of the entries from the head of the queue on.

    The entries stand by (submit time, id), so stable sorts keep that order among equals and no tie is left.
    """
    by_credit = np.argsort(-ordering_credit, kind="stable")
    levels = int(level.max(initial=0)) + 1
    # Few groups: 16-bit keys are sorted by radix, in linear time.
    few = (LOWEST_PRIORITY + 1) * levels <= np.iinfo(np.uint16).max
    group = (priority.astype(np.int64) * levels + level).astype(np.uint16 if few else np.int64)
    order: NDArray[np.int64] = by_credit[np.argsort(group[by_credit], kind="stable")]
    return order
