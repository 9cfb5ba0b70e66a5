"""Clusters as the recorded cases of HiveD describe them, as chains and virtual clusters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from cluster_manager.cells.hierarchy import CellAddress, Chain
from domain.cells import CellLevel, OwnedCells, PinnedCell, VirtualCluster
from domain.identifiers import GpuModel, MachineId, VirtualClusterId
from tests.cluster_manager.cells.worlds import pinned_cell

Json: TypeAlias = Any
"""What json.load returns; the cases are read only here and in the drivers."""


@dataclass(frozen=True)
class HivedCluster:
    chains: tuple[Chain, ...]
    """In the order in which HiveD searches them."""
    virtual_clusters: tuple[VirtualCluster, ...]
    gpu_indices: Mapping[MachineId, tuple[int, ...]]
    """The numbers that the GPUs of a machine have there, in the order of the cells."""


def machine_id(chain: str, node: str) -> MachineId:
    """A node may lie in several chains: each part is a machine of its own here."""
    return MachineId(f"{chain}:{node}")


def node_of(machine: MachineId) -> str:
    return str(machine).split(":", 1)[1]


def cluster_of(description: Json, shape: Json) -> HivedCluster:
    """The cluster; where it describes no physical cells of its own, those of `shape`."""
    physical = description if "physicalCells" in description else shape
    types = physical["cellTypes"]
    tops: dict[str, list[Json]] = {}
    for cell in physical["physicalCells"]:
        tops.setdefault(cell["type"], []).append(cell)
    searched = [chain for chains in physical["chainSearchOrder"].values() for chain in chains]
    addresses: dict[str, tuple[str, CellAddress]] = {}
    indices: dict[MachineId, tuple[int, ...]] = {}
    chains = tuple(_chain(name, types, tops[name], addresses, indices) for name in searched if name in tops)
    assert len(chains) == len(tops)
    pins: dict[str, PinnedCell] = {}
    for name, pin in physical["pinnedCells"].items():
        chain_name, address = addresses[pin["physicalCell"]]
        chain = next(chain for chain in chains if chain.name == chain_name)
        pins[name] = pinned_cell(name, chain, *address)
    return HivedCluster(chains, _virtual_clusters(description["virtualClusters"], pins), indices)


def _chain(
    name: str,
    types: Json,
    tops: Sequence[Json],
    addresses: dict[str, tuple[str, CellAddress]],
    indices: dict[MachineId, tuple[int, ...]],
) -> Chain:
    levels: list[CellLevel] = []
    machine_level, cell_type = 0, name
    names: list[str] = []
    while cell_type in types:
        names.append(cell_type)
        levels.append(CellLevel(cell_type, types[cell_type]["childCellNumber"]))
        if types[cell_type]["isNodeLevel"]:
            machine_level = len(levels)
        cell_type = types[cell_type]["childCellType"]
    levels.append(CellLevel(cell_type))
    top = len(levels)
    machines: list[MachineId] = []
    numbers = [0] * (top + 1)

    def visit(cell: Json, level: int) -> list[int]:
        addresses[cell["address"]] = name, CellAddress(level, numbers[level])
        numbers[level] += 1
        found = (
            [cell["leafIndex"]] if level == 1 else [i for child in cell["children"] for i in visit(child, level - 1)]
        )
        if "node" in cell:
            machines.append(machine_id(name, cell["node"]))
            indices[machines[-1]] = tuple(found)
        return found

    for cell in tops:
        visit(cell, top)
    return Chain(name, GpuModel(cell_type), tuple(reversed(levels)), tuple(machines), top - machine_level + 1)


def _virtual_clusters(described: Json, pins: Mapping[str, PinnedCell]) -> tuple[VirtualCluster, ...]:
    owners: list[VirtualCluster] = []
    for name, owner in described.items():
        cells: list[OwnedCells] = []
        for owned in owner["virtualCells"]:
            path = owned["cellType"].split(".")
            cells.append(OwnedCells(path[0], path[-1], owned["cellNumber"]))
        pinned = tuple(pins[pin] for pin in owner.get("pinnedCells", []))
        owners.append(VirtualCluster(VirtualClusterId(name), tuple(cells), pinned))
    return tuple(owners)
