"""Cells of several levels (HiveD §3.2): from one GPU over the machine to racks and rows, of one model and one shape.

A chain has uniform cells, so cells of a level are numbered from 0, and which cell contains which is arithmetic. A
cluster of several GPU models or shapes has several chains.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from domain.cells import MACHINE_LEVEL, RACK_LEVEL, CellHierarchy, CellLevel
from domain.fleet import Cluster, Machine
from domain.identifiers import GpuModel, MachineId

GPU_LEVEL = 1
"""The lowest level: a single GPU."""
MOST_GPUS_PER_MACHINE = 62


class HierarchyProblem(ValueError):
    """Levels and machines that do not make up a hierarchy of cells."""

    def __init__(self, description: str, level: int | None = None, field: str | None = None) -> None:
        super().__init__(description)
        self.level = level
        """The one whose split factor it is about."""
        self.field = field
        """The field of the hierarchy that it is about, where it is another one."""


class UnknownLevel(LookupError):
    """A chain has no level of that name."""


class CellAddress(NamedTuple):
    """One cell of a chain."""

    level: int
    cell: int


@dataclass(frozen=True, slots=True)
class Chain:
    """All cells of one GPU model and one shape. Levels count from 1 (a GPU) to `top`."""

    name: str
    gpu_model: GpuModel
    levels: tuple[CellLevel, ...]
    """From the lowest on."""
    machines: tuple[MachineId, ...]
    """In the order of their cells."""
    machine_level: int
    sizes: tuple[int, ...] = field(init=False)
    """[level] GPUs of one cell; entry 0 is unused."""
    counts: tuple[int, ...] = field(init=False)
    """[level] how many cells there are; entry 0 is unused."""
    splits: tuple[int, ...] = field(init=False)
    """[level] cells of the level below in one cell; entry 0 is unused."""
    gpus_per_machine: int = field(init=False)
    number_of: Mapping[MachineId, int] = field(init=False, repr=False, compare=False)
    """The place of each machine in `machines`."""

    def __post_init__(self) -> None:
        """Raises HierarchyProblem, which names the level and what would divide."""
        object.__setattr__(self, "number_of", {machine: number for number, machine in enumerate(self.machines)})
        _check_levels(self.name, self.levels)
        sizes = [0, 1]
        for level in self.levels[1:]:
            sizes.append(sizes[-1] * level.split)
        if not GPU_LEVEL <= self.machine_level <= self.top:
            raise HierarchyProblem(f"chain {self.name}: level {self.machine_level} of 1 to {self.top} is no machine")
        gpus = sizes[self.machine_level]
        if gpus > MOST_GPUS_PER_MACHINE:
            name = self.levels[self.machine_level - 1].name
            raise HierarchyProblem(f"chain {self.name}, level {name}: a machine has at most 62 GPUs, not {gpus}")
        counts = [0] * len(sizes)
        counts[self.machine_level] = len(self.machines)
        for number in range(self.machine_level - 1, 0, -1):
            counts[number] = counts[number + 1] * self.levels[number].split
        for number in range(self.machine_level + 1, len(sizes)):
            below, split = counts[number - 1], self.levels[number - 1].split
            if below % split:
                raise _does_not_divide(self, number, below, split)
            counts[number] = below // split
        object.__setattr__(self, "gpus_per_machine", gpus)
        object.__setattr__(self, "sizes", tuple(sizes))
        object.__setattr__(self, "counts", tuple(counts))
        object.__setattr__(self, "splits", (0, *(level.split for level in self.levels)))

    @property
    def top(self) -> int:
        """The highest level."""
        return len(self.levels)

    @property
    def gpus(self) -> int:
        return self.counts[GPU_LEVEL]

    def name_of(self, level: int) -> str:
        """What the level is called."""
        return self.levels[level - 1].name

    def level_called(self, name: str) -> int:
        """The level of that name, or what `machine` and `rack` stand for. Raises UnknownLevel with those that there are."""
        for number, level in enumerate(self.levels, 1):
            if level.name == name:
                return number
        if name == MACHINE_LEVEL:
            return self.machine_level
        if name == RACK_LEVEL and self.machine_level < self.top:
            return self.machine_level + 1
        there = ", ".join(level.name for level in self.levels)
        raise UnknownLevel(f"chain {self.name} has no level {name}; it has {there}")

    def children(self, level: int, cell: int) -> range:
        """The cells of the level below that the cell splits into: buddies of each other."""
        split = self.splits[level]
        return range(cell * split, (cell + 1) * split)

    def above(self, level: int, cell: int, higher: int) -> int:
        """The cell of the higher level (or the same) that contains this one."""
        return cell * self.sizes[level] // self.sizes[higher]

    def machines_in(self, level: int, cell: int) -> range:
        """The numbers of the machines that the cell lies on: one for the levels below the machine."""
        size, gpus = self.sizes[level], self.gpus_per_machine
        first = cell * size // gpus
        return range(first, max(first + 1, (cell + 1) * size // gpus))

    def bits_of(self, level: int, cell: int) -> int:
        """The GPUs of a cell that is a machine or part of one, as bits of that machine."""
        size = self.sizes[level]
        return ((1 << size) - 1) << (cell * size % self.gpus_per_machine)

    def cell_of(self, level: int, machine: MachineId, gpu: int = 0) -> CellAddress:
        """The cell of that level that contains this GPU. Raises LookupError for a machine of another chain."""
        try:
            number = self.number_of[machine]
        except KeyError:
            raise LookupError(f"machine {machine} is not in chain {self.name}") from None
        if not 0 <= gpu < self.gpus_per_machine:
            raise LookupError(f"machine {machine} has no GPU {gpu}; it has {self.gpus_per_machine}")
        return CellAddress(level, (number * self.gpus_per_machine + gpu) // self.sizes[level])


def declared_chain(hierarchy: CellHierarchy, cluster: Cluster) -> Chain:
    """The chain of a declared hierarchy. Raises HierarchyProblem."""
    _check_levels(hierarchy.name, hierarchy.levels)
    chosen = _machines_of(hierarchy, cluster)
    if not chosen:
        raise HierarchyProblem(
            f"chain {hierarchy.name}: the cluster has no machine with {hierarchy.gpu_model}; "
            f"it has {_models_of(cluster)}: correct gpu_model, or leave the hierarchy out",
            field="gpu_model",
        )
    sizes = [1]
    for level in hierarchy.levels[1:]:
        sizes.append(sizes[-1] * level.split)
    gpus = chosen[0].gpus
    for machine in chosen:
        if machine.gpus not in sizes or machine.gpus != gpus:
            legal = ", ".join(f"{level.name} {size}" for level, size in zip(hierarchy.levels, sizes, strict=True))
            raise HierarchyProblem(
                f"chain {hierarchy.name}: machine {machine.machine} has {machine.gpus} GPUs; all its machines must have "
                f"as many, and as many as one level has ({legal})"
            )
    names = tuple(machine.machine for machine in chosen)
    return Chain(hierarchy.name, hierarchy.gpu_model, hierarchy.levels, names, _machine_level(hierarchy, sizes, gpus))


def _machine_level(hierarchy: CellHierarchy, sizes: Sequence[int], gpus: int) -> int:
    """The level called so, or else the lowest of a machine's size. Raises HierarchyProblem."""
    names = [level.name for level in hierarchy.levels]
    if MACHINE_LEVEL not in names:
        return sizes.index(gpus) + 1
    number = names.index(MACHINE_LEVEL) + 1
    if sizes[number - 1] != gpus:
        raise HierarchyProblem(
            f"chain {hierarchy.name}, level {MACHINE_LEVEL}: the split factors up to it make {sizes[number - 1]} GPUs, but "
            f"its machines have {gpus}",
            number,
        )
    return number


def derived_chains(cluster: Cluster) -> tuple[Chain, ...]:
    """What machines and racks suggest: GPU, machine, and, where all racks have equally many such machines, rack.

    One chain for each GPU model and number of GPUs, named `<model>` or `<model>-<gpus>` where a model has several.
    """
    shapes = sorted({(machine.gpu_model, machine.gpus) for machine in cluster.machines() if machine.gpus > 0})
    models = [model for model, _ in shapes]
    chains: list[Chain] = []
    for model, gpus in shapes:
        per_rack = [
            [machine.machine for machine in rack.machines if (machine.gpu_model, machine.gpus) == (model, gpus)]
            for rack in cluster.racks
        ]
        per_rack = [machines for machines in per_rack if machines]
        levels = [CellLevel("gpu")]
        if gpus > 1:
            levels.append(CellLevel(MACHINE_LEVEL, gpus))
        else:
            levels = [CellLevel(MACHINE_LEVEL)]
        machine_level = len(levels)
        in_rack = len(per_rack[0])
        if len(per_rack) > 1 and in_rack > 1 and all(len(machines) == in_rack for machines in per_rack):
            levels.append(CellLevel(RACK_LEVEL, in_rack))
        name = str(model) if models.count(model) == 1 else f"{model}-{gpus}"
        chains.append(Chain(name, model, tuple(levels), tuple(m for rack in per_rack for m in rack), machine_level))
    return tuple(chains)


def machines_without_chain(cluster: Cluster, chains: Iterable[Chain]) -> tuple[MachineId, ...]:
    """The machines with GPUs that are in none of these, in the order of the fleet: nothing would ever be placed on them."""
    placed = {machine for chain in chains for machine in chain.machines}
    return tuple(one.machine for one in cluster.machines() if one.gpus and one.machine not in placed)


def chains_of(cluster: Cluster, declared: Iterable[CellHierarchy] = ()) -> tuple[Chain, ...]:
    """The declared hierarchies, and derived ones for the GPU models that none was declared for.

    Raises HierarchyProblem, also where two hierarchies have one name or one machine.
    """
    chains = [declared_chain(hierarchy, cluster) for hierarchy in declared]
    models = {chain.gpu_model for chain in chains}
    chains += [chain for chain in derived_chains(cluster) if chain.gpu_model not in models]
    chain_of: dict[MachineId, str] = {}
    names: list[str] = []
    for chain in chains:
        if chain.name in names:
            raise HierarchyProblem(f"two hierarchies are called {chain.name}")
        names.append(chain.name)
        for machine in chain.machines:
            if machine in chain_of:
                raise HierarchyProblem(
                    f"machine {machine} is in the hierarchies {chain_of[machine]} and {chain.name}; "
                    "state which machines each has"
                )
            chain_of[machine] = chain.name
    return tuple(chains)


def _machines_of(hierarchy: CellHierarchy, cluster: Cluster) -> list[Machine]:
    if hierarchy.machines is None:
        return [machine for machine in cluster.machines() if machine.gpu_model == hierarchy.gpu_model and machine.gpus]
    there = {machine.machine: machine for machine in cluster.machines()}
    for name in hierarchy.machines:
        if name not in there or there[name].gpu_model != hierarchy.gpu_model:
            raise HierarchyProblem(
                f"chain {hierarchy.name}: no machine {name} with {hierarchy.gpu_model} is there; "
                "correct its name in machines, or leave machines out for all of the model",
                field="machines",
            )
    return [there[name] for name in hierarchy.machines]


def _models_of(cluster: Cluster) -> str:
    models = {str(machine.gpu_model) for machine in cluster.machines() if machine.gpus}
    return ", ".join(sorted(models)) or "none with GPUs"


def _check_levels(chain: str, levels: Sequence[CellLevel]) -> None:
    if not levels:
        raise HierarchyProblem(f"chain {chain} has no levels; the lowest is a single GPU")
    if levels[0].split != 1:
        raise HierarchyProblem(f"chain {chain}, level {levels[0].name}: the lowest level is one GPU and splits no more")
    seen: list[str] = []
    for level in levels:
        if level.name in seen:
            raise HierarchyProblem(f"chain {chain}: two levels are called {level.name}")
        seen.append(level.name)
        if level.split < 1:
            raise HierarchyProblem(
                f"chain {chain}, level {level.name}: a split factor is at least 1, not {level.split}"
            )


def _does_not_divide(chain: Chain, level: int, below: int, split: int) -> HierarchyProblem:
    name, lower = chain.levels[level - 1].name, chain.levels[level - 2].name
    fewer, divisors = below // split * split, [n for n in range(2, below + 1) if below % n == 0]
    legal = f"{fewer} or {fewer + split}" if fewer else f"{split}"
    remedy = f", or a split factor of {', '.join(map(str, divisors[:6]))}" if divisors else ""
    return HierarchyProblem(
        f"chain {chain.name}, level {name}: {below} cells of level {lower} do not divide into cells of {split}; "
        f"{legal} of them would{remedy}",
        level,
    )
