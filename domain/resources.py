"""Resource vectors: what a task asks for, what a machine has, what a tenant may use.

CPUs and memory may be fractional; they are compared in thousandths of a CPU and in MiB (`millicpus`,
`mebibytes`), so that sums never drift. A request is rounded up, a capacity down: never over-committed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from domain.identifiers import ANY_GPU_MODEL, GpuModel

_ROUNDING_SLACK = 1e-6


def request_millicpus(cpus: float) -> int:
    """CPUs asked for, in thousandths, rounded up."""
    return math.ceil(cpus * 1000 - _ROUNDING_SLACK)


def capacity_millicpus(cpus: float) -> int:
    """CPUs a machine has, in thousandths, rounded down."""
    return math.floor(cpus * 1000 + _ROUNDING_SLACK)


def request_mebibytes(memory_gib: float) -> int:
    """Memory asked for, in MiB, rounded up."""
    return math.ceil(memory_gib * 1024 - _ROUNDING_SLACK)


def capacity_mebibytes(memory_gib: float) -> int:
    """Memory a machine has, in MiB, rounded down."""
    return math.floor(memory_gib * 1024 + _ROUNDING_SLACK)


def proportional_part(capacity: int, gpus: int, of_gpus: int) -> int:
    """What so many of a machine's GPUs come with, of what the machine has, rounded down (Synergy §2)."""
    return capacity * gpus // max(of_gpus, 1)


class TaskResources(NamedTuple):
    """What one task asks of its machine.

    `cpus` or `memory_gib` None means the proportional share (Synergy §2): the machine's CPUs and memory
    divided by its GPUs, times the task's GPUs. A task without GPUs must say both.
    """

    gpus: int = 0
    gpu_model: GpuModel = ANY_GPU_MODEL
    cpus: float | None = None
    memory_gib: float | None = None


@dataclass(frozen=True, slots=True)
class ResourceVector:
    """An amount of resources: GPUs by model, CPUs, memory. Models are sorted and never zero."""

    gpus: tuple[tuple[GpuModel, int], ...] = ()
    cpus: float = 0.0
    memory_gib: float = 0.0

    @staticmethod
    def of(gpus: Mapping[GpuModel, int] | None = None, cpus: float = 0.0, memory_gib: float = 0.0) -> ResourceVector:
        """A vector from a mapping; models without GPUs are left out."""
        pairs = tuple(sorted((model, count) for model, count in (gpus or {}).items() if count))
        return ResourceVector(pairs, cpus, memory_gib)

    @staticmethod
    def total(vectors: Iterable[ResourceVector]) -> ResourceVector:
        """The sum of all."""
        gpus: dict[GpuModel, int] = {}
        cpus = memory_gib = 0.0
        for vector in vectors:
            for model, count in vector.gpus:
                gpus[model] = gpus.get(model, 0) + count
            cpus += vector.cpus
            memory_gib += vector.memory_gib
        return ResourceVector.of(gpus, cpus, memory_gib)

    @property
    def total_gpus(self) -> int:
        return sum(count for _, count in self.gpus)

    def gpus_of(self, model: GpuModel) -> int:
        return next((count for name, count in self.gpus if name == model), 0)


@dataclass(frozen=True, slots=True)
class Quota:
    """What a tenant may use at the same time at one priority: GPUs by model, and CPUs.

    The bucket `any` holds every model that has no bucket of its own, and requests for any model.
    `cpus` None means CPUs are not limited.
    """

    gpus: tuple[tuple[GpuModel, int], ...] = ()
    cpus: float | None = None
    _buckets: Mapping[GpuModel, int] = field(init=False, repr=False, compare=False, hash=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_buckets", dict(self.gpus))

    @staticmethod
    def of(gpus: Mapping[GpuModel, int] | None = None, cpus: float | None = None) -> Quota:
        return Quota(tuple(sorted((gpus or {}).items())), cpus)

    def bucket(self, requested_model: GpuModel) -> GpuModel:
        """The bucket that a request for this model is charged to: its own if there is one, else `any`."""
        return requested_model if requested_model in self._buckets else ANY_GPU_MODEL

    def gpus_in(self, bucket: GpuModel) -> int:
        return self._buckets.get(bucket, 0)
