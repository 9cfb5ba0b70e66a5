"""Where workloads run: region, cluster, rack, machine; and which region holds which table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from domain.identifiers import ClusterId, GpuModel, MachineId, RackId, RegionId, TableId

NO_GPU_MODEL = GpuModel("")


class MachineState(StrEnum):
    """`up` takes work; `draining` keeps its work but takes none; `down` has lost it."""

    UP = "up"
    DRAINING = "draining"
    DOWN = "down"


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
    rack: RackId
    machines: tuple[Machine, ...]


@dataclass(frozen=True, slots=True)
class Cluster:
    """MAST's dynamic cluster: its membership may change."""

    cluster: ClusterId
    racks: tuple[Rack, ...]

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
class Table:
    """A table of the data warehouse: new data appears in its home region; replicas may be behind (MAST §3.1)."""

    table: TableId
    size_bytes: int
    home: RegionId
    replicas: tuple[RegionId, ...] = ()

    @property
    def regions(self) -> tuple[RegionId, ...]:
        """All regions that hold a complete copy, home first."""
        return (self.home, *(region for region in self.replicas if region != self.home))


@dataclass(frozen=True, slots=True)
class Fleet:
    """All regions and tables. Machine and cluster names are unique in the whole fleet."""

    regions: tuple[Region, ...]
    tables: tuple[Table, ...] = ()

    def region(self, region: RegionId) -> Region:
        """The region of that name; raises KeyError when there is none."""
        for candidate in self.regions:
            if candidate.region == region:
                return candidate
        raise KeyError(region)

    def gpu_models(self) -> tuple[GpuModel, ...]:
        """Every GPU model of the fleet, sorted."""
        return tuple(sorted({m.gpu_model for region in self.regions for m in region.machines() if m.gpus > 0}))
