"""How fast an attempt works: by the tasks that it has, by how far they are spread, and by the CPUs and memory that they hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from cluster_manager.skew.slowdown import SpreadSlowdown
from cluster_manager.skew.spread import most_gpus_of_machines
from domain.fleet import Fleet
from domain.placement import TaskPlacement
from domain.proportional_shares import ProportionalShares
from domain.scaling import LINEAR_SCALING, Scaling
from domain.sensitivity import SensitivityProfile
from domain.tuned_speed import NO_PROFILES, ProfilesOfJobs, tuned_speed
from domain.work_rate import work_rate
from domain.workload import WorkloadSpecification
from formats.trace_workload import model_of
from simulator.engine.settings import PlacementSettings

NO_MODELS: Mapping[str, SensitivityProfile] = MappingProxyType({})


class WorkSpeed:
    """Seconds of work per second. What a snapshot has running goes at the rate of its tasks until it is changed."""

    def __init__(
        self,
        fleet: Fleet,
        settings: PlacementSettings,
        profiles: Mapping[str, SensitivityProfile] = NO_MODELS,
        scaling: Scaling = LINEAR_SCALING,
    ) -> None:
        """`profiles` are by model: a workload that names none of these is as fast with any amounts."""
        self._scaling = scaling
        steps = settings.steps()
        clusters = [cluster for region in fleet.regions for cluster in region.clusters]
        self._slowdown = SpreadSlowdown(steps, most_gpus_of_machines(clusters)) if steps else None
        self.shares = ProportionalShares(machine for cluster in clusters for machine in cluster.machines())
        self._profiles = profiles

    def profiles_of(self, specification: WorkloadSpecification) -> ProfilesOfJobs:
        """The profiles of the workload's jobs: all of them train the model that its trace names."""
        profile = self._profiles.get(model_of(specification)) if self._profiles else None
        return NO_PROFILES if profile is None else {job.name: profile for job in specification.jobs}

    def at_start(self, specification: WorkloadSpecification, placements: Sequence[TaskPlacement]) -> float:
        """Of an attempt that begins with its base tasks in these places."""
        if self._slowdown is None and not self._profiles:
            return 1.0
        spread = 1.0 if self._slowdown is None else 1.0 / self._slowdown.of(specification.jobs, placements)
        profiles = self.profiles_of(specification)
        return spread * tuned_speed(profiles, placements, self.shares) if profiles else spread

    def of(self, specification: WorkloadSpecification, placements: Sequence[TaskPlacement]) -> float:
        """Of an attempt that has these tasks."""
        return work_rate(specification.jobs, placements, self._scaling) * self.at_start(specification, placements)
