"""Why a workload is pending, in a sentence."""

from __future__ import annotations

from collections.abc import Callable

from domain.identifiers import WorkloadId
from domain.life_cycle import QUEUED
from domain.rank import QueuePosition
from services.database.workload_reader import StoredWorkload

_NOT_RANKED = "not ranked yet: it waits for the next scan pass"
_AFTER_FAILURE = "it waits for its next try after a failure"
_OVER_QUOTA = "over its tenant's quota, so at the lowest priority"
_ITS_TURN = "waits for its turn in the auctions"


def why_pending(stored: StoredWorkload, explain: Callable[[WorkloadId], str]) -> str:
    """Empty: it is not. `explain` says why the last scan pass put it within or over its quota; empty: it did not see it."""
    if stored.state not in QUEUED:
        return ""
    if stored.held_by is not None or stored.waits_for:
        return stored.reason
    explained = explain(stored.workload)
    short = why_in_short(stored.position, stored.reason, failed=stored.not_before_s > 0)
    return f"{short} ({explained.rstrip('.')})" if explained else short


def why_in_short(position: QueuePosition | None, reason: str, *, failed: bool = False) -> str:
    """As far as the queue says it. `position` None: not ranked yet; `failed`: it has had an attempt that failed."""
    if position is None:
        return reason or (_AFTER_FAILURE if failed else _NOT_RANKED)
    return reason or (_ITS_TURN if position.within_quota else _OVER_QUOTA)
