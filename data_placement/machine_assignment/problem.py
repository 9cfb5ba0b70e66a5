"""The machines that may change their cluster, and what the clusters ask for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from domain.capacity_requests import CapacityRequest, CapacityUnit
from domain.identifiers import ClusterId, GpuModel, MachineId, RackId


@dataclass(frozen=True, slots=True)
class AssignableMachine:
    """A machine that works and may change its cluster."""

    machine: MachineId
    cluster: ClusterId
    """Where it is, also while it is on its way to another one."""
    rack: RackId
    power_domain: str
    gpu_model: GpuModel
    gpus: int
    running: int = 0
    """What a move would disturb: GPUs in use, and 1 where something runs that uses none."""

    def units(self, unit: CapacityUnit) -> int:
        """How much it counts in a request of that unit."""
        return self.gpus if unit is CapacityUnit.GPUS else 1


@dataclass(frozen=True, slots=True)
class AssignmentProblem:
    """One region. Machines are sorted by name; requests are in the order of their file, one for a cluster and model."""

    machines: tuple[AssignableMachine, ...]
    requests: tuple[CapacityRequest, ...]

    def by_model(self) -> Iterator[ModelProblem]:
        """Its parts, which have nothing to do with each other: one for each GPU model that is asked for, sorted."""
        for model in sorted({request.gpu_model for request in self.requests}):
            yield ModelProblem(
                model,
                tuple([machine for machine in self.machines if machine.gpu_model == model]),
                tuple([request for request in self.requests if request.gpu_model == model]),
            )


@dataclass(frozen=True, slots=True)
class ModelProblem:
    """The machines of one GPU model, and what is asked for of them."""

    gpu_model: GpuModel
    machines: tuple[AssignableMachine, ...]
    requests: tuple[CapacityRequest, ...]

    def pools(self) -> tuple[tuple[CapacityRequest, ...], ...]:
        """The requests that share their spares; one that shares them with none is a pool of its own."""
        pools: dict[tuple[str, str], list[CapacityRequest]] = {}
        for request in self.requests:
            key = ("pool", request.spare_pool) if request.spare_pool else ("cluster", request.cluster)
            pools.setdefault(key, []).append(request)
        return tuple([tuple(pool) for pool in pools.values()])
