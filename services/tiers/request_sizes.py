"""How large requests may be, and how long it may take to answer them, method by method."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from google.protobuf.descriptor import ServiceDescriptor

USUAL_REQUEST_BYTES = 4 * 2**20
USUAL_PART_BYTES = 5 * 2**20
"""Of a request that comes in parts; a part of 4 MiB has a few bytes beside them."""

GREATEST_REQUEST_BYTES: Mapping[str, int] = {
    # Batches of our client have 3 MiB; one specification has 1 MiB at most.
    "topmast.v1.GlobalScheduler.SubmitWorkloads": 16 * 2**20,
    # Larger ones go in parts (UploadFleet).
    "topmast.v1.GlobalScheduler.ApplyFleet": 16 * 2**20,
    "topmast.v1.GlobalScheduler.ApplyTenants": 16 * 2**20,
    # The placements of a gang of 100,000 tasks.
    "topmast.v1.ClusterManager.ExecutePlan": 16 * 2**20,
    "topmast.v1.ClusterManager.ResizeAttempt": 16 * 2**20,
    # What tasks say of themselves, many times in a second.
    "topmast.v1.TrainingSession.Heartbeat": 64 * 2**10,
    "topmast.v1.TrainingSession.CheckpointSaved": 64 * 2**10,
}
"""By the full name of the method."""

LARGEST_REQUEST_BYTES = max(GREATEST_REQUEST_BYTES.values())

LONGEST_CALL_S: Mapping[str, float] = {
    "topmast.v1.GlobalScheduler.ApplyFleet": 3_600.0,
    "topmast.v1.GlobalScheduler.ApplyUploadedFleet": 3_600.0,
    # For each region as long as is asked for.
    "topmast.v1.GlobalScheduler.PlanMachines": 3_600.0,
}
"""Calls with one answer that may take longer than `requests.longest_call_real_s`, by the full name of the method."""


def greatest_request_bytes(method: str, *, in_parts: bool) -> int:
    """Of a request to that method; of one of its parts, where it comes in parts."""
    return GREATEST_REQUEST_BYTES.get(method, USUAL_PART_BYTES if in_parts else USUAL_REQUEST_BYTES)


def greatest_of_services(services: Iterable[ServiceDescriptor]) -> int:
    """The greatest of all that any method of these services takes."""
    return max(
        (
            greatest_request_bytes(method.full_name, in_parts=method.client_streaming)
            for service in services
            for method in service.methods
        ),
        default=USUAL_REQUEST_BYTES,
    )
