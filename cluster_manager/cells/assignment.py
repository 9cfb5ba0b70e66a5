"""Which virtual cluster owns which cells (HiveD §3.2), and whether the cluster has them all."""

from __future__ import annotations

from collections.abc import Sequence

from cluster_manager.cells.buddy import BuddyCells, NotFree
from cluster_manager.cells.hierarchy import CellAddress, Chain, UnknownLevel
from cluster_manager.cells.occupancy import Occupancy
from domain.cells import OwnedCells, PinnedCell, VirtualCluster
from domain.identifiers import VirtualClusterId


class AssignmentProblem(ValueError):
    """Virtual clusters own what the cluster does not have."""


class OverPromised(AssignmentProblem):
    """More cells of a level are owned than there are."""

    def __init__(self, description: str, chain: str, level: str, missing: int) -> None:
        super().__init__(description)
        self.chain = chain
        self.level = level
        self.missing = missing


class NotToBePinned(AssignmentProblem):
    """A pinned cell does not exist, or is taken by another one."""

    def __init__(self, description: str, virtual_cluster: VirtualClusterId, pinned_cell: str) -> None:
        super().__init__(description)
        self.virtual_cluster = virtual_cluster
        self.pinned_cell = pinned_cell


def machines_as_cells(chain: Chain, gpus: int, machines: int) -> OwnedCells:
    """The cells that "32 GPUs in 4 machines" stands for: as many GPUs on each machine. Raises AssignmentProblem."""
    if gpus < 1 or machines < 1 or gpus % machines:
        raise AssignmentProblem(
            f"{gpus} GPUs in {machines} machines of chain {chain.name} are not equally many on each; "
            f"a multiple of {max(1, machines)} would be"
        )
    size = gpus // machines
    for level in range(1, chain.machine_level + 1):
        if chain.sizes[level] == size:
            return OwnedCells(chain.name, chain.name_of(level), machines)
    legal = ", ".join(f"{chain.sizes[k]} ({chain.name_of(k)})" for k in range(1, chain.machine_level + 1))
    raise AssignmentProblem(
        f"{gpus} GPUs in {machines} machines are {size} GPUs of each machine, and chain {chain.name} has no cell of that "
        f"size; there are {legal}"
    )


def owned_levels(chain: Chain, virtual_cluster: VirtualCluster) -> tuple[int, ...]:
    """The level of every cell that the virtual cluster owns in the chain without pinned ones, largest cells last.

    Raises AssignmentProblem for a level that the chain has not, or a negative number of cells.
    """
    levels: list[int] = []
    for owned in virtual_cluster.cells:
        if owned.chain != chain.name:
            continue
        if owned.cells < 0:
            raise AssignmentProblem(
                f"virtual cluster {virtual_cluster.virtual_cluster}: {owned.cells} cells of level {owned.level} of chain "
                f"{chain.name}; 0 or more are possible"
            )
        try:
            levels += [chain.level_called(owned.level)] * owned.cells
        except UnknownLevel as unknown:
            raise AssignmentProblem(f"virtual cluster {virtual_cluster.virtual_cluster}: {unknown}") from None
    return tuple(sorted(levels))


def pinned_address(chain: Chain, pinned: PinnedCell) -> CellAddress:
    """The pinned cell in its chain. Raises LookupError for a level, a machine or a GPU that the chain has not."""
    return chain.cell_of(chain.level_called(pinned.level), pinned.machine, pinned.gpu)


def assigned_cells(chains: Sequence[Chain], virtual_clusters: Sequence[VirtualCluster]) -> tuple[BuddyCells, ...]:
    """The free cells of each chain once pinned cells are taken out of them, with what is owed to virtual clusters.

    Raises AssignmentProblem where a chain, a level or a pinned cell does not exist, where two virtual clusters or two
    pinned cells have one name, and where more is owned than there is: with the level and by how much.
    """
    _check_names(chains, virtual_clusters)
    return tuple(_assigned(chain, virtual_clusters) for chain in chains)


def _assigned(chain: Chain, virtual_clusters: Sequence[VirtualCluster]) -> BuddyCells:
    cells = BuddyCells(Occupancy(chain))
    for virtual_cluster in virtual_clusters:
        for pinned in virtual_cluster.pinned:
            if pinned.chain == chain.name:
                _pin(cells, virtual_cluster, pinned)
    for virtual_cluster in virtual_clusters:
        for level in owned_levels(chain, virtual_cluster):
            cells.owed[level] += 1
    shortage = cells.shortage()
    if shortage is not None:
        name = chain.name_of(shortage.level)
        owners = [
            f"{virtual_cluster.virtual_cluster} {count}"
            for virtual_cluster in virtual_clusters
            if (count := owned_levels(chain, virtual_cluster).count(shortage.level))
        ]
        raise OverPromised(
            f"chain {chain.name}, level {name}: virtual clusters own {shortage.owed} cells ({', '.join(owners)}), "
            f"{shortage.missing} more than the {shortage.available} that are left of this level once pinned cells and "
            "higher levels have theirs",
            chain.name,
            name,
            shortage.missing,
        )
    return cells


def _pin(cells: BuddyCells, virtual_cluster: VirtualCluster, pinned: PinnedCell) -> None:
    owner, name = virtual_cluster.virtual_cluster, pinned.name
    where = f"virtual cluster {owner}, pinned cell {name}"
    try:
        cells.allocate(*pinned_address(cells.chain, pinned))
    except LookupError as unknown:
        raise NotToBePinned(f"{where}: {unknown}", owner, name) from None
    except NotFree:
        raise NotToBePinned(f"{where}: the cell, or a part of it, is pinned already", owner, name) from None


def _check_names(chains: Sequence[Chain], virtual_clusters: Sequence[VirtualCluster]) -> None:
    there = [chain.name for chain in chains]
    seen: list[str] = []
    for virtual_cluster in virtual_clusters:
        name = str(virtual_cluster.virtual_cluster)
        if name in seen:
            raise AssignmentProblem(f"two virtual clusters are called {name}")
        seen.append(name)
        pins = [pinned.name for pinned in virtual_cluster.pinned]
        if len(set(pins)) < len(pins):
            raise AssignmentProblem(f"virtual cluster {name}: two pinned cells have one name")
        for chain in [cells.chain for cells in virtual_cluster.cells] + [pin.chain for pin in virtual_cluster.pinned]:
            if chain not in there:
                raise AssignmentProblem(
                    f"virtual cluster {name}: there is no chain {chain}; there is {', '.join(there) or 'none'}"
                )
