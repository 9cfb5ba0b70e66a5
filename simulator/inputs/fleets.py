"""The fleet of a simulation: from a fleet file, from a list of nodes, or from numbers alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from domain.fleet import NO_GPU_MODEL, Cluster, Fleet, Machine, Rack, Region
from domain.identifiers import IDENTIFIER_PATTERN, ClusterId, GpuModel, MachineId, RackId, RegionId
from formats.fleet_file import GREATEST_MACHINES, FleetFile, check_fleet, read_fleet_file
from formats.problems import FieldProblem, FormatError, in_quotes
from formats.schema import GREATEST_CPUS_PER_MACHINE, GREATEST_GPUS_PER_MACHINE, GREATEST_MEMORY_GIB
from simulator.inputs.node_lists import is_node_list, read_node_list

CPUS_PER_GPU = 12.0
MEMORY_GIB_PER_GPU = 64.0
"""Of machines that are made from numbers: 96 CPUs and 512 GiB for 8 GPUs, as the V100 machines of Alibaba's v2020."""
CPU_MACHINE_CPUS = 64.0
CPU_MACHINE_MEMORY_GIB = 256.0
_is_name = re.compile(IDENTIFIER_PATTERN).fullmatch


@dataclass(frozen=True, slots=True)
class FleetSource:
    """Where a fleet comes from: exactly one of `file`, `gpus` and `region_gpus`; the rest says how it is divided."""

    file: Path | None = None
    """fleet.yaml, or a list of nodes: a CSV with the columns node, gpu_model, gpus, cpus, memory_gib, or one of
    Alibaba's own (openb_node_list, pai_machine_spec)."""
    gpus: int | None = None
    """In all regions together."""
    region_gpus: tuple[tuple[str, int], ...] = ()
    """Regions by name and size: `(("itp01", 29), ("itp02", 87))`."""
    regions: int = 1
    """How many, named region-1, region-2, ...; for `gpus` and lists of nodes."""
    clusters_per_region: int = 1
    machines_per_rack: int = 16
    gpus_per_machine: int = 8
    """A region whose GPUs are no multiple of it has one smaller machine, so that its size is exact."""
    gpu_model: str = "V100"
    cpus_per_gpu: float = CPUS_PER_GPU
    memory_gib_per_gpu: float = MEMORY_GIB_PER_GPU
    cpu_machines: int = 0
    """Machines without GPUs, in all regions together, each with 64 CPUs and 256 GiB."""


def fleet_from(source: FleetSource) -> Fleet:
    """The fleet; raises FormatError, naming the option, when the numbers or the file make no sense."""
    return fleet_file_from(source).fleet


def fleet_file_from(source: FleetSource) -> FleetFile:
    """The fleet, and the tables if a fleet file names any; raises FormatError as `fleet_from`."""
    _check(source)
    if source.file is not None and not is_node_list(source.file):
        return read_fleet_file(source.file)
    if source.file is not None:
        regions = _regions_of_nodes(source, source.file)
    else:
        sizes = _region_sizes(source)
        cpu_machines = _divided(source.cpu_machines, len(sizes))
        regions = tuple(
            _region_of_size(source, name, gpus, cpu_machines[index]) for index, (name, gpus) in enumerate(sizes)
        )
    fleet = Fleet(regions)
    problems = check_fleet(fleet)
    if problems:
        raise FormatError(str(source.file or "fleet"), problems)
    return FleetFile(fleet)


def parse_region_gpus(text: str) -> tuple[tuple[str, int], ...]:
    """Regions by name and size from `itp01=29,itp02=87`; raises FormatError."""
    sizes: list[tuple[str, int]] = []
    for part in text.split(","):
        name, _, gpus = (piece.strip() for piece in part.partition("="))
        if not _is_name(name) or not gpus.isascii() or not gpus.isdigit():
            description = f"must be name=GPUs, such as itp01=29,itp02=87, not {in_quotes(part)}"
            raise FormatError("--region-gpus", [FieldProblem("", description)])
        sizes.append((name, int(gpus)))
    return tuple(sizes)


def gpus_of_fleet(fleet: Fleet) -> int:
    """GPUs of all machines."""
    return sum(machine.gpus for region in fleet.regions for machine in region.machines())


def gpus_of_regions(fleet: Fleet) -> tuple[tuple[RegionId, int], ...]:
    """Each region, in order, with its GPUs."""
    return tuple((region.region, sum(machine.gpus for machine in region.machines())) for region in fleet.regions)


def _check(source: FleetSource) -> None:
    given = [name for name, there in _ways(source) if there]
    if len(given) != 1:
        described = f"{' and '.join(given)} are given" if given else "none is given"
        raise FormatError("fleet", [FieldProblem("", f"say one of --fleet, --gpus and --region-gpus: {described}")])
    per_machine = max(1, source.gpus_per_machine)
    bounds: tuple[tuple[str, float, float, float], ...] = (
        ("--gpus", source.gpus if source.gpus is not None else 1, 1, GREATEST_MACHINES * GREATEST_GPUS_PER_MACHINE),
        *(
            (f"--region-gpus {name}", gpus, 1, GREATEST_MACHINES * GREATEST_GPUS_PER_MACHINE)
            for name, gpus in source.region_gpus
        ),
        ("--regions", source.regions, 1, 10_000),
        ("--clusters-per-region", source.clusters_per_region, 1, 10_000),
        ("--machines-per-rack", source.machines_per_rack, 1, GREATEST_MACHINES),
        ("--gpus-per-machine", source.gpus_per_machine, 1, GREATEST_GPUS_PER_MACHINE),
        ("--cpus-per-gpu", source.cpus_per_gpu, 0.001, GREATEST_CPUS_PER_MACHINE / per_machine),
        ("--memory-gib-per-gpu", source.memory_gib_per_gpu, 0.001, GREATEST_MEMORY_GIB / per_machine),
        ("--cpu-machines", source.cpu_machines, 0, 100 * GREATEST_MACHINES),
    )
    problems = [
        FieldProblem(option, f"must be from {least:g} to {greatest:g}, not {value:g}")
        for option, value, least, greatest in bounds
        if not least <= value <= greatest
    ]
    if not _is_name(source.gpu_model) or source.gpu_model == "any":
        problems.append(FieldProblem("--gpu-model", f"must be a model's name, not {in_quotes(source.gpu_model)}"))
    names = [name for name, _ in source.region_gpus]
    problems += [
        FieldProblem("--region-gpus", f"names {name} twice")
        for name in sorted({n for n in names if names.count(n) > 1})
    ]
    if problems:
        raise FormatError("fleet", problems)


def _ways(source: FleetSource) -> tuple[tuple[str, bool], ...]:
    return (
        ("--fleet", source.file is not None),
        ("--gpus", source.gpus is not None),
        ("--region-gpus", bool(source.region_gpus)),
    )


def _region_sizes(source: FleetSource) -> list[tuple[str, int]]:
    """Names and GPUs; a total is divided by whole machines."""
    if source.region_gpus:
        return list(source.region_gpus)
    gpus = source.gpus or 0
    machines = -(-gpus // source.gpus_per_machine)
    if machines < source.regions:
        description = f"come to {machines} machines, fewer than the {source.regions} regions; say fewer --regions"
        raise FormatError("fleet", [FieldProblem("--gpus", description)])
    sizes = [share * source.gpus_per_machine for share in _divided(machines, source.regions)]
    sizes[-1] -= machines * source.gpus_per_machine - gpus
    return [(f"region-{number}", size) for number, size in enumerate(sizes, 1)]


def _region_of_size(source: FleetSource, name: str, gpus: int, cpu_machines: int) -> Region:
    whole, rest = divmod(gpus, source.gpus_per_machine)
    shares = _divided(whole, source.clusters_per_region)
    cpu_shares = _divided(cpu_machines, source.clusters_per_region)
    clusters = []
    for number, machines in enumerate(shares):
        sizes = [source.gpus_per_machine] * machines
        if rest and number == len(shares) - 1:
            sizes.append(rest)
        shapes = [_gpu_machine(source, size) for size in sizes]
        shapes += [_shape(0, NO_GPU_MODEL, CPU_MACHINE_CPUS, CPU_MACHINE_MEMORY_GIB)] * cpu_shares[number]
        racks = _in_racks(shapes, source.machines_per_rack)
        clusters.append(_cluster(name, number + 1, racks))
    return Region(RegionId(name), tuple(clusters))


def _regions_of_nodes(source: FleetSource, file: Path) -> tuple[Region, ...]:
    """Nodes of one kind share racks; racks go round the clusters, so that all are mixed alike."""
    nodes = read_node_list(file, source.cpus_per_gpu, source.memory_gib_per_gpu)
    kinds: dict[tuple[str, int], list[Machine]] = {}
    for node in nodes:
        kinds.setdefault((node.gpu_model, node.gpus), []).append(node)
    racks = [rack for kind in kinds.values() for rack in _in_racks(kind, source.machines_per_rack)]
    places = source.regions * source.clusters_per_region
    if len(racks) < places:
        description = f"has {len(racks)} racks' worth of machines, fewer than {places} clusters; say fewer --regions"
        raise FormatError(str(file), [FieldProblem("", description)])
    return tuple(
        Region(
            RegionId(f"region-{region + 1}"),
            tuple(
                _cluster(
                    f"region-{region + 1}", cluster + 1, racks[cluster * source.regions + region :: places], named=True
                )
                for cluster in range(source.clusters_per_region)
            ),
        )
        for region in range(source.regions)
    )


def _gpu_machine(source: FleetSource, gpus: int) -> Machine:
    model = GpuModel(source.gpu_model)
    return _shape(gpus, model, source.cpus_per_gpu * gpus, source.memory_gib_per_gpu * gpus)


def _shape(gpus: int, model: GpuModel, cpus: float, memory_gib: float) -> Machine:
    """A machine that has no name yet."""
    return Machine(MachineId(""), model, gpus, cpus, memory_gib)


def _in_racks(machines: Sequence[Machine], per_rack: int) -> list[Sequence[Machine]]:
    return [machines[first : first + per_rack] for first in range(0, len(machines), per_rack)]


def _cluster(region: str, number: int, racks: Sequence[Sequence[Machine]], *, named: bool = False) -> Cluster:
    """A cluster of these racks; its machines are named after their place unless they have names."""
    cluster = f"{region}-c{number:02d}"
    made = []
    for index, machines in enumerate(racks, 1):
        rack = f"{cluster}-r{index:02d}"
        made.append(
            Rack(
                RackId(rack),
                tuple(
                    machine if named else _named(machine, f"{rack}-m{place:02d}")
                    for place, machine in enumerate(machines, 1)
                ),
            )
        )
    return Cluster(ClusterId(cluster), tuple(made))


def _named(machine: Machine, name: str) -> Machine:
    return Machine(MachineId(name), machine.gpu_model, machine.gpus, machine.cpus, machine.memory_gib)


def _divided(amount: int, parts: int) -> list[int]:
    """As evenly as whole numbers allow; the first parts get one more."""
    share, rest = divmod(amount, parts)
    return [share + (part < rest) for part in range(parts)]
