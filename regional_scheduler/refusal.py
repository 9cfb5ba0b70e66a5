"""Why a region has no plan for a workload: the diagnosis, and a sentence with the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cluster_manager.mechanism import Query
from domain.diagnosis import Diagnosis, Numbers, Quantity, Reason, known_to_fail
from domain.identifiers import ClusterId, JobName, RegionId, WorkloadId
from domain.rank import Standing
from domain.reservation import Reservation
from domain.workload import JobSpecification
from regional_scheduler.refusal_sentences import (
    sentence_about_capacity,
    sentence_about_reservations,
    sentence_about_smaller,
)
from regional_scheduler.region_capacity import RegionCapacity


@dataclass(frozen=True, slots=True)
class Refusal:
    """No plan. The diagnosis names the job that finds no room, or the field that asks for what is not there."""

    diagnosis: Diagnosis
    sentence: str
    room: tuple[int, ...] = ()
    """For how many of the job's tasks each cluster has room at most, in fleet order, if the job alone finds none."""

    @property
    def held(self) -> bool:
        """Whether it would find one on machines that are kept for others."""
        return self.diagnosis.reason is Reason.HELD_FOR_OTHERS

    @property
    def reason(self) -> Reason:
        return self.diagnosis.reason

    @property
    def job(self) -> JobName | None:
        return self.diagnosis.job


def no_room_alone(
    region: RegionCapacity,
    query: Query,
    job: JobSpecification,
    standing: Standing,
    room: tuple[int, ...],
    empty: Sequence[int],
    now: float,
) -> Refusal:
    """The job, of which the query is, finds no place at `now` even without the rest of its workload.

    `room` says for how many of its tasks each cluster has capacity, with evictions, and `empty` for how many when empty.
    """
    clusters = region.cluster_ids
    most_when_empty = region.most_tasks(np.array(empty, np.int64), query)
    together = query.across_clusters
    cluster: ClusterId | None = None
    if most_when_empty == 0:
        reason, most = Reason.NO_MACHINE_FITS, 0
    elif most_when_empty < job.tasks:
        reason, most = Reason.CLUSTERS_TOO_SMALL, most_when_empty
        cluster = None if together else clusters[empty.index(most)]
    elif together:
        reason, most = Reason.NO_ROOM, region.most_tasks(np.array(room, np.int64), query)
    else:
        # A cluster that is too small when empty says nothing about what is in use.
        large_enough = [position for position, whole in enumerate(empty) if whole >= job.tasks]
        closest = max(large_enough, key=room.__getitem__)
        reason, most, cluster = Reason.NO_ROOM, room[closest], clusters[closest]
    numbers = (Numbers(Quantity.TASKS, job.tasks, most),)
    diagnosis = Diagnosis(reason, region.region, cluster, job.name, numbers=numbers, since_s=now)
    return Refusal(diagnosis, sentence_about_capacity(diagnosis, job, standing), room)


def held_for_others(
    region: RegionId, job: JobSpecification, room: tuple[int, ...], binding: Sequence[Reservation], now: float
) -> Refusal:
    """The job would find a place at `now`, but on machines that these reservations keep it off; `room` as they leave it."""
    numbers = (Numbers(Quantity.TASKS, job.tasks, min(max(room, default=0), job.tasks - 1)),)
    diagnosis = Diagnosis(Reason.HELD_FOR_OTHERS, region, job=job.name, numbers=numbers, since_s=now)
    return Refusal(diagnosis, sentence_about_reservations(diagnosis, job, binding), room)


def planning_failed(region: RegionCapacity, workload: WorkloadId, error: Exception, now: float) -> Refusal:
    """Planning has just raised this error, which is noted. What it says may name other tenants' workloads: it is for the log alone.

    Only where faults are contained.
    """
    region.faults.planning_failed(workload, error)
    return set_aside(region, now)


def set_aside(region: RegionCapacity, now: float) -> Refusal:
    """Planning has failed for the workload lately, and is not tried again yet."""
    name = region.region
    sentence = f"{name} could not plan it, for an error of the service itself, which is in the log of that region"
    return Refusal(Diagnosis(Reason.PLANNING_FAILED, name, since_s=now), sentence)


def no_room_for_smaller(job: JobSpecification, smaller: JobSpecification, found: Refusal) -> Refusal:
    """The job asks for at least what a smaller one was refused for."""
    return Refusal(known_to_fail(found.diagnosis, job.name), sentence_about_smaller(job, smaller, found.sentence))


def no_room_together(region: RegionId, job: JobSpecification, standing: Standing, now: float) -> Refusal:
    """The job finds a place alone at `now`, but not beside the other jobs of its workload."""
    diagnosis = Diagnosis(Reason.NO_ROOM_TOGETHER, region, job=job.name, since_s=now)
    return Refusal(diagnosis, sentence_about_capacity(diagnosis, job, standing))
