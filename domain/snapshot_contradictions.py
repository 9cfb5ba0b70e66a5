"""What cannot be in one moment: a snapshot that says so is refused, wherever it comes from."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import TypeAlias

from domain.fleet import MachineState
from domain.identifiers import MachineId, WorkloadId
from domain.life_cycle import LIVE, QUEUED, State
from domain.placement import TaskPlacement
from domain.placement_changes import ImpossibleAction, check_gang
from domain.snapshot import QueuedWorkload, RunningAttempt, ServiceSoFar, Snapshot
from domain.workload import emulated_work_s

Problem: TypeAlias = tuple[str, str]
"""A field's path, and a sentence with the remedy."""


def contradictions(snapshot: Snapshot) -> list[Problem]:
    """Everything in which the snapshot disagrees with itself; empty when everything agrees.

    Whether placements fit the machines is for the inventory to say.
    """
    machines = {machine.machine for region in snapshot.fleet.regions for machine in region.machines()}
    found = list(_of_workloads(snapshot))
    for number, entry in enumerate(snapshot.queue):
        found += _of_service(entry.so_far, f"queue[{number}].so_far", snapshot.taken_s)
        found += _of_queued(entry, f"queue[{number}]", snapshot.taken_s)
    for number, attempt in enumerate(snapshot.running):
        found += _of_service(attempt.so_far, f"running[{number}].so_far", snapshot.taken_s)
        found += _of_running(attempt, f"running[{number}]", snapshot, machines)
    found += [
        (f"machine_states.{machine}", "is not a machine of the fleet; leave it out")
        for machine in sorted(snapshot.machine_states)
        if machine not in machines
    ]
    for number, use in enumerate(snapshot.use):
        if use.end_s < use.start_s:
            found.append((f"use[{number}].end_s", "must not be before start_s"))
        elif use.end_s > snapshot.taken_s:
            found.append((f"use[{number}].end_s", _not_after("ends", snapshot.taken_s)))
    return found


def _of_workloads(snapshot: Snapshot) -> Iterator[Problem]:
    """Each is there once, of a tenant that there is, and submitted by then."""
    tenants = {tenant.tenant for tenant in snapshot.tenants}
    seen: dict[WorkloadId, str] = {}
    listed = [(f"queue[{number}]", entry.workload) for number, entry in enumerate(snapshot.queue)]
    listed += [(f"running[{number}]", attempt.workload) for number, attempt in enumerate(snapshot.running)]
    for path, workload in listed:
        first = seen.setdefault(workload.workload, path)
        if first != path:
            yield path, f"workload {workload.workload} is already at {first}; it can be at one place only"
        if workload.specification.tenant not in tenants:
            yield path, f"tenant {workload.specification.tenant} is not among the tenants; add it there"
        if workload.submitted_s > snapshot.taken_s:
            yield path, "is submitted after the snapshot was taken; leave it out, or correct submitted_s"


def _of_queued(entry: QueuedWorkload, path: str, taken_s: float) -> Iterator[Problem]:
    if entry.state not in QUEUED:
        yield f"{path}.state", f"is {entry.state}; one that waits is {_listed(QUEUED)}"
    if entry.queued_since_s > taken_s:
        yield f"{path}.queued_since_s", _not_after("waits", taken_s)


def _of_service(so_far: ServiceSoFar, path: str, taken_s: float) -> Iterator[Problem]:
    if so_far.before_promotion_s > so_far.attained_s:
        yield f"{path}.before_promotion_s", f"must not be more than attained_s, {so_far.attained_s:g}"
    if so_far.before_promotion_gpu_s > so_far.attained_gpu_s:
        yield f"{path}.before_promotion_gpu_s", f"must not be more than attained_gpu_s, {so_far.attained_gpu_s:g}"
    if so_far.first_started_s is not None and so_far.first_started_s > taken_s:
        yield f"{path}.first_started_s", _not_after("started", taken_s)


def _of_running(
    attempt: RunningAttempt, path: str, snapshot: Snapshot, machines: Container[MachineId]
) -> Iterator[Problem]:
    regions = {region.region for region in snapshot.fleet.regions}
    if attempt.state not in LIVE:
        yield f"{path}.state", f"is {attempt.state}; a live attempt is {_listed(LIVE)}"
    if (attempt.state is State.PREEMPTING) != (attempt.leaving is not None):
        yield f"{path}.leaving", "must be there if and only if the state is PREEMPTING"
    if attempt.leaving is not None and attempt.leaving.by == attempt.key:
        yield f"{path}.leaving.by", "is the attempt itself, which cannot make room for itself; name another one"
    if attempt.region not in regions:
        yield f"{path}.region", f"there is no region {attempt.region} in the fleet"
    yield from _of_times(attempt, path, snapshot.taken_s)
    yield from _of_progress(attempt, path)
    if not attempt.placements:
        yield f"{path}.placements", "is empty; an attempt holds something"
    else:
        yield from _of_placements(attempt, attempt.placements, f"{path}.placements", machines)
        yield from _of_lost_machines(attempt, f"{path}.placements", snapshot.machine_states)
        yield from _of_cells(attempt, f"{path}.cells")
    if attempt.next_place is not None:
        if attempt.next_place.region not in regions:
            yield f"{path}.next_place.region", f"there is no region {attempt.next_place.region} in the fleet"
        yield from _of_placements(attempt, attempt.next_place.placements, f"{path}.next_place.placements", machines)


def _of_times(attempt: RunningAttempt, path: str, taken_s: float) -> Iterator[Problem]:
    """Submission, dispatch, start, last change and the snapshot follow each other."""
    started_s, changed = attempt.started_s, attempt.changed
    if attempt.dispatched_s > taken_s:
        yield f"{path}.dispatched_s", _not_after("was dispatched", taken_s)
    if attempt.state is State.RUNNING and started_s is None:
        yield f"{path}.started_s", "is missing, but the state is RUNNING; say when it started"
    if attempt.state is State.DISPATCHED and started_s is not None:
        yield f"{path}.started_s", "must be null while the state is DISPATCHED: it has not started yet"
    if started_s is not None and started_s < attempt.dispatched_s:
        yield f"{path}.started_s", f"must not be before its dispatch ({attempt.dispatched_s})"
    if started_s is not None and started_s > taken_s:
        yield f"{path}.started_s", _not_after("started", taken_s)
    if changed is not None and started_s is None:
        yield f"{path}.changed", "must not be there without started_s: what has not started has done nothing"
    elif changed is not None and started_s is not None and not started_s <= changed.to_s <= taken_s:
        yield f"{path}.changed.to_s", f"must be from its start ({started_s}) to the snapshot ({taken_s})"


def _of_progress(attempt: RunningAttempt, path: str) -> Iterator[Problem]:
    """Work is not done beyond all there is."""
    work_s = emulated_work_s(attempt.workload.specification)
    if work_s is not None and attempt.progress_at_start > work_s:
        described = f"is {attempt.progress_at_start}, more than the {work_s} s of work that there are in all"
        yield f"{path}.progress_at_start", described


def _of_placements(
    attempt: RunningAttempt, placements: Sequence[TaskPlacement], path: str, machines: Container[MachineId]
) -> Iterator[Problem]:
    """They are those of a gang, on machines that there are."""
    try:
        check_gang(attempt.key, attempt.workload.specification, placements)
    except ImpossibleAction as impossible:
        yield path, f"{impossible}; correct the placements, or the specification"
    for place, placement in enumerate(placements):
        if placement.machine not in machines:
            yield f"{path}[{place}].machine", f"there is no machine {placement.machine} in the fleet"


def _of_lost_machines(
    attempt: RunningAttempt, path: str, states: Mapping[MachineId, MachineState]
) -> Iterator[Problem]:
    """What was on a machine that is down is gone, or is leaving."""
    if attempt.state is State.PREEMPTING:
        return
    for place, placement in enumerate(attempt.placements):
        if states.get(placement.machine, MachineState.UP).is_down:
            described = f"{placement.machine} is {states[placement.machine]}, and nothing runs there"
            yield f"{path}[{place}].machine", f"{described}; say that the attempt is leaving, or correct machine_states"


def _of_cells(attempt: RunningAttempt, path: str) -> Iterator[Problem]:
    """They are those of jobs that hold something, and of the workload's tenant."""
    jobs = {placement.job for placement in attempt.placements}
    for job, use in attempt.cells:
        if job not in jobs:
            yield f"{path}.{job}", "is of no job that has placements; leave it out"
        if use.tenant != attempt.workload.specification.tenant:
            yield f"{path}.{job}.tenant", f"is {use.tenant}, not the workload's tenant; correct one of them"


def _not_after(what: str, taken_s: float) -> str:
    return f"{what} after the snapshot was taken ({taken_s}); leave it out, or correct the time"


def _listed(states: frozenset[State]) -> str:
    return " or ".join(sorted(state.value for state in states))
