"""The proportional share of a task: what its GPUs come with on its machine (Synergy §2)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from domain.fleet import Machine
from domain.identifiers import MachineId
from domain.placement import TaskPlacement
from domain.resources import capacity_mebibytes, capacity_millicpus, proportional_part
from domain.sensitivity import AmountsPerGpu


class ShareOfTask(NamedTuple):
    """CPU and memory of one task, rounded down as they are charged."""

    millicpus: int
    mebibytes: int

    def per_gpu(self, gpus: int) -> AmountsPerGpu:
        """What each of the task's GPUs comes with."""
        return AmountsPerGpu(self.millicpus / 1000 / gpus, self.mebibytes / 1024 / gpus)


class ProportionalShares:
    """What tasks with GPUs get on the machines of a fleet where they do not say how much CPU and memory they need."""

    def __init__(self, machines: Iterable[Machine]) -> None:
        self._capacity = {
            machine.machine: (machine.gpus, capacity_millicpus(machine.cpus), capacity_mebibytes(machine.memory_gib))
            for machine in machines
            if machine.gpus > 0
        }

    def of(self, machine: MachineId, gpus: int) -> ShareOfTask:
        """Of a task with so many GPUs there. Raises KeyError for a machine that is unknown or has no GPUs."""
        of_gpus, millicpus, mebibytes = self._capacity[machine]
        return ShareOfTask(proportional_part(millicpus, gpus, of_gpus), proportional_part(mebibytes, gpus, of_gpus))

    def of_placement(self, placement: TaskPlacement) -> AmountsPerGpu:
        """What each GPU of a task that is placed comes with. Raises KeyError as `of`; ValueError for one without GPUs."""
        gpus = len(placement.gpu_indices)
        if gpus == 0:
            raise ValueError(f"task {placement.task} of job {placement.job} has no GPUs, and so no proportional share")
        return self.of(placement.machine, gpus).per_gpu(gpus)
