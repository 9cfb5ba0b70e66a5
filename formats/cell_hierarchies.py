"""Cell hierarchies as fleet.yaml declares them (HiveD Fig. 4): named levels with split factors, from the GPU up.

Whether machines divide into these cells, `cluster_manager.cells.declared` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from domain.cells import MACHINE_LEVEL, CellHierarchy, CellLevel, ClusterCells
from domain.fleet import CELLS_MECHANISM
from domain.identifiers import GpuModel, MachineId
from formats.problems import FieldProblem
from formats.schema import Name, Schema

GREATEST_SPLIT = 1_000_000


class CellLevelSchema(Schema):
    level: Name
    split: Annotated[int, Field(ge=1, le=GREATEST_SPLIT)] | None = None


class CellHierarchySchema(Schema):
    hierarchy: Name
    gpu_model: Name
    levels: list[CellLevelSchema]
    machines: list[Name] | None = None


class ClusterCellsSchema(Schema):
    hierarchies: list[CellHierarchySchema] = []


def cell_hierarchy_problems(schema: ClusterCellsSchema | None, mechanism: str, field: str) -> list[FieldProblem]:
    """What is wrong with a cluster's `cells`, whatever its machines; `field` is the path of the cluster."""
    if schema is None:
        return []
    if mechanism != CELLS_MECHANISM:
        why = f"are used by mechanism {CELLS_MECHANISM} only, and this is {mechanism}; change one or leave cells out"
        return [FieldProblem(f"{field}.cells", why)]
    problems: list[FieldProblem] = []
    names: list[str] = []
    for index, hierarchy in enumerate(schema.hierarchies):
        path = f"{field}.cells.hierarchies[{index}]"
        if hierarchy.hierarchy in names:
            description = f"{hierarchy.hierarchy} is there already; names are unique in a cluster, rename one"
            problems.append(FieldProblem(f"{path}.hierarchy", description))
        names.append(hierarchy.hierarchy)
        problems += _level_problems(hierarchy.levels, path)
        machines = hierarchy.machines
        if machines is not None and len(set(machines)) < len(machines):
            twice = sorted({name for name in machines if machines.count(name) > 1})
            problems.append(FieldProblem(f"{path}.machines", f"names {', '.join(twice)} twice"))
        if machines == []:
            problems.append(
                FieldProblem(f"{path}.machines", "is empty; leave it out for all machines of the GPU model")
            )
    return problems


def cluster_cells(schema: ClusterCellsSchema | None) -> ClusterCells:
    """The hierarchies of a schema that has no problems."""
    if schema is None:
        return ClusterCells()
    return ClusterCells(tuple(_hierarchy(hierarchy) for hierarchy in schema.hierarchies))


def cells_from_document(document: object) -> ClusterCells:
    """The hierarchies of a document that `cells_document` wrote. Raises ValueError for another one."""
    return cluster_cells(ClusterCellsSchema.model_validate(document))


def cells_document(cells: ClusterCells) -> dict[str, object]:
    """The hierarchies as a document; reading it gives the same back. Virtual clusters are the tenants'."""
    return {"hierarchies": [_hierarchy_document(hierarchy) for hierarchy in cells.hierarchies]}


def _level_problems(levels: Sequence[CellLevelSchema], path: str) -> list[FieldProblem]:
    if not levels:
        return [FieldProblem(f"{path}.levels", "is empty; name the levels from a single GPU up")]
    problems: list[FieldProblem] = []
    seen: list[str] = []
    for number, level in enumerate(levels):
        at = f"{path}.levels[{number}]"
        if level.level in seen:
            problems.append(FieldProblem(f"{at}.level", f"{level.level} is there already; rename one of the levels"))
        seen.append(level.level)
        if number == 0 and level.split not in (None, 1):
            problems.append(
                FieldProblem(f"{at}.split", "the lowest level is a single GPU and splits no more; leave it out")
            )
        if number > 0 and level.split is None:
            description = f"is missing; say into how many cells of level {levels[number - 1].level} one of these splits"
            problems.append(FieldProblem(f"{at}.split", description))
    if MACHINE_LEVEL not in seen:
        description = f"has no level {MACHINE_LEVEL}; call the level of a single machine so"
        problems.append(FieldProblem(f"{path}.levels", description))
    return problems


def _hierarchy(schema: CellHierarchySchema) -> CellHierarchy:
    return CellHierarchy(
        schema.hierarchy,
        GpuModel(schema.gpu_model),
        tuple(CellLevel(level.level, level.split or 1) for level in schema.levels),
        None if schema.machines is None else tuple(MachineId(machine) for machine in schema.machines),
    )


def _hierarchy_document(hierarchy: CellHierarchy) -> dict[str, object]:
    lowest, *higher = hierarchy.levels
    document: dict[str, object] = {
        "hierarchy": hierarchy.name,
        "gpu_model": str(hierarchy.gpu_model),
        "levels": [{"level": lowest.name}, *({"level": level.name, "split": level.split} for level in higher)],
    }
    if hierarchy.machines is not None:
        document["machines"] = [str(machine) for machine in hierarchy.machines]
    return document
