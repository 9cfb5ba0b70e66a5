"""Small random clusters of cells, virtual clusters that own parts of them, and what happens to both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from benchmarks.rebuilt_cells import holdings
from cluster_manager.cells.assignment import AssignmentProblem, assigned_cells
from cluster_manager.cells.cell_cluster import CellCluster
from cluster_manager.cells.hierarchy import Chain
from cluster_manager.cells.requests import AffinityGroup, CellRequest, Tasks
from domain.affinity import CellAffinity
from domain.cells import CellLevel, OwnedCells, PinnedCell, VirtualCluster
from domain.identifiers import GpuModel, MachineId, TenantId, VirtualClusterId
from domain.rank import Standing

T = TypeVar("T")
LEVEL_NAMES = ("gpu", "switch", "socket", "node", "rack")
MOST_GPUS = 32


def chain_of(splits: Sequence[int], machine_level: int, tops: int, name: str = "chain") -> Chain:
    """A chain with these split factors from the second level on."""
    levels = (CellLevel(LEVEL_NAMES[0]), *(CellLevel(LEVEL_NAMES[n + 1], split) for n, split in enumerate(splits)))
    machines = tops
    for split in splits[machine_level - 1 :]:
        machines *= split
    return Chain(name, GpuModel(name), levels, tuple(MachineId(f"{name}-m{n}") for n in range(machines)), machine_level)


class Choices:
    """Bytes as choices, one after the other; when there are no more, always the first.

    Drawing a world piece by piece costs ten times as much as what is tried in it.
    """

    def __init__(self, numbers: bytes) -> None:
        self._numbers = iter(numbers)

    def below(self, end: int) -> int:
        return next(self._numbers, 0) % end

    def one_in(self, count: int) -> bool:
        return self.below(count) == count - 1

    def of(self, some: Sequence[T]) -> T:
        return some[self.below(len(some))]


def choices(most: int = 260) -> SearchStrategy[Choices]:
    """So many bytes at most, and mostly enough for all that is chosen."""
    return st.binary(min_size=most * 2 // 3, max_size=most).map(Choices)


def random_chain(choose: Choices, name: str) -> Chain:
    splits: list[int] = []
    gpus = 1
    for _ in range(1 + choose.below(4)):
        split = 2 + choose.below(3)
        if gpus * split > MOST_GPUS:
            break
        splits.append(split)
        gpus *= split
    machine_level = 1 + len(splits) - choose.below(min(3, len(splits) + 1))
    return chain_of(splits, machine_level, 1 + choose.below(max(1, min(3, MOST_GPUS // gpus))), name)


def pinned_cell(name: str, chain: Chain, level: int, cell: int) -> PinnedCell:
    """This very cell, pinned."""
    gpu = cell * chain.sizes[level] % chain.gpus_per_machine
    return PinnedCell(name, chain.name, chain.name_of(level), chain.machines[chain.machines_in(level, cell)[0]], gpu)


@dataclass(frozen=True)
class Setting:
    """Chains and who owns what."""

    chains: tuple[Chain, ...]
    owners: tuple[VirtualCluster, ...]

    def cluster(self) -> CellCluster:
        return CellCluster(self.chains, self.owners)

    def private(self, name: VirtualClusterId) -> CellCluster:
        """The cells of one virtual cluster, with no one else."""
        return CellCluster(self.chains, [owner for owner in self.owners if owner.virtual_cluster == name])


def random_setting(choose: Choices) -> Setting:
    """Wishes are met as long as they can be, in most cases until all is given away."""
    chains = tuple(random_chain(choose, f"chain{n}") for n in range(2 if choose.one_in(4) else 1))
    tenants = 1 + choose.below(3)
    owners = [VirtualCluster(VirtualClusterId(f"t{n}")) for n in range(tenants)]
    for wish in range(2 + choose.below(8)):
        chain = choose.of(chains)
        # From the top down the first wishes are the large ones, or nothing large would ever be owned.
        level = max(1, chain.top - choose.below(1 + min(wish // 2 + 1, chain.top)))
        number = choose.below(tenants)
        owner = owners[number]
        if choose.one_in(10):
            pin = pinned_cell(f"p{wish}", chain, level, choose.below(chain.counts[level]))
            wished = VirtualCluster(owner.virtual_cluster, owner.cells, (*owner.pinned, pin))
        else:
            more = OwnedCells(chain.name, chain.name_of(level), 1)
            wished = VirtualCluster(owner.virtual_cluster, (*owner.cells, more), owner.pinned)
        others = [*owners[:number], wished, *owners[number + 1 :]]
        try:
            assigned_cells(chains, others)
        except AssignmentProblem:
            continue
        owners = others
    return Setting(chains, tuple(owners))


def random_affinity(choose: Choices, chain: Chain) -> CellAffinity | None:
    if not choose.one_in(3):
        return None
    return CellAffinity(choose.of(chain.levels).name, choose.one_in(2))


def random_tasks(choose: Choices, chain: Chain) -> Tasks:
    machine = chain.gpus_per_machine
    gpus = min(machine, choose.of((1, 1, 2, 3, machine // 2, machine)) or 1)
    return Tasks(1 + choose.below(3), gpus, random_affinity(choose, chain) if choose.one_in(4) else None)


def random_gang(choose: Choices, chain: Chain) -> AffinityGroup:
    tasks = tuple(random_tasks(choose, chain) for _ in range(2 if choose.one_in(4) else 1))
    if not choose.one_in(5):
        return AffinityGroup(tasks, random_affinity(choose, chain))
    groups = tuple(
        AffinityGroup((random_tasks(choose, chain),), random_affinity(choose, chain))
        for _ in range(1 + choose.below(2))
    )
    return AffinityGroup(tasks if choose.one_in(2) else (), random_affinity(choose, chain), groups)


def random_request(choose: Choices, setting: Setting, key: str) -> CellRequest:
    """Guaranteed in two of three cases; in some of them in a pinned cell."""
    owner = choose.of(setting.owners)
    name = owner.virtual_cluster
    guaranteed = not choose.one_in(3)
    pinned = choose.of(owner.pinned).name if guaranteed and owner.pinned and choose.one_in(2) else None
    return CellRequest(
        key,
        random_gang(choose, choose.of(setting.chains)),
        TenantId(str(name)),
        name if guaranteed else None,
        Standing(choose.below(3), 0),
        pinned_cell=pinned,
        yields_to_downgrade=choose.one_in(2),
    )


def state_of(cells: CellCluster) -> tuple[object, ...]:
    """Everything that decisions depend on; equal states decide alike."""
    return (
        [buddy.layout() for buddy in cells.buddies],
        [(tuple(buddy.free), tuple(buddy.owed)) for buddy in cells.buddies],
        {
            key: (
                [view.binding.bound_cells(level) for level in range(view.nodes.chain.top + 1)],
                sorted((node, str(use.key), use.bits) for node, use in view.uses()),
            )
            for key, view in cells.views.items()
        },
        [sorted(buddy.occupancy.unusable) for buddy in cells.buddies],
        [buddy.occupancy.idle for buddy in cells.buddies],
        [buddy.occupancy.taken_back for buddy in cells.buddies],
        [(holding.request.key, holding) for holding in holdings(cells)],
    )
