"""Virtual clusters as tenants.yaml declares them: cells of levels, or "32 GPUs in 4 machines"; and cells pinned by name.

A simulation can take them from a file of their own (`--vcs`): `tenants`, each with `tenant` and `virtual_clusters`. A
tenants.yaml is such a file, too. Whether a fleet has all these cells, `cluster_manager.cells.declared` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

from domain.declared_cells import (
    Declarations,
    DeclaredCells,
    DeclaredMachines,
    DeclaredPin,
    DeclaredVirtualCluster,
)
from domain.identifiers import ANY_GPU_MODEL, ClusterId, GpuModel, MachineId, TenantId
from formats.problems import FieldProblem, FormatError
from formats.schema import GREATEST_GPUS_PER_MACHINE, Name, Schema, parse_schema
from formats.text_stream import read_text
from formats.yaml_document import load_document

GREATEST_CELLS = 100_000_000
"""Of one level, in one declaration."""

_Count = Annotated[int, Field(ge=1, le=GREATEST_CELLS)]


class DeclaredCellsSchema(Schema):
    hierarchy: Name | None = None
    level: Name
    cells: _Count


class DeclaredPinSchema(Schema):
    name: Name
    hierarchy: Name | None = None
    level: Name
    machine: Name
    gpu: Annotated[int, Field(ge=0, lt=GREATEST_GPUS_PER_MACHINE)] = 0


class VirtualClusterSchema(Schema):
    """Either `cells` or `gpus` in `machines`; or only `pinned`."""

    cluster: Name
    cells: list[DeclaredCellsSchema] = []
    pinned: list[DeclaredPinSchema] = []
    gpu_model: Name | None = None
    gpus: _Count | None = None
    machines: _Count | None = None


class _OwnerSchema(Schema):
    """A tenant of whom only the virtual clusters matter here; what else tenants.yaml says is checked there."""

    tenant: Name
    virtual_clusters: list[VirtualClusterSchema] = []
    priority: object = None
    quota: object = None
    quotas: object = None
    fair_share_weight: object = None


class _OwnersSchema(Schema):
    tenants: list[_OwnerSchema]


def read_virtual_clusters(path: Path) -> Declarations:
    """The virtual clusters of a file, by tenant, in its order; raises FormatError with every problem."""
    return parse_virtual_clusters(read_text(path), str(path))


def parse_virtual_clusters(text: str, source: str = "virtual clusters") -> Declarations:
    """The same of a YAML text; raises FormatError with every problem."""
    schema = parse_schema(_OwnersSchema, load_document(text, source, numbered_fields=("quotas",)), source)
    problems: list[FieldProblem] = []
    owners: dict[TenantId, tuple[DeclaredVirtualCluster, ...]] = {}
    for index, owner in enumerate(schema.tenants):
        field = f"tenants[{index}]"
        if owner.tenant in owners:
            description = f"tenant {owner.tenant} is there already; names are unique, rename one"
            problems.append(FieldProblem(f"{field}.tenant", description))
        problems += virtual_cluster_problems(owner.virtual_clusters, f"{field}.virtual_clusters")
        owners[TenantId(owner.tenant)] = declared_virtual_clusters(owner.virtual_clusters)
    if not any(owners.values()):
        problems.append(FieldProblem("tenants", "have no virtual_clusters; give at least one of them some"))
    if problems:
        raise FormatError(source, problems)
    return owners


def virtual_cluster_problems(schemas: Sequence[VirtualClusterSchema], field: str) -> list[FieldProblem]:
    """What is wrong in one tenant's list, whatever the fleet; `field` is the path of the list."""
    problems: list[FieldProblem] = []
    for index, schema in enumerate(schemas):
        path = f"{field}[{index}]"
        short = {"gpus": schema.gpus, "machines": schema.machines}
        given = [name for name, value in short.items() if value is not None]
        if schema.cells and given:
            description = "says cells and " + " and ".join(given) + "; say either cells, or gpus and machines"
            problems.append(FieldProblem(path, description))
        elif len(given) == 1:
            (missing,) = set(short) - set(given)
            problems.append(FieldProblem(f"{path}.{missing}", f"is missing beside {given[0]}; add it"))
        elif not (schema.cells or given or schema.pinned):
            problems.append(FieldProblem(path, "owns nothing; say cells, or gpus and machines, or pinned"))
        if schema.gpu_model is not None and not given:
            problems.append(
                FieldProblem(f"{path}.gpu_model", "goes with gpus and machines; cells say their hierarchy instead")
            )
        if schema.gpu_model == ANY_GPU_MODEL:
            problems.append(
                FieldProblem(f"{path}.gpu_model", "must be a real model; leave it out if there is only one")
            )
    return problems


def declared_virtual_clusters(schemas: Sequence[VirtualClusterSchema]) -> tuple[DeclaredVirtualCluster, ...]:
    """The virtual clusters of a list that has no problems."""
    return tuple(_declared(schema) for schema in schemas)


def virtual_clusters_document(declared: Sequence[DeclaredVirtualCluster]) -> list[dict[str, object]]:
    """The list as a document; reading it gives the same back."""
    return [_document(virtual_cluster) for virtual_cluster in declared]


def virtual_clusters_from_document(document: Sequence[object]) -> tuple[DeclaredVirtualCluster, ...]:
    """The virtual clusters of a document that `virtual_clusters_document` wrote. Raises ValueError for another one."""
    return declared_virtual_clusters([VirtualClusterSchema.model_validate(entry) for entry in document])


def _declared(schema: VirtualClusterSchema) -> DeclaredVirtualCluster:
    machines = None
    if schema.gpus is not None and schema.machines is not None:
        model = GpuModel(schema.gpu_model) if schema.gpu_model is not None else None
        machines = DeclaredMachines(schema.gpus, schema.machines, model)
    return DeclaredVirtualCluster(
        ClusterId(schema.cluster),
        tuple(DeclaredCells(cells.level, cells.cells, cells.hierarchy) for cells in schema.cells),
        tuple(
            DeclaredPin(pin.name, pin.level, MachineId(pin.machine), pin.gpu, pin.hierarchy) for pin in schema.pinned
        ),
        machines,
    )


def _document(declared: DeclaredVirtualCluster) -> dict[str, object]:
    document: dict[str, object] = {"cluster": str(declared.cluster)}
    if declared.machines is not None:
        if declared.machines.gpu_model is not None:
            document["gpu_model"] = str(declared.machines.gpu_model)
        document |= {"gpus": declared.machines.gpus, "machines": declared.machines.machines}
    if declared.cells:
        document["cells"] = [
            _with_hierarchy(cells.hierarchy, {"level": cells.level, "cells": cells.cells}) for cells in declared.cells
        ]
    if declared.pinned:
        document["pinned"] = [
            {"name": pin.name}
            | _with_hierarchy(pin.hierarchy, {"level": pin.level, "machine": str(pin.machine), "gpu": pin.gpu})
            for pin in declared.pinned
        ]
    return document


def _with_hierarchy(hierarchy: str | None, rest: dict[str, object]) -> dict[str, object]:
    return rest if hierarchy is None else {"hierarchy": hierarchy} | rest
