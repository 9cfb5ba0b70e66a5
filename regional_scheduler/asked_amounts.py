"""With how much CPU and memory workloads seek a place, where a mechanism shares these out (Synergy §3.2, §4.2)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cluster_manager.tuning.demand import Demand, DemandBook, GpuAmounts, most_per_gpu
from cluster_manager.tuning.mechanism import MachineRoom, TuningMechanism
from cluster_manager.tuning.retunes import share_of
from domain.fleet import Fleet, Machine
from domain.identifiers import ANY_GPU_MODEL, GpuModel
from domain.proportional_shares import ProportionalShares
from domain.resources import capacity_mebibytes, capacity_millicpus
from domain.tuned_speed import ProfilesOfJobs
from domain.workload import JobSpecification, WorkloadSpecification
from regional_scheduler.tuning import is_tunable


class AskedAmounts:
    """What a mechanism has workloads ask for, on the machine of a fleet with the most GPUs among those that a job may run on.

    Of machines with as many it is the one with the most CPUs, then memory, then the last by name.
    """

    def __init__(self, mechanism: TuningMechanism, fleet: Fleet) -> None:
        self.shares = ProportionalShares(machine for region in fleet.regions for machine in region.machines())
        self._largest: dict[GpuModel, Machine] = {}
        """By GPU model, and of all models."""
        for machine in (machine for region in fleet.regions for machine in region.machines() if machine.gpus > 0):
            for model in (machine.gpu_model, ANY_GPU_MODEL):
                known = self._largest.get(model)
                if known is None or _size(known) < _size(machine):
                    self._largest[model] = machine
        self._mechanism = mechanism
        self._book = DemandBook()

    def of(self, specification: WorkloadSpecification, profiles: ProfilesOfJobs) -> Iterator[WorkloadSpecification]:
        """The workload with each of the amounts in turn; nothing for one that leaves nothing open, or has no profile."""
        asks = {
            job.name: self._mechanism.asks(self._demand_of(job, machine, profiles))
            for job in specification.jobs
            if is_tunable(job, profiles) and (machine := self._largest.get(job.resources.gpu_model)) is not None
        }
        if not asks:
            return
        for turn in range(max(len(amounts) for amounts in asks.values())):
            yield replace(
                specification,
                jobs=tuple(
                    asking(job, asks[job.name][min(turn, len(asks[job.name]) - 1)]) if job.name in asks else job
                    for job in specification.jobs
                ),
            )

    def last(self, specification: WorkloadSpecification, profiles: ProfilesOfJobs) -> WorkloadSpecification:
        """The workload with the least that it may start with."""
        asked = [specification, *self.of(specification, profiles)]
        return asked[-1]

    def _demand_of(self, job: JobSpecification, machine: Machine, profiles: ProfilesOfJobs) -> Demand:
        millicpus, mebibytes = capacity_millicpus(machine.cpus), capacity_mebibytes(machine.memory_gib)
        share = share_of(MachineRoom(machine.gpus, millicpus, mebibytes))
        most = most_per_gpu(job.resources.gpus, machine.gpus, millicpus, mebibytes)
        return self._book.of(profiles[job.name], share, most)


def asking(job: JobSpecification, amounts: GpuAmounts) -> JobSpecification:
    """The job with so much for each GPU of a task."""
    gpus, per_gpu = job.resources.gpus, amounts.per_gpu
    resources = job.resources._replace(cpus=per_gpu.cpus * gpus, memory_gib=per_gpu.memory_gib * gpus)
    return replace(job, resources=resources)


def _size(machine: Machine) -> tuple[int, float, float, str]:
    return machine.gpus, machine.cpus, machine.memory_gib, machine.machine
