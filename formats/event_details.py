"""What events say besides the common fields (docs/events.md), as the service and the simulator both write them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from domain.cells import CellsOfJobs
from domain.diagnosis import Diagnosis
from domain.events import JsonValue
from domain.identifiers import VirtualClusterId, WorkloadId
from domain.placement import AttemptKey, TaskPlacement
from domain.placement_changes import LossCause
from domain.plan import TaskName
from domain.reservation import Reservation, ReservationEnd
from domain.workload import TableInput, WorkloadSpecification, emulated_work_s
from formats.trace_workload import model_of


def undecided_details(sentence: str, diagnosis: Diagnosis | None) -> dict[str, JsonValue]:
    """What a `waiting` or `awaiting_data` event says of why. None: a policy left it waiting, not lack of room."""
    details: dict[str, JsonValue] = {"reason": sentence}
    # The sentence says what each region has said: once is enough in a log.
    return details if diagnosis is None else details | {"diagnosis": replace(diagnosis, by_region=()).as_json()}


def promoted_details(waited_s: float, attained_s: float, attained_gpu_s: float) -> dict[str, JsonValue]:
    """What a `promoted` event says: how long the workload has waited, and what it had attained, which counts no more."""
    return {"waited_s": waited_s, "attained_s": attained_s, "attained_gpu_s": attained_gpu_s}


def reserved_details(reservation: Reservation) -> dict[str, JsonValue]:
    """What a `reserved` event says: what is kept, for how many GPUs, and when the gang is expected to start."""
    return {
        "clusters": [*map(str, reservation.clusters)],
        "machines": [*map(str, reservation.machines)],
        "gpus": reservation.gpus,
        "expected_start_s": reservation.expected_start_s,
        "expires_s": reservation.expires_s,
    }


def reservation_ended_details(reason: ReservationEnd) -> dict[str, JsonValue]:
    """What a `reservation_ended` event says."""
    return {"reason": reason.value}


def loss_details(cause: LossCause | None, lost: Sequence[TaskName]) -> dict[str, JsonValue]:
    """What a `resized` event says besides when the attempt goes on without tasks that it has lost; nothing otherwise."""
    if cause is None:
        return {}
    return {"cause": cause.value, "lost": [{"job": name.job, "task": name.task} for name in lost]}


def _table_details(table: TableInput) -> dict[str, JsonValue]:
    bound: dict[str, JsonValue] = {} if table.max_age_s is None else {"max_age_s": table.max_age_s}
    if table.newest_partitions is not None:
        bound["newest_partitions"] = table.newest_partitions
    return {"table": table.table, "fresh": table.fresh, **bound}


def submitted_details(specification: WorkloadSpecification) -> dict[str, JsonValue]:
    """What a `submitted` event says of its workload."""
    work_s = emulated_work_s(specification)
    return {
        "name": specification.name,
        "jobs": jobs_details(specification),
        "tables": [_table_details(table) for table in specification.tables],
        "regions": list(specification.regions),
        "work_s": work_s,
        "emulated": work_s is not None,
        **({"model": model} if (model := model_of(specification)) else {}),
        **({"asked_priority": specification.priority} if specification.priority is not None else {}),
        **({"priority_class": specification.priority_class} if specification.priority_class else {}),
        **({"max_time_s": specification.max_time_s} if specification.max_time_s is not None else {}),
        **({"after": [str(dependency) for dependency in specification.after]} if specification.after else {}),
    }


def jobs_details(specification: WorkloadSpecification) -> list[JsonValue]:
    """What its jobs ask for."""
    return [
        {
            "job": job.name,
            "tasks": job.tasks,
            "max_tasks": job.max_tasks,
            "gpus": job.resources.gpus,
            "gpu_model": job.resources.gpu_model,
            "cpus": job.resources.cpus,
            "memory_gib": job.resources.memory_gib,
            **({"across_clusters": True} if job.across_clusters else {}),
        }
        for job in specification.jobs
    ]


def dispatched_details(
    placements: Sequence[TaskPlacement],
    evicts: Sequence[AttemptKey],
    *,
    within_quota: bool,
    guaranteed: bool,
    virtual_cluster: VirtualClusterId | None = None,
    own_cells: Collection[AttemptKey] = (),
) -> dict[str, JsonValue]:
    """What a `dispatched` event says of an attempt: where it is to run, whose cells it uses, and who makes room for it.

    `own_cells`: those that use the attempt's own cells opportunistically.
    """
    cells: dict[str, JsonValue] = {} if virtual_cluster is None else {"virtual_cluster": virtual_cluster}
    return {
        "placement": placement_details(placements),
        "within_quota": within_quota,
        "guaranteed": guaranteed,
        **cells,
        "evicts": [_victim_details(victim, own_cells=victim in own_cells) for victim in evicts],
    }


def _victim_details(victim: AttemptKey, *, own_cells: bool) -> dict[str, JsonValue]:
    details: dict[str, JsonValue] = {"workload": victim.workload, "attempt": int(victim.attempt)}
    return details | {"own_cells": True} if own_cells else details


def cells_details(cells: CellsOfJobs, by: WorkloadId | None = None) -> dict[str, JsonValue]:
    """Of an attempt that lost cells, to the workload that uses them now, or got cells again."""
    details: dict[str, JsonValue] = {"jobs": [str(job) for job, _ in cells]}
    if by is not None:
        details["by"] = by
    return details


def placement_details(placements: Sequence[TaskPlacement]) -> list[JsonValue]:
    """A placement as it stands in events."""
    return [
        {
            "job": placement.job,
            "task": placement.task,
            "cluster": placement.cluster,
            "machine": placement.machine,
            "gpus": list(placement.gpu_indices),
            "cpus": placement.cpus,
            "memory_gib": placement.memory_gib,
        }
        for placement in placements
    ]


def cluster_reconciled_details(
    went_on: int, ended_meanwhile: int, not_found: int, stopped: int
) -> dict[str, JsonValue]:
    """What a `cluster_reconciled` event says: numbers of attempts."""
    return {
        "went_on": went_on,
        "ended_meanwhile": ended_meanwhile,
        "not_found": not_found,
        "stopped": stopped,
    }


def mechanism_failed_details(mechanism: str, asked: str, error: str) -> dict[str, JsonValue]:
    """What a `mechanism_failed` event says: which mechanism, what it was asked, and its error."""
    return {"mechanism": mechanism, "asked": asked, "error": error}
