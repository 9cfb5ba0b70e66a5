"""What a machine is good for, by its shape: a fleet has many machines and few shapes.

The only place that says what a task takes on a machine and how many tasks an empty machine holds. Kernels read it from
tables (`task_kinds`); whether a region could ever host a workload is worked out from the shapes themselves.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from domain.fleet import Machine
from domain.identifiers import ANY_GPU_MODEL, GpuModel
from domain.resources import (
    TaskResources,
    capacity_mebibytes,
    capacity_millicpus,
    proportional_part,
    request_mebibytes,
    request_millicpus,
)

MOST_GPUS = 62
"""Of one machine: their indices are the bits of a signed 64-bit integer."""
GREATEST_AMOUNT = 1 << 40
"""Of any resource of a machine, so that sums and products stay within 64 bits and quotients in floating point,
rounded down, are exact."""

Amounts: TypeAlias = tuple[int, int, int]
"""GPUs, thousandths of a CPU, MiB."""


@dataclass(frozen=True, slots=True)
class MachineShape:
    """What all machines of one shape have."""

    gpu_model: GpuModel
    capacity: Amounts

    @staticmethod
    def of(machine: Machine) -> MachineShape:
        """The shape of a machine."""
        amounts = (machine.gpus, capacity_millicpus(machine.cpus), capacity_mebibytes(machine.memory_gib))
        return MachineShape(machine.gpu_model, amounts)

    @property
    def gpus(self) -> int:
        return self.capacity[0]

    def suits(self, resources: TaskResources) -> bool:
        """Whether its GPUs are of the kind that the task asks for (always, when it asks for none)."""
        return resources.gpus == 0 or (self.gpus > 0 and resources.gpu_model in (ANY_GPU_MODEL, self.gpu_model))

    def need_of(self, resources: TaskResources) -> Amounts:
        """What a task takes here. CPUs and memory left open are the proportional share, rounded down (Synergy §2)."""
        _, millicpus, mebibytes = self.capacity
        return (
            resources.gpus,
            proportional_part(millicpus, resources.gpus, self.gpus)
            if resources.cpus is None
            else request_millicpus(resources.cpus),
            proportional_part(mebibytes, resources.gpus, self.gpus)
            if resources.memory_gib is None
            else request_mebibytes(resources.memory_gib),
        )

    def tasks_when_empty(self, resources: TaskResources, most: int) -> int:
        """How many such tasks one empty machine holds, at most `most`."""
        if not self.suits(resources):
            return 0
        return tasks_within(self.capacity, self.need_of(resources), most)


def tasks_within(capacity: Amounts, need: Amounts, most: int) -> int:
    """How many times the need goes into the capacity, at most `most`."""
    tasks = most
    for has, needs in zip(capacity, need, strict=True):
        if needs > 0:
            tasks = min(tasks, has // needs)
    return tasks


class MachineShapes:
    """The distinct shapes of some clusters, numbered, so that one question can be put to all of these clusters."""

    __slots__ = ("_numbers", "amounts", "shapes")

    def __init__(self, machines: Iterable[Machine]) -> None:
        """Raises ValueError for a machine that a kernel could not count exactly."""
        self._numbers: dict[MachineShape, int] = {}
        for machine in machines:
            shape = MachineShape.of(machine)
            if shape not in self._numbers:
                _refuse_impossible(machine, shape)
                self._numbers[shape] = len(self._numbers)
        self.shapes = tuple(self._numbers)
        self.amounts: NDArray[np.int64] = np.array([s.capacity for s in self.shapes], np.int64).reshape(-1, 3)
        """[shape, resource]"""

    def number_of(self, machine: Machine) -> int:
        """The number of the machine's shape. Raises KeyError when it is none of these."""
        return self._numbers[MachineShape.of(machine)]


def _refuse_impossible(machine: Machine, shape: MachineShape) -> None:
    if not 0 <= machine.gpus <= MOST_GPUS or not all(0 <= amount <= GREATEST_AMOUNT for amount in shape.capacity):
        raise ValueError(
            f"machine {machine.machine} has {machine.gpus} GPUs, {machine.cpus} CPUs and {machine.memory_gib} GiB; "
            f"at most {MOST_GPUS} GPUs and {GREATEST_AMOUNT} thousandths of a CPU or MiB can be counted"
        )
