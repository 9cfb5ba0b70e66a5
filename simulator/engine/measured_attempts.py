"""What attempts in a simulation measure for PACKLIMIT, and that whoever comes to the queue follows the limit of that moment."""

from __future__ import annotations

from collections.abc import Callable

from cluster_manager.skew.measured import ran_on
from cluster_manager.skew.spread import most_gpus_of_machines
from domain.iteration_times import RanOn
from formats.trace_workload import model_of
from simulator.engine.packlimit import SimulatedPacklimit
from simulator.engine.workloads import SimulatedWorkload
from simulator.engine.world import World


class MeasuredAttempts:
    """An attempt counts when it is over, as in the service; those of elastic jobs, which have no one size, say nothing."""

    def __init__(
        self, world: World, packlimit: SimulatedPacklimit, decide: Callable[[SimulatedWorkload], None]
    ) -> None:
        """`decide` makes a workload what it is by its skew and the limit in force."""
        self._world = world
        self._packlimit = packlimit
        self._decide = decide
        self._running: dict[int, list[tuple[RanOn, float, float]]] = {}
        """By workload, what its attempt has measured."""
        clusters = [cluster for region in world.fleet.regions for cluster in region.clusters]
        self._most_gpus = most_gpus_of_machines(clusters)
        self._models = {machine.machine: machine.gpu_model for cluster in clusters for machine in cluster.machines()}

    def comes_to_queue(self, work: SimulatedWorkload) -> None:
        self._over(work)
        if work.as_submitted is not None and not work.on_trial:
            self._decide(work)

    def started(self, work: SimulatedWorkload) -> None:
        self._over(work)  # of one that goes on elsewhere, the attempt before
        emulated, specification = work.emulated, work.workload.specification
        if emulated is None or emulated.speed <= 0:
            return
        found = []
        for job in specification.jobs:
            machines = [placement.machine for placement in work.placements if placement.job == job.name]
            if job.profile is None or job.greatest_tasks > job.tasks:
                continue
            name = model_of(specification) or specification.name
            ran = ran_on(specification.tenant, name, job, machines, self._models, self._most_gpus)
            if ran is not None:
                found.append((ran, job.profile.skew, 1.0 / emulated.speed))
        if found:
            self._running[work.index] = found

    def completed(self, work: SimulatedWorkload) -> None:
        self._over(work)

    def _over(self, work: SimulatedWorkload) -> None:
        samples = self._running.pop(work.index, None)
        if samples is not None:
            self._packlimit.measured(samples, self._world.clock.now())
