"""The messages that both clients send."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypedDict, Unpack

from topmast.errors import InvalidArgumentError
from topmast.keywords import refuse_unknown_keywords
from topmast.label_conditions import label_conditions
from topmast.messages import elements, message_of, refused, shown, strings
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
    labels: Sequence[str]
    """Conditions, as in `topmast.label_conditions`: all have to be met."""
    expand_arrays: bool
    """Elements of arrays one by one; otherwise each array is one workload, unless states or a region are asked for."""
    array: str
    """Only the elements of this array, one by one."""


def with_package(specification: Submittable, package: str) -> Submittable:
    """The same workload with these files in its working directories."""
    if isinstance(specification, WorkloadSpecification):
        return replace(specification, package=package)
    changed = workload_pb2.WorkloadSpecification()
    changed.CopyFrom(specification)
    changed.package = package
    return changed


def with_package_each(specifications: Iterable[Submittable], package: str) -> Iterable[Submittable]:
    """Each of them with that package: a list where there is one, so that it can be looked through as a whole."""
    packed = (with_package(one, package) for one in specifications)
    return list(packed) if isinstance(specifications, Sequence) else packed


def submit_request(
    specification: Submittable, idempotency_key: str | None
) -> global_scheduler_pb2.SubmitWorkloadRequest:
    """Always with an idempotency key, so that sending it again can never make a second workload.

    Raises InvalidArgumentError for what is no specification, or says what its fields cannot hold.
    """
    if idempotency_key == "":
        raise refused("idempotency_key", "is empty; leave it out, or say one")
    return message_of(
        global_scheduler_pb2.SubmitWorkloadRequest,
        specification=_specification_message(specification),
        idempotency_key=uuid.uuid4().hex if idempotency_key is None else idempotency_key,
    )


def _specification_message(specification: Submittable) -> workload_pb2.WorkloadSpecification:
    if isinstance(specification, workload_pb2.WorkloadSpecification):
        return specification
    if not isinstance(specification, WorkloadSpecification):
        raise refused("specification", f"must be a WorkloadSpecification, not {shown(specification)}")
    try:
        return specification_to_proto(specification)
    except InvalidArgumentError as error:
        raise error.under("specification.") from None


def submit_batches(
    specifications: Iterable[Submittable], idempotency_keys: Sequence[str] | None
) -> Iterable[global_scheduler_pb2.SubmitWorkloadsRequest]:
    """Batches of at most 1,000 workloads and about 3 MiB; of a list all at once, of anything else as it is read.

    Raises InvalidArgumentError for the first workload that cannot be sent, as of `requests[i]` counted from the first of all,
    and when there are keys but not exactly one for each workload.
    """
    batches = _batches(
        elements("specifications", specifications), None if idempotency_keys is None else _keys(idempotency_keys)
    )
    if not isinstance(specifications, Sequence):
        return batches
    listed = list(batches)
    if len(listed) > 1:
        _refuse_torn_graph(listed)
    return listed


def _refuse_torn_graph(batches: Sequence[global_scheduler_pb2.SubmitWorkloadsRequest]) -> None:
    """Those that wait for others of the list by name can only be stored with them."""
    submitted = [request.specification for batch in batches for request in batch.requests]
    names = {specification.name for specification in submitted}
    for number, specification in enumerate(submitted):
        for position, text in enumerate(specification.after):
            if text.partition(":")[2] in names:
                raise refused(
                    f"requests[{number}].specification.after[{position}]",
                    f"is {shown(text)}, a workload of this list by name: such a list has at most {LARGEST_BATCH} workloads,"
                    " and 3 MiB, since it is stored as a whole; this one is larger",
                )


def _keys(idempotency_keys: Sequence[str]) -> tuple[str, ...]:
    keys = strings("idempotency_keys", idempotency_keys)
    if "" in keys:
        raise refused(f"idempotency_keys[{keys.index('')}]", "is empty; each workload needs one of its own")
    return keys


def _batches(
    specifications: Iterable[Submittable], keys: Sequence[str] | None
) -> Iterator[global_scheduler_pb2.SubmitWorkloadsRequest]:
    batch = global_scheduler_pb2.SubmitWorkloadsRequest()
    batch_bytes = 0
    number = 0
    for number, specification in enumerate(specifications, 1):
        if keys is not None and number > len(keys):
            raise refused("idempotency_keys", f"are {len(keys)}, and there are more workloads; one for each is needed")
        try:
            request = submit_request(specification, None if keys is None else keys[number - 1])
        except InvalidArgumentError as error:
            raise error.under(f"requests[{number - 1}].") from None
        request_bytes = request.ByteSize()
        if batch.requests and (
            len(batch.requests) == LARGEST_BATCH or batch_bytes + request_bytes > _LARGEST_BATCH_BYTES
        ):
            yield batch
            batch = global_scheduler_pb2.SubmitWorkloadsRequest()
            batch_bytes = 0
        batch.requests.append(request)
        batch_bytes += request_bytes
    if keys is not None and number < len(keys):
        raise refused("idempotency_keys", f"are {len(keys)}, and there are {number} workloads; one for each is needed")
    if batch.requests:
        yield batch


def list_request(
    page_size: int, page_token: str, **wanted: Unpack[WorkloadFilter]
) -> global_scheduler_pb2.ListWorkloadsRequest:
    """Raises TypeError for a keyword that WorkloadFilter does not have, InvalidArgumentError for a value that is none."""
    refuse_unknown_keywords("list", wanted, WorkloadFilter.__annotations__)
    states = wanted.get("states")
    return message_of(
        global_scheduler_pb2.ListWorkloadsRequest,
        page_size=page_size,
        page_token=page_token,
        tenant=wanted.get("tenant", ""),
        states=[
            _state(f"states[{index}]", state).number
            for index, state in enumerate(elements("states", () if states is None else states))
        ],
        region=wanted.get("region", ""),
        name_contains=wanted.get("name_contains", ""),
        submitted_after_s=wanted.get("submitted_after_s", 0.0),
        submitted_before_s=wanted.get("submitted_before_s", 0.0),
        labels=label_conditions(wanted.get("labels", ())),
        expand_arrays=wanted.get("expand_arrays", False),
        array=wanted.get("array", ""),
    )


def _state(field: str, state: WorkloadState | str) -> WorkloadState:
    try:
        return WorkloadState(state)
    except ValueError:
        names = ", ".join(one.value for one in WorkloadState if one is not WorkloadState.UNSPECIFIED)
        raise refused(field, f"{shown(state)} is no state; there are {names}") from None
