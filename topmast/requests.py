"""The messages that both clients send."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import TypedDict, Unpack

from topmast.specifications import WorkloadSpecification, specification_to_proto
from topmast.v1 import global_scheduler_pb2, workload_pb2
from topmast.workloads import WorkloadState

LARGEST_BATCH = 1_000
LARGEST_PAGE = 1_000
_LARGEST_BATCH_BYTES = 3 * 1024 * 1024
"""A server takes 4 MiB in one message unless it is configured otherwise."""

Submittable = WorkloadSpecification | workload_pb2.WorkloadSpecification


class WorkloadFilter(TypedDict, total=False):
    """Which workloads to list; what is left out does not matter. Times are seconds since the epoch."""

    tenant: str
    states: Sequence[WorkloadState]
    region: str
    name_contains: str
    submitted_after_s: float
    submitted_before_s: float


def submit_request(
    specification: Submittable, idempotency_key: str | None
) -> global_scheduler_pb2.SubmitWorkloadRequest:
    """Always with an idempotency key, so that sending it again can never make a second workload."""
    return global_scheduler_pb2.SubmitWorkloadRequest(
        specification=specification
        if isinstance(specification, workload_pb2.WorkloadSpecification)
        else specification_to_proto(specification),
        idempotency_key=idempotency_key or uuid.uuid4().hex,
    )


def submit_batches(
    specifications: Iterable[Submittable], idempotency_keys: Sequence[str] | None
) -> Iterator[global_scheduler_pb2.SubmitWorkloadsRequest]:
    """Batches of at most 1,000 workloads and about 3 MiB.

    Raises ValueError when there are keys but not exactly one for each workload.
    """
    batch = global_scheduler_pb2.SubmitWorkloadsRequest()
    batch_bytes = 0
    keyed: Iterable[tuple[Submittable, str | None]] = (
        ((specification, None) for specification in specifications)
        if idempotency_keys is None
        else zip(specifications, idempotency_keys, strict=True)
    )
    for specification, key in keyed:
        request = submit_request(specification, key)
        request_bytes = request.ByteSize()
        if batch.requests and (
            len(batch.requests) == LARGEST_BATCH or batch_bytes + request_bytes > _LARGEST_BATCH_BYTES
        ):
            yield batch
            batch = global_scheduler_pb2.SubmitWorkloadsRequest()
            batch_bytes = 0
        batch.requests.append(request)
        batch_bytes += request_bytes
    if batch.requests:
        yield batch


def list_request(
    page_size: int, page_token: str, **wanted: Unpack[WorkloadFilter]
) -> global_scheduler_pb2.ListWorkloadsRequest:
    return global_scheduler_pb2.ListWorkloadsRequest(
        page_size=page_size,
        page_token=page_token,
        tenant=wanted.get("tenant", ""),
        states=[state.number for state in wanted.get("states", ())],
        region=wanted.get("region", ""),
        name_contains=wanted.get("name_contains", ""),
        submitted_after_s=wanted.get("submitted_after_s", 0.0),
        submitted_before_s=wanted.get("submitted_before_s", 0.0),
    )
