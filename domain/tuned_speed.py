"""How fast work advances with the CPUs and the memory that it holds (Synergy §2, §4.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from domain.identifiers import JobName
from domain.placement import TaskPlacement
from domain.proportional_shares import ProportionalShares
from domain.sensitivity import SensitivityProfile, held_per_gpu

ProfilesOfJobs: TypeAlias = Mapping[JobName, SensitivityProfile]
"""Of the jobs of one workload that have any; the others are as fast with whatever they hold."""
NO_PROFILES: ProfilesOfJobs = MappingProxyType({})


def tuned_speed(profiles: ProfilesOfJobs, placements: Sequence[TaskPlacement], shares: ProportionalShares) -> float:
    """How many times as fast these tasks work as with their proportional shares on the same machines.

    Jobs of a workload advance together, and so do the tasks of a job: the slowest counts. 1 without profiles.
    """
    speeds: list[float] = []
    jobs = dict.fromkeys(placement.job for placement in placements if placement.gpu_indices)
    for job in jobs:
        profile = profiles.get(job)
        if profile is None:
            speeds.append(1.0)
            continue
        tasks = [placement for placement in placements if placement.job == job and placement.gpu_indices]
        reached = min(profile.throughput_with(held_per_gpu([task])) for task in tasks)
        proportional = min(profile.throughput_with(shares.of_placement(task)) for task in tasks)
        speeds.append(reached / proportional)
    return min(speeds, default=1.0)
