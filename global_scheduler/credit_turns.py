"""In which turns the changes of a scan pass are stored: what is news at once, credits that have only grown with age in parts.

Rule: with the pass itself go all entries that stand elsewhere than before (another priority, level or side of the quota, never ranked,
promoted, kept back or no longer). Those that only have another credit go with it where they are few; else they follow in parts, one
at least, and further ones until there is something new to rank. First those whose credit has fallen, from the end of the queue on; then
those whose credit has grown, from its head on.

Invariant (I14): whoever is stored stands before all that are not and should stand behind it, for these have grown too, and stand no
better than they should. So the head of the queue is as decided however often the rest is left to the next pass, and whoever comes
near the head is stored. The fallen come first because they would stand before others wrongly, for as long as they are not stored.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from global_scheduler.scan_plan import ScanPlan
from global_scheduler.scan_view import StoredTuples

_LEAST_AT_ONCE = 1_000
_SHARE_AT_ONCE = 50
"""Of a long queue one entry in so many: loading and ranking it takes longer as well."""


@dataclass(frozen=True, slots=True, eq=False)
class CreditTurns:
    """Positions of changed entries, each in one of these."""

    first: NDArray[np.int64]
    """To be stored with the pass; ascending."""
    later: tuple[NDArray[np.int64], ...]
    """To be stored after it, part by part: of these the credit alone is another one."""


def credit_turns(stored: StoredTuples, plan: ScanPlan, least_at_once: int = _LEAST_AT_ONCE) -> CreditTurns:
    """The turns for what the plan changes of what is stored."""
    changed = plan.changed
    at_once = max(least_at_once, len(plan.order) // _SHARE_AT_ONCE)
    if len(changed) <= at_once:
        return CreditTurns(changed, ())
    is_news = _is_news(stored, plan)[changed]
    only_credit = changed[~is_news]
    has_grown, place = plan.credit[only_credit] > stored.credit[only_credit], plan.rank[only_credit]
    by_turn = only_credit[np.lexsort((np.where(has_grown, place, -place), has_grown))]
    later = tuple(by_turn[start : start + at_once] for start in range(0, len(by_turn), at_once))
    return CreditTurns(changed[is_news], later)


def _is_news(stored: StoredTuples, plan: ScanPlan) -> NDArray[np.bool_]:
    news = np.asarray(stored.priority != plan.priority, np.bool_)
    news |= (stored.level != plan.level) | (stored.within_quota != plan.within_quota)
    news[plan.promotions] = True
    for at_limit in (stored.at_limit, plan.at_limit):
        if at_limit is not None:
            news |= at_limit
    return news
