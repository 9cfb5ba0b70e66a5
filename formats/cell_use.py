"""The cells of running work as documents: in snapshots and in the database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from domain.cells import CellPair, CellUse, TaskCellUse
from domain.identifiers import TenantId, VirtualClusterId
from formats.schema import Name, Schema

_Number = Annotated[int, Field(ge=0, le=2**53)]


class TaskCellUseSchema(Schema):
    owned_level: Name
    pairs: list[Annotated[list[_Number], Field(min_length=3, max_length=3)]] = []
    """Each: level, virtual cell, physical cell."""


class CellUseSchema(Schema):
    tenant: Name
    virtual_cluster: Name
    hierarchy: Name
    tasks: Annotated[list[TaskCellUseSchema], Field(min_length=1)]
    pinned_cell: Name | None = None
    yields_to_downgrade: bool = False
    downgraded: bool = False


def cell_use_document(use: CellUse) -> dict[str, object]:
    """The use as a document; `cell_use` gives the same back."""
    return {
        "tenant": str(use.tenant),
        "virtual_cluster": str(use.virtual_cluster),
        "hierarchy": use.chain,
        "tasks": [
            {"owned_level": task.owned_level, "pairs": [list(pair) for pair in task.pairs]} for task in use.tasks
        ],
        "pinned_cell": use.pinned_cell,
        "yields_to_downgrade": use.yields_to_downgrade,
        "downgraded": use.downgraded,
    }


def cell_use(schema: CellUseSchema) -> CellUse:
    """The use of a document that was checked."""
    return CellUse(
        TenantId(schema.tenant),
        VirtualClusterId(schema.virtual_cluster),
        schema.hierarchy,
        tuple(TaskCellUse(task.owned_level, tuple(CellPair(*pair) for pair in task.pairs)) for task in schema.tasks),
        schema.pinned_cell,
        schema.yields_to_downgrade,
        schema.downgraded,
    )


def cell_use_from_document(document: Mapping[str, object]) -> CellUse:
    """The use of a document that this program wrote. Raises ValueError for another one."""
    return cell_use(CellUseSchema.model_validate(document))
