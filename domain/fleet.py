"""Where workloads run: region, cluster, rack, machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from domain.cells import ClusterCells
from domain.identifiers import ClusterId, GpuModel, MachineId, RackId, RegionId
from domain.inference import InferenceSide

NO_GPU_MODEL = GpuModel("")
DEFAULT_MECHANISM = "packing"
CELLS_MECHANISM = "cells"
PLACEMENT_MECHANISMS = (DEFAULT_MECHANISM, CELLS_MECHANISM)
"""The names that a cluster's mechanism may have; `cluster_manager.mechanisms` says what each of them is."""


class MachineState(StrEnum):
    """What a machine is doing. `domain.machine_life_cycle` has the table of what may follow what."""

    # A machine for training.
    UP = "up"
    """It takes work."""
    DRAINING = "draining"
    """It keeps its work but takes none."""
    DOWN = "down"
    """It has lost its work."""
    DRAINING_DOWN = "draining_down"
    """It is down, and takes no work either when it is up again."""
    # A machine of an inference cluster (Lyra §2.1).
    SERVING = "serving"
    """It serves inference: training has no business on it."""
    ON_LOAN = "on_loan"
    """It is lent to training, and takes work."""
    RETURNING = "returning"
    """Inference wants it back: what runs on it is leaving, and it takes nothing new."""
    SERVING_DOWN = "serving_down"
    ON_LOAN_DOWN = "on_loan_down"
    RETURNING_DOWN = "returning_down"

    @property
    def takes_work(self) -> bool:
        """Whether new work may be put on it."""
        return self in _TAKING_WORK

    @property
    def is_down(self) -> bool:
        """Whether it has failed and is not repaired."""
        return self in _FAILED

    @property
    def is_lent(self) -> bool:
        """Whether an inference cluster has lent it and does not have it back yet, be it up or down."""
        return self in _LENT

    @property
    def is_of_inference(self) -> bool:
        """Whether it is a machine of an inference cluster, wherever it is."""
        return self in _OF_INFERENCE

    @property
    def counts_for_training(self) -> bool:
        """Whether it works and is training's to use, if only until what runs on it has left."""
        return self in _FOR_TRAINING


_TAKING_WORK = frozenset({MachineState.UP, MachineState.ON_LOAN})
_FAILED = frozenset(
    {
        MachineState.DOWN,
        MachineState.DRAINING_DOWN,
        MachineState.SERVING_DOWN,
        MachineState.ON_LOAN_DOWN,
        MachineState.RETURNING_DOWN,
    }
)
_LENT = frozenset(
    {MachineState.ON_LOAN, MachineState.ON_LOAN_DOWN, MachineState.RETURNING, MachineState.RETURNING_DOWN}
)
_OF_INFERENCE = _LENT | {MachineState.SERVING, MachineState.SERVING_DOWN}
_FOR_TRAINING = _TAKING_WORK | {MachineState.DRAINING, MachineState.RETURNING}


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine. All its GPUs are of one model; `gpus` is at most 62."""

    machine: MachineId
    gpu_model: GpuModel
    gpus: int
    cpus: float
    memory_gib: float


@dataclass(frozen=True, slots=True)
class Rack:
    """Within a region a rack's name stands for one rack, whichever clusters its machines belong to."""

    rack: RackId
    machines: tuple[Machine, ...]
    power_domain: str = ""
    """What its power comes from: all racks of a power domain may fail together. Empty: it is not known."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """MAST's dynamic cluster: its membership may change."""

    cluster: ClusterId
    racks: tuple[Rack, ...]
    mechanism: str = DEFAULT_MECHANISM
    """What places jobs in it: a name of `cluster_manager.mechanisms`."""
    cells: ClusterCells = ClusterCells()
    """How it is divided, for the mechanism that places jobs in cells."""
    inference: InferenceSide | None = None
    """Its machines serve inference, which lends them to training; None: they are for training."""

    @property
    def has_cells(self) -> bool:
        """Whether it is divided into cells."""
        return self.mechanism == CELLS_MECHANISM

    def machines(self) -> Iterator[Machine]:
        for rack in self.racks:
            yield from rack.machines


@dataclass(frozen=True, slots=True)
class Region:
    region: RegionId
    clusters: tuple[Cluster, ...]

    def machines(self) -> Iterator[Machine]:
        for cluster in self.clusters:
            yield from cluster.machines()


@dataclass(frozen=True, slots=True)
class Fleet:
    """All regions. Machine and cluster names are unique in the whole fleet."""

    regions: tuple[Region, ...]

    def region(self, region: RegionId) -> Region:
        """The region of that name; raises KeyError when there is none."""
        for candidate in self.regions:
            if candidate.region == region:
                return candidate
        raise KeyError(region)

    def clusters_with_cells(self) -> tuple[Cluster, ...]:
        """The clusters that are divided into cells, in the order of the fleet."""
        return tuple(cluster for region in self.regions for cluster in region.clusters if cluster.has_cells)

    def gpu_models(self) -> tuple[GpuModel, ...]:
        """Every GPU model of the fleet, sorted."""
        return tuple(sorted({m.gpu_model for region in self.regions for m in region.machines() if m.gpus > 0}))
