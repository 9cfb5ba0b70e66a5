"""fleet.yaml: regions, their clusters, racks and machines; and, beside them, which region holds which table.

Machines are listed one by one under `racks`, or by the number under `machine_groups`; a group's machines get
names from their place: `east-a-r01-m03` is the third machine of the first rack of cluster `east-a`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from domain.fleet import (
    DEFAULT_MECHANISM,
    NO_GPU_MODEL,
    PLACEMENT_MECHANISMS,
    Cluster,
    Fleet,
    Machine,
    Rack,
    Region,
)
from domain.identifiers import ANY_GPU_MODEL, ClusterId, GpuModel, MachineId, RackId, RegionId, TableId
from domain.table import Table
from formats.cell_hierarchies import ClusterCellsSchema, cell_hierarchy_problems, cells_document, cluster_cells
from formats.inference_side import InferenceSchema, inference_document, inference_problems, inference_side
from formats.mechanism_names import mechanism_names
from formats.problems import FieldProblem, FormatError, suggestion
from formats.schema import (
    GREATEST_CPUS_PER_MACHINE,
    GREATEST_GPUS_PER_MACHINE,
    GREATEST_MEMORY_GIB,
    Name,
    Schema,
    parse_schema,
)
from formats.text_stream import read_text
from formats.yaml_document import dump_document, load_document

GREATEST_MACHINES = 1_000_000
"""In one fleet file. More is a slip of the finger, and would exhaust the memory before anyone noticed."""
GREATEST_TABLE_BYTES = 2**62
BYTES_PER_GIB = 2**30

_Gpus = Annotated[int, Field(ge=0, le=GREATEST_GPUS_PER_MACHINE)]
_Cpus = Annotated[float, Field(gt=0, le=GREATEST_CPUS_PER_MACHINE)]
_MemoryGib = Annotated[float, Field(gt=0, le=GREATEST_MEMORY_GIB)]
_Count = Annotated[int, Field(ge=1, le=GREATEST_MACHINES)]


class MachineSchema(Schema):
    machine: Name
    gpu_model: Name | None = None
    gpus: _Gpus = 0
    cpus: _Cpus
    memory_gib: _MemoryGib


class RackSchema(Schema):
    rack: Name
    power_domain: Name | None = None
    machines: list[MachineSchema]


class MachineGroupSchema(Schema):
    count: _Count
    machines_per_rack: _Count = 16
    power_domain: Name | None = None
    gpu_model: Name | None = None
    gpus: _Gpus = 0
    cpus: _Cpus
    memory_gib: _MemoryGib


class ClusterSchema(Schema):
    cluster: Name
    mechanism: Name = DEFAULT_MECHANISM
    cells: ClusterCellsSchema | None = None
    inference: InferenceSchema | None = None
    racks: list[RackSchema] = []
    machine_groups: list[MachineGroupSchema] = []


class RegionSchema(Schema):
    region: Name
    clusters: list[ClusterSchema]


class TableSchema(Schema):
    table: Name
    size_bytes: Annotated[int, Field(ge=0, le=GREATEST_TABLE_BYTES)] | None = None
    size_gib: Annotated[float, Field(ge=0, le=GREATEST_TABLE_BYTES / BYTES_PER_GIB)] | None = None
    home: Name
    replicas: list[Name] = []


class FleetSchema(Schema):
    regions: list[RegionSchema]
    tables: list[TableSchema] = []


@dataclass(frozen=True, slots=True)
class FleetFile:
    """What a fleet file describes: the fleet, and the tables, which are no part of it."""

    fleet: Fleet
    tables: tuple[Table, ...] = ()


def read_fleet(path: Path) -> Fleet:
    """The fleet of a file, where its tables do not matter; raises FormatError with every problem."""
    return read_fleet_file(path).fleet


def read_fleet_file(path: Path) -> FleetFile:
    """The fleet and the tables of a file; raises FormatError with every problem."""
    return parse_fleet_file(read_text(path), str(path))


def parse_fleet_file(text: str, source: str = "fleet.yaml") -> FleetFile:
    """The fleet and the tables of a YAML text; raises FormatError with every problem."""
    return fleet_file_from_document(load_document(text, source), source)


def fleet_file_from_document(document: object, source: str = "fleet") -> FleetFile:
    """The same of a parsed document (nested mappings and lists); raises FormatError with every problem."""
    schema = parse_schema(FleetSchema, document, source)
    problems = _size_problems(schema) or [
        *_machine_problems(schema),
        *_cells_problems(schema),
        *_inference_problems(schema),
    ]
    if problems:
        raise FormatError(source, problems)
    fleet = Fleet(tuple(_region(region) for region in schema.regions))
    tables = tuple(_table(table) for table in schema.tables)
    problems = check_fleet(fleet) + check_tables(fleet, tables) + _table_size_problems(schema)
    if problems:
        raise FormatError(source, problems)
    return FleetFile(fleet, tables)


def fleet_document(fleet: Fleet, tables: Iterable[Table] = ()) -> dict[str, object]:
    """Both as a document with every machine written out; `fleet_file_from_document` gives the same back."""
    return {
        "regions": [
            {
                "region": str(region.region),
                "clusters": [_cluster_document(cluster) for cluster in region.clusters],
            }
            for region in fleet.regions
        ],
        "tables": [
            {
                "table": str(table.table),
                "size_bytes": table.size_bytes,
                "home": str(table.home),
                "replicas": [str(region) for region in table.replicas],
            }
            for table in tables
        ],
    }


def dump_fleet(fleet: Fleet, tables: Iterable[Table] = ()) -> str:
    """Both as YAML; `parse_fleet_file` gives the same back."""
    return dump_document(fleet_document(fleet, tables))


def check_fleet(fleet: Fleet) -> list[FieldProblem]:
    """What is wrong between the parts of a fleet: names used twice, mechanisms that there are not.

    Raises FormatError for an installed package that should bring a mechanism and does not.
    """
    problems: list[FieldProblem] = []
    if not fleet.regions:
        problems.append(FieldProblem("regions", "is empty; a fleet has at least one region"))
    claim = _Claims(problems).claim
    for r, region in enumerate(fleet.regions):
        claim("region", region.region, f"regions[{r}]")
        problems += _power_domain_problems(region, f"regions[{r}]")
        for c, cluster in enumerate(region.clusters):
            claim("cluster", cluster.cluster, f"regions[{r}].clusters[{c}]")
            problems += _mechanism_problems(cluster.mechanism, f"regions[{r}].clusters[{c}].mechanism")
            for k, rack in enumerate(cluster.racks):
                claim(f"cluster {cluster.cluster}'s rack", rack.rack, f"regions[{r}].clusters[{c}].racks[{k}]")
                for m, machine in enumerate(rack.machines):
                    claim("machine", machine.machine, f"regions[{r}].clusters[{c}].racks[{k}].machines[{m}]")
    return problems


def _mechanism_problems(name: str, field: str) -> list[FieldProblem]:
    # Packages are only asked for what is not built in: to look for them takes longer than to read the file.
    if name in PLACEMENT_MECHANISMS or name in (known := mechanism_names()):
        return []
    return [FieldProblem(field, f"there is no placement mechanism {name}; {suggestion(name, known, 'mechanism')}")]


def _power_domain_problems(region: Region, field: str) -> list[FieldProblem]:
    """Racks that would have two: in the clusters of a region the same name is the same rack."""
    problems: list[FieldProblem] = []
    first: dict[RackId, tuple[str, str]] = {}
    for c, cluster in enumerate(region.clusters):
        for k, rack in enumerate(cluster.racks):
            where = f"{field}.clusters[{c}].racks[{k}]"
            domain, known = first.setdefault(rack.rack, (rack.power_domain, where))
            if domain != rack.power_domain:
                description = (
                    f"is {rack.power_domain or 'missing'}, but rack {rack.rack} has {domain or 'none'} at {known}; "
                    "a rack has one power domain: give both the same, or rename one rack"
                )
                problems.append(FieldProblem(f"{where}.power_domain", description))
    return problems


def check_tables(fleet: Fleet, tables: Iterable[Table]) -> list[FieldProblem]:
    """What is wrong with the tables of a fleet file: names used twice, regions that the fleet does not have."""
    problems: list[FieldProblem] = []
    claim = _Claims(problems).claim
    known_regions = {str(region.region) for region in fleet.regions}
    for t, table in enumerate(tables):
        claim("table", table.table, f"tables[{t}]")
        held = (("home", table.home), *((f"replicas[{i}]", name) for i, name in enumerate(table.replicas)))
        for field, name in held:
            if name not in known_regions:
                description = f"there is no region {name}; {suggestion(name, known_regions, 'region')}"
                problems.append(FieldProblem(f"tables[{t}].{field}", description))
    return problems


class _Claims:
    """Which name was first used where; names are unique among the things of a kind."""

    def __init__(self, problems: list[FieldProblem]) -> None:
        self._problems = problems
        self._places: dict[tuple[str, str], str] = {}

    def claim(self, kind: str, name: str, field: str) -> None:
        """Adds a problem when another field has the name already."""
        first = self._places.setdefault((kind, name), field)
        if first != field:
            description = f"{kind} {name} is already at {first}; names are unique, rename one"
            self._problems.append(FieldProblem(field, description))


def _size_problems(schema: FleetSchema) -> list[FieldProblem]:
    machines = sum(
        sum(len(rack.machines) for rack in cluster.racks) + sum(group.count for group in cluster.machine_groups)
        for region in schema.regions
        for cluster in region.clusters
    )
    if machines > GREATEST_MACHINES:
        return [FieldProblem("regions", f"have {machines} machines together; at most {GREATEST_MACHINES} are possible")]
    return []


def _machine_problems(schema: FleetSchema) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    for r, region in enumerate(schema.regions):
        for c, cluster in enumerate(region.clusters):
            place = f"regions[{r}].clusters[{c}]"
            for k, rack in enumerate(cluster.racks):
                for m, machine in enumerate(rack.machines):
                    problems += _gpu_problems(machine, f"{place}.racks[{k}].machines[{m}]")
            for g, group in enumerate(cluster.machine_groups):
                problems += _gpu_problems(group, f"{place}.machine_groups[{g}]")
    return problems


def _cells_problems(schema: FleetSchema) -> list[FieldProblem]:
    return [
        problem
        for r, region in enumerate(schema.regions)
        for c, cluster in enumerate(region.clusters)
        for problem in cell_hierarchy_problems(cluster.cells, cluster.mechanism, f"regions[{r}].clusters[{c}]")
    ]


def _inference_problems(schema: FleetSchema) -> list[FieldProblem]:
    return [
        problem
        for r, region in enumerate(schema.regions)
        for c, cluster in enumerate(region.clusters)
        for problem in inference_problems(cluster.inference, f"regions[{r}].clusters[{c}].inference")
    ]


def _gpu_problems(machine: MachineSchema | MachineGroupSchema, field: str) -> list[FieldProblem]:
    if machine.gpus > 0 and machine.gpu_model is None:
        return [FieldProblem(f"{field}.gpu_model", f"is missing; say which model the {machine.gpus} GPUs are")]
    if machine.gpus == 0 and machine.gpu_model is not None:
        return [FieldProblem(f"{field}.gpus", f"is 0, but gpu_model is {machine.gpu_model}; leave gpu_model out")]
    if machine.gpu_model == ANY_GPU_MODEL:
        return [FieldProblem(f"{field}.gpu_model", "must be a real model; 'any' is what requests and quotas may say")]
    return []


def _table_size_problems(schema: FleetSchema) -> list[FieldProblem]:
    return [
        FieldProblem(f"tables[{t}]", "must have either size_gib or size_bytes")
        for t, table in enumerate(schema.tables)
        if (table.size_bytes is None) == (table.size_gib is None)
    ]


def _region(schema: RegionSchema) -> Region:
    return Region(RegionId(schema.region), tuple(_cluster(cluster) for cluster in schema.clusters))


def _cluster(schema: ClusterSchema) -> Cluster:
    racks = [
        Rack(
            RackId(rack.rack),
            tuple(_machine(machine.machine, machine) for machine in rack.machines),
            rack.power_domain or "",
        )
        for rack in schema.racks
    ]
    number = 0
    for group in schema.machine_groups:
        for first in range(0, group.count, group.machines_per_rack):
            number += 1
            rack_name = f"{schema.cluster}-r{number:02d}"
            in_rack = min(group.machines_per_rack, group.count - first)
            machines = tuple(_machine(f"{rack_name}-m{index:02d}", group) for index in range(1, in_rack + 1))
            racks.append(Rack(RackId(rack_name), machines, group.power_domain or ""))
    return Cluster(
        ClusterId(schema.cluster),
        tuple(racks),
        schema.mechanism,
        cluster_cells(schema.cells),
        inference_side(schema.inference),
    )


def _machine(name: str, schema: MachineSchema | MachineGroupSchema) -> Machine:
    model = GpuModel(schema.gpu_model) if schema.gpu_model is not None else NO_GPU_MODEL
    return Machine(MachineId(name), model, schema.gpus, float(schema.cpus), float(schema.memory_gib))


def _table(schema: TableSchema) -> Table:
    size_bytes = schema.size_bytes if schema.size_bytes is not None else round((schema.size_gib or 0) * BYTES_PER_GIB)
    return Table(TableId(schema.table), size_bytes, RegionId(schema.home), tuple(RegionId(r) for r in schema.replicas))


def _cluster_document(cluster: Cluster) -> dict[str, object]:
    racks = [
        {"rack": str(rack.rack)}
        | ({"power_domain": rack.power_domain} if rack.power_domain else {})
        | {"machines": [_machine_document(machine) for machine in rack.machines]}
        for rack in cluster.racks
    ]
    document: dict[str, object] = {"cluster": str(cluster.cluster)}
    if cluster.mechanism != DEFAULT_MECHANISM:
        document["mechanism"] = cluster.mechanism
    if cluster.cells.hierarchies:
        document["cells"] = cells_document(cluster.cells)
    if cluster.inference is not None:
        document["inference"] = inference_document(cluster.inference)
    return document | {"racks": racks}


def _machine_document(machine: Machine) -> dict[str, object]:
    document: dict[str, object] = {"machine": str(machine.machine)}
    if machine.gpus:
        document |= {"gpu_model": str(machine.gpu_model), "gpus": machine.gpus}
    return document | {"cpus": machine.cpus, "memory_gib": machine.memory_gib}
