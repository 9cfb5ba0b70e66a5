"""Orders to a cluster manager, cut to what one request takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from domain.placement import AttemptKey
from services.tiers.request_counts import GREATEST_PLANS, GREATEST_REFERENCES
from services.tiers.request_sizes import USUAL_REQUEST_BYTES
from topmast.v1 import cluster_manager_pb2


def keys_in_requests(keys: Sequence[AttemptKey]) -> Iterator[Sequence[AttemptKey]]:
    """The attempts in order, as many at a time as one request takes."""
    for first in range(0, len(keys), GREATEST_REFERENCES):
        yield keys[first : first + GREATEST_REFERENCES]


def plans_in_requests(
    plans: Sequence[cluster_manager_pb2.AttemptPlan],
) -> Iterator[Sequence[cluster_manager_pb2.AttemptPlan]]:
    """The plans in order, as many at a time as one request takes. A request takes more bytes than are put into one here, for
    the sake of a single large plan."""
    some: list[cluster_manager_pb2.AttemptPlan] = []
    some_bytes = 0
    for plan in plans:
        plan_bytes = plan.ByteSize()
        if some and (len(some) == GREATEST_PLANS or some_bytes + plan_bytes > USUAL_REQUEST_BYTES):
            yield some
            some, some_bytes = [], 0
        some.append(plan)
        some_bytes += plan_bytes
    if some:
        yield some
