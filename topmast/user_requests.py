"""What users ask of several workloads at once: to be held, released, requeued, changed or cancelled."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypedDict, Unpack

from topmast.keywords import refuse_unknown_keywords
from topmast.messages import mapping, message_of, refused, strings
from topmast.v1 import global_scheduler_pb2
from topmast.workloads import WorkloadState, state_from_proto

_OWN_PRIORITY = -1


@dataclass(frozen=True, slots=True)
class WorkloadNow:
    """What became of one of them. One that is being stopped is in its old state until it has stopped.

    `submitted_anew_as` is the name of the new workload where this one had ended and was requeued; "" otherwise.
    """

    workload: str
    state: WorkloadState
    submitted_anew_as: str = ""
    elements: int | None = None
    """Of an array: to how many of its elements it happened."""


WorkloadsNow: TypeAlias = tuple[WorkloadNow, ...]
Several: TypeAlias = Sequence[str] | str
"""Names of workloads; one name is a list of one."""


class WorkloadChange(TypedDict, total=False):
    """What is to be different; what is left out stays as it is.

    `priority` is one at which the tenant has a quota, None the tenant's own. `regions` replaces all of them; empty: anywhere.
    `labels` sets these, and takes away those that are None. `max_time_s` None: no time limit any more.
    """

    priority: int | None
    priority_class: str
    regions: Sequence[str]
    labels: Mapping[str, str | None]
    max_time_s: float | None


def cancel_request(
    workloads: Sequence[str], reason: str, *, passes_over_ended: bool
) -> global_scheduler_pb2.CancelWorkloadsRequest:
    return message_of(
        global_scheduler_pb2.CancelWorkloadsRequest,
        workloads=_named(workloads),
        reason=reason,
        passes_over_ended=passes_over_ended,
    )


def hold_request(
    workloads: Sequence[str], reason: str, asked_by: str, *, requeue: bool
) -> global_scheduler_pb2.HoldWorkloadsRequest:
    return message_of(
        global_scheduler_pb2.HoldWorkloadsRequest,
        workloads=_named(workloads),
        asked_by=asked_by,
        reason=reason,
        requeue=requeue,
    )


def release_request(workloads: Sequence[str], asked_by: str) -> global_scheduler_pb2.ReleaseWorkloadsRequest:
    return message_of(global_scheduler_pb2.ReleaseWorkloadsRequest, workloads=_named(workloads), asked_by=asked_by)


def requeue_request(
    workloads: Sequence[str], asked_by: str, idempotency_key: str | None
) -> global_scheduler_pb2.RequeueWorkloadsRequest:
    """Always with an idempotency key, so that sending it again never submits anything twice."""
    return message_of(
        global_scheduler_pb2.RequeueWorkloadsRequest,
        workloads=_named(workloads),
        asked_by=asked_by,
        idempotency_key=idempotency_key or uuid.uuid4().hex,
    )


def change_request(
    workloads: Sequence[str], asked_by: str, **wanted: Unpack[WorkloadChange]
) -> global_scheduler_pb2.ChangeWorkloadsRequest:
    """Raises TypeError for what cannot be changed, InvalidArgumentError for a value that is none."""
    refuse_unknown_keywords("change", wanted, WorkloadChange.__annotations__)
    labels = mapping("labels", wanted.get("labels", {}))
    regions = strings("regions", wanted.get("regions", ()))
    if wanted.get("max_time_s") == 0:
        raise refused("max_time_s", "must be greater than 0; None takes the limit away")
    no_limit = "max_time_s" in wanted and wanted["max_time_s"] is None
    own_priority = "priority" in wanted and wanted["priority"] is None
    return message_of(
        global_scheduler_pb2.ChangeWorkloadsRequest,
        workloads=_named(workloads),
        asked_by=asked_by,
        regions=regions,
        anywhere="regions" in wanted and not regions,
        labels={key: value for key, value in labels.items() if value is not None},
        without_labels=[key for key, value in labels.items() if value is None],
        priority=_OWN_PRIORITY if own_priority else wanted.get("priority"),
        priority_class=wanted.get("priority_class"),
        max_time_s=0.0 if no_limit else wanted.get("max_time_s"),
    )


def told(message: global_scheduler_pb2.WorkloadStates) -> tuple[WorkloadNow, ...]:
    return tuple(
        WorkloadNow(
            one.workload,
            state_from_proto(one.state),
            one.submitted_anew_as,
            one.elements if one.HasField("elements") else None,
        )
        for one in message.workloads
    )


def _named(workloads: Sequence[str]) -> Sequence[str]:
    """One name is a list of one."""
    return (workloads,) if isinstance(workloads, str) else strings("workloads", workloads)
