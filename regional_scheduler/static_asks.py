"""What workloads ask for under mechanisms with static demands: the best, from the start to the end (Synergy §3.3, §5.7).

Rule: a workload asks for the best demand of each of its jobs that has a profile and leaves CPUs and memory open, on the
largest machine of the fleet that may run the job. Where no region of the fleet could ever host that, it asks for what it
says itself: its proportional share.

Invariant: what some region could host as it was submitted, some region can host as it asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cluster_manager.tuning.demand import GpuAmounts
from cluster_manager.tuning.mechanism import TuningMechanism
from cluster_manager.tuning.static_demands import StaticDemands
from domain.fleet import Fleet
from domain.placement import TaskPlacement
from domain.tuned_speed import ProfilesOfJobs
from domain.workload import JobSpecification, WorkloadSpecification
from regional_scheduler.asked_amounts import AskedAmounts, asking
from regional_scheduler.hosting import HostingRegions
from regional_scheduler.tuning import is_tunable


def has_static_demands(mechanism: TuningMechanism | None) -> bool:
    """Whether its workloads ask for their best demand, and hold that to their end."""
    return isinstance(mechanism, StaticDemands)


class StaticAsks:
    """Says it for one fleet, of which virtual clusters are part."""

    def __init__(self, mechanism: TuningMechanism, fleet: Fleet) -> None:
        self._asked = AskedAmounts(mechanism, fleet)
        self._hosting = HostingRegions(fleet.regions)

    def of(self, specification: WorkloadSpecification, profiles: ProfilesOfJobs) -> WorkloadSpecification:
        """The workload as it is to be placed; the same object where nothing is asked for instead of what it says."""
        asked = self._asked.last(specification, profiles)
        return asked if asked is specification or self._hosting.refusal(asked) is None else specification


def asking_what_is_held(
    specification: WorkloadSpecification, profiles: ProfilesOfJobs, placements: Sequence[TaskPlacement]
) -> WorkloadSpecification:
    """The workload of an attempt that asks for what its tasks hold: so more tasks, or another place, get as much."""
    jobs = tuple(_asking_as_held(job, placements) if is_tunable(job, profiles) else job for job in specification.jobs)
    return specification if jobs == specification.jobs else replace(specification, jobs=jobs)


def _asking_as_held(job: JobSpecification, placements: Sequence[TaskPlacement]) -> JobSpecification:
    """All tasks of a job hold as much for each GPU."""
    for placement in placements:
        if placement.job == job.name and placement.gpu_indices:
            gpus = len(placement.gpu_indices)
            return asking(job, GpuAmounts(placement.millicpus // gpus, placement.mebibytes // gpus))
    return job
