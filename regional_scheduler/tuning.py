"""Tunes what runs in a region: which attempts may hold other CPUs and memory, and what a mechanism makes of them (Synergy §4.2).

Rule: a job with GPUs that left CPUs and memory open, and whose model has a sensitivity profile, is tuned on the machines
and GPUs that it has. Everything else keeps what it holds. So does what shares a machine with an attempt that is leaving: what
that one holds is promised to others already, and the round after it has gone sees it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cluster_manager.tuning.demand import DemandBook
from cluster_manager.tuning.mechanism import MachineRoom, TuningMechanism
from cluster_manager.tuning.retunes import TunableJob, TunableMachine, retunes
from domain.fleet import MachineState
from domain.identifiers import MachineId, RegionId
from domain.placement import AttemptKey, TaskPlacement, machines_of
from domain.plan import Retune
from domain.tuned_speed import ProfilesOfJobs
from domain.workload import JobSpecification
from regional_scheduler.adjustment import AdjustableAttempt
from regional_scheduler.region_capacity import RegionCapacity


def is_tunable(job: JobSpecification, profiles: ProfilesOfJobs) -> bool:
    """Whether the job's CPUs and memory may be chosen for it."""
    resources = job.resources
    return job.name in profiles and resources.gpus > 0 and resources.cpus is None and resources.memory_gib is None


class TunedInPlace:
    """Asks a mechanism: a `RegionTuning`. Where nothing has changed since it was asked last it is not asked again."""

    def __init__(self, mechanism: TuningMechanism) -> None:
        self._mechanism = mechanism
        self._book = DemandBook()
        self._seen: dict[RegionId, dict[MachineId, _Sight]] = {}
        self._jobs: dict[RegionId, dict[AttemptKey, tuple[tuple[TaskPlacement, ...], tuple[TunableJob, ...]]]] = {}
        """Of the last round: what attempts held, and their tunable jobs."""

    @property
    def name(self) -> str:
        return self._mechanism.name

    def retune(self, region: RegionCapacity, attempts: Sequence[AdjustableAttempt]) -> tuple[Retune, ...]:
        """What is to be retuned, in an order in which each action is possible. The region is as before."""
        jobs = self._by_machine(region.region, attempts)
        being_left = _being_left(region)
        sights = {
            machine: _Sight(region.idle(machine), region.machine_state(machine), machine in being_left, tuple(there))
            for machine, there in jobs.items()
        }
        before = self._seen.get(region.region, {})
        changed = [machine for machine, sight in sights.items() if before.get(machine) != sight]
        self._seen[region.region] = sights
        if not changed:
            return ()
        asked = _connected(changed, jobs)
        chosen = {job: None for machine in asked for job in jobs[machine] if _may_tune(job, sights)}
        machines = {
            placement.machine: TunableMachine(
                MachineRoom(*region.capacity_of(placement.machine)), MachineRoom(*sights[placement.machine].idle)
            )
            for job in chosen
            for placement in job.placements
        }
        return retunes(self._mechanism, tuple(chosen), machines, self._book)

    def _by_machine(self, region: RegionId, attempts: Sequence[AdjustableAttempt]) -> dict[MachineId, list[TunableJob]]:
        """The tunable jobs on each machine that has any."""
        before = self._jobs.get(region, {})
        known: dict[AttemptKey, tuple[tuple[TaskPlacement, ...], tuple[TunableJob, ...]]] = {}
        found: dict[MachineId, list[TunableJob]] = {}
        for attempt in attempts:
            last = before.get(attempt.key)
            jobs = _tunable_jobs(attempt) if last is None or last[0] is not attempt.placements else last[1]
            known[attempt.key] = attempt.placements, jobs
            for job in jobs:
                for machine in machines_of(job.placements):
                    found.setdefault(machine, []).append(job)
        self._jobs[region] = known
        return found


class _Sight(NamedTuple):
    """What of a machine decides how its jobs are tuned."""

    idle: tuple[int, int, int]
    state: MachineState
    being_left: bool
    jobs: tuple[TunableJob, ...]


def _tunable_jobs(attempt: AdjustableAttempt) -> tuple[TunableJob, ...]:
    """Its jobs whose CPUs and memory may be chosen."""
    if not attempt.profiles:
        return ()
    jobs: list[TunableJob] = []
    for job in attempt.specification.jobs:
        if is_tunable(job, attempt.profiles):
            placements = tuple([placement for placement in attempt.placements if placement.job == job.name])
            jobs.append(TunableJob(attempt.key, placements, attempt.profiles[job.name]))
    return tuple(jobs)


def _being_left(region: RegionCapacity) -> frozenset[MachineId]:
    """The machines of attempts that are leaving."""
    return frozenset(
        placement.machine
        for cluster in region.clusters
        for holding, leaving in cluster.held()
        if leaving
        for placement in holding.placements
    )


def _connected(changed: Sequence[MachineId], jobs: Mapping[MachineId, Sequence[TunableJob]]) -> list[MachineId]:
    """These machines and all that share a job with them, directly or through others; sorted."""
    found = dict.fromkeys(changed)
    waiting = list(changed)
    while waiting:
        for job in jobs[waiting.pop()]:
            for placement in job.placements:
                if placement.machine not in found:
                    found[placement.machine] = None
                    waiting.append(placement.machine)
    return sorted(found)


def _may_tune(job: TunableJob, sights: Mapping[MachineId, _Sight]) -> bool:
    """Whether what is free on its machines is free for it."""
    return all(
        not sights[placement.machine].being_left
        and sights[placement.machine].state in (MachineState.UP, MachineState.ON_LOAN)
        for placement in job.placements
    )
