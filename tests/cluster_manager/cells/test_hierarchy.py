"""Hierarchies from machines and racks, declared ones, who owns what of them, and what is refused."""

from __future__ import annotations

import pytest

from cluster_manager.cells.assignment import AssignmentProblem, machines_as_cells
from cluster_manager.cells.cell_cluster import CellCluster, UnknownCells
from cluster_manager.cells.decisions import decide
from cluster_manager.cells.hierarchy import (
    CellAddress,
    Chain,
    HierarchyProblem,
    UnknownLevel,
    chains_of,
    derived_chains,
)
from cluster_manager.cells.requests import AffinityGroup, CellRequest, InvalidRequest, Tasks
from domain.cells import CellHierarchy, CellLevel, OwnedCells, PinnedCell, VirtualCluster
from domain.fleet import Cluster, Machine, Rack
from domain.identifiers import ClusterId, GpuModel, MachineId, RackId, TenantId, VirtualClusterId
from domain.rank import Standing
from tests.cluster_manager.cells.worlds import chain_of, pinned_cell

V100, P100 = GpuModel("V100"), GpuModel("P100")


def cluster(*racks: list[tuple[GpuModel, int]]) -> Cluster:
    """Racks of machines with so many GPUs of a model."""
    return Cluster(
        ClusterId("c"),
        tuple(
            Rack(
                RackId(f"r{r}"),
                tuple(Machine(MachineId(f"r{r}m{m}"), model, gpus, 32.0, 64.0) for m, (model, gpus) in enumerate(rack)),
            )
            for r, rack in enumerate(racks)
        ),
    )


def names(chain: Chain) -> list[str]:
    return [level.name for level in chain.levels]


def test_machines_and_racks_make_a_hierarchy() -> None:
    (chain,) = derived_chains(cluster([(V100, 8)] * 4, [(V100, 8)] * 4))
    assert (chain.name, names(chain)) == ("V100", ["gpu", "machine", "rack"])
    assert (chain.sizes, chain.counts) == ((0, 1, 8, 32), (0, 64, 8, 2))
    assert chain.cell_of(3, MachineId("r1m2")) == CellAddress(3, 1)
    assert chain.cell_of(1, MachineId("r1m2"), 3) == CellAddress(1, 51)


def test_racks_that_are_not_equal_are_no_level() -> None:
    (chain,) = derived_chains(cluster([(V100, 8)] * 4, [(V100, 8)] * 3))
    assert names(chain) == ["gpu", "machine"]
    (single,) = derived_chains(cluster([(V100, 1)] * 4))
    assert (names(single), single.sizes) == (["machine"], (0, 1))


def test_each_model_and_shape_is_a_chain_of_its_own() -> None:
    mixed = cluster([(V100, 8), (P100, 4), (P100, 4)], [(V100, 8), (P100, 4), (P100, 4)], [(V100, 4), (V100, 0)])
    chains = derived_chains(mixed)
    assert [(chain.name, names(chain)) for chain in chains] == [
        ("P100", ["gpu", "machine", "rack"]),
        ("V100-4", ["gpu", "machine"]),
        ("V100-8", ["gpu", "machine"]),
    ]


DECLARED = CellHierarchy(
    "V100-RACK",
    V100,
    (
        CellLevel("GPU"),
        CellLevel("PCIE-SWITCH", 2),
        CellLevel("CPU-SOCKET", 2),
        CellLevel("NODE", 2),
        CellLevel("RACK", 4),
    ),
)


def test_a_declared_hierarchy_takes_the_machines_of_its_model() -> None:
    chains = chains_of(cluster([(V100, 8)] * 4, [(V100, 8)] * 4, [(P100, 4)]), [DECLARED])
    assert [chain.name for chain in chains] == ["V100-RACK", "P100"]
    assert chains[0].counts == (0, 64, 32, 16, 8, 2)
    assert chains[0].machine_level == 4


@pytest.mark.parametrize(
    ("described", "hierarchy", "problem"),
    [
        (cluster([(V100, 8)] * 6), DECLARED, "level RACK: 6 cells of level NODE do not divide .* 4 or 8 of them would"),
        (cluster([(V100, 6)] * 4), DECLARED, "machine r0m0 has 6 GPUs; .* one level has .*NODE 8"),
        (cluster([(P100, 8)] * 4), DECLARED, "has no machine with V100"),
        (cluster([(V100, 1)]), CellHierarchy("x", V100, (CellLevel("a", 2),)), "level a: the lowest level is one GPU"),
        (
            cluster([(V100, 1)]),
            CellHierarchy("x", V100, (CellLevel("a"), CellLevel("a", 2))),
            "two levels are called a",
        ),
        (
            cluster([(V100, 1)]),
            CellHierarchy("x", V100, (CellLevel("a"), CellLevel("b", 0))),
            "level b: a split factor is at least 1",
        ),
        (cluster([(V100, 1)]), CellHierarchy("x", V100, ()), "has no levels"),
        (
            cluster([(V100, 1)]),
            CellHierarchy("x", V100, (CellLevel("a"),), (MachineId("m"),)),
            "no machine m with V100",
        ),
    ],
)
def test_what_makes_no_hierarchy_is_refused(described: Cluster, hierarchy: CellHierarchy, problem: str) -> None:
    with pytest.raises(HierarchyProblem, match=problem):
        chains_of(described, [hierarchy])


def test_a_machine_is_in_one_hierarchy_only() -> None:
    one = CellHierarchy("one", V100, (CellLevel("GPU"),), (MachineId("r0m0"),))
    with pytest.raises(HierarchyProblem, match="machine r0m0 is in the hierarchies one and two"):
        chains_of(cluster([(V100, 1)]), [one, CellHierarchy("two", V100, (CellLevel("GPU"),))])
    with pytest.raises(HierarchyProblem, match="two hierarchies are called one"):
        chains_of(cluster([(V100, 1)]), [one, one])
    with pytest.raises(UnknownLevel, match="has no level RACK; it has GPU"):
        chains_of(cluster([(V100, 1)]), [one])[0].level_called("RACK")


# Who owns what.

CHAIN = chain_of((2, 2, 2, 4), 4, 2)


def owner(name: str, *cells: tuple[str, int], pinned: tuple[PinnedCell, ...] = ()) -> VirtualCluster:
    owned = tuple(OwnedCells("chain", level, count) for level, count in cells)
    return VirtualCluster(VirtualClusterId(name), owned, pinned)


def pin(name: str, level: int, cell: int) -> PinnedCell:
    return pinned_cell(name, CHAIN, level, cell)


NO_MACHINE = PinnedCell("p", "chain", "node", MachineId("m99"))
NO_LEVEL = PinnedCell("p", "chain", "row", CHAIN.machines[0])


@pytest.mark.parametrize(
    ("owners", "problem"),
    [
        (
            (owner("a", ("node", 5)), owner("b", ("node", 4))),
            r"level node: .* own 9 cells \(a 5, b 4\), 1 more than the 8",
        ),
        ((owner("a", ("rack", 1), ("node", 4), ("gpu", 3)),), r"level gpu: .* own 3 cells \(a 3\), 3 more than the 0"),
        ((owner("a", ("rack", 2), pinned=(pin("p", 1, 0),)),), r"level rack: .* 1 more than the 1 that are left"),
        ((owner("a", pinned=(pin("p", 4, 0), pin("q", 1, 7))),), "pinned cell q: the cell, or a part of it, is pinned"),
        ((owner("a", pinned=(NO_MACHINE,)),), "pinned cell p: machine m99 is not in chain chain"),
        ((owner("a", pinned=(NO_LEVEL,)),), "pinned cell p: chain chain has no level row; it has gpu"),
        ((owner("a", pinned=(pin("p", 4, 0), pin("p", 4, 1))),), "two pinned cells have one name"),
        ((owner("a", ("row", 1)),), "virtual cluster a: chain chain has no level row; it has gpu, switch"),
        ((owner("a", ("node", -1)),), "-1 cells of level node .* 0 or more"),
        ((owner("a"), owner("a")), "two virtual clusters are called a"),
        ((VirtualCluster(VirtualClusterId("a"), (OwnedCells("x", "node", 1),)),), "no chain x; there is chain"),
    ],
)
def test_what_cannot_be_owned_is_refused(owners: tuple[VirtualCluster, ...], problem: str) -> None:
    with pytest.raises(AssignmentProblem, match=problem):
        CellCluster([CHAIN], owners)


def test_gpus_in_machines_are_cells() -> None:
    assert machines_as_cells(CHAIN, 32, 4) == OwnedCells("chain", "node", 4)
    assert machines_as_cells(CHAIN, 8, 2) == OwnedCells("chain", "socket", 2)
    with pytest.raises(AssignmentProblem, match="not equally many"):
        machines_as_cells(CHAIN, 9, 2)
    with pytest.raises(
        AssignmentProblem, match=r"3 GPUs of each machine, .* no cell of that size; there are 1 \(gpu\)"
    ):
        machines_as_cells(CHAIN, 9, 3)


def ask(**changes: object) -> CellRequest:
    fields: dict[str, object] = {
        "key": "w",
        "gang": AffinityGroup((Tasks(1, 1),)),
        "tenant": TenantId("a"),
        "virtual_cluster": VirtualClusterId("a"),
        "standing": Standing(3, 0),
    }
    return CellRequest(**{**fields, **changes})  # type: ignore[arg-type]  # each case names fields of its own


def test_requests_that_nothing_could_answer_are_refused() -> None:
    cells = CellCluster([CHAIN], [owner("a", ("node", 1))])
    with pytest.raises(UnknownCells, match="no virtual cluster b; there is a"):
        decide(cells, ask(virtual_cluster=VirtualClusterId("b")))
    with pytest.raises(UnknownCells, match="virtual cluster a has no pinned cell p"):
        decide(cells, ask(pinned_cell="p"))
    with pytest.raises(UnknownCells, match="virtual cluster a has no cell of GPU model V100"):
        decide(cells, ask(gpu_model=V100))
    with pytest.raises(UnknownCells, match="no machine of GPU model V100"):
        decide(cells, ask(virtual_cluster=None, gpu_model=V100))
    with pytest.raises(InvalidRequest, match="opportunistic work cannot ask for the pinned cell p"):
        ask(virtual_cluster=None, pinned_cell="p")
    with pytest.raises(InvalidRequest, match="at least one"):
        ask(gang=AffinityGroup((Tasks(1, 0),)))
    with pytest.raises(InvalidRequest, match="asks for no tasks"):
        ask(gang=AffinityGroup())
