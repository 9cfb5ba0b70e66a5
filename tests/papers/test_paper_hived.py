"""HiveD §2 and §3, sentence by sentence: cells, virtual clusters, Algorithm 1, and the proof that sharing is safe."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from cluster_manager.cells.assignment import AssignmentProblem
from cluster_manager.cells.buddy import BuddyCells
from cluster_manager.cells.cell_cluster import CellCluster
from cluster_manager.cells.decisions import decide
from cluster_manager.cells.hierarchy import Chain, chains_of
from cluster_manager.cells.invariants import check_cells
from cluster_manager.cells.occupancy import Occupancy
from cluster_manager.cells.requests import AffinityGroup, CellRequest, Tasks
from cluster_manager.cells.virtual_view import ViewKey
from cluster_manager.cells.work import Placement, Wait, WaitReason
from domain.affinity import CellAffinity
from domain.cells import CellHierarchy, CellLevel, OwnedCells, VirtualCluster
from domain.fleet import Cluster, Machine, Rack
from domain.identifiers import ClusterId, GpuModel, MachineId, RackId, TenantId, VirtualClusterId
from domain.rank import Standing
from tests.cluster_manager.cells.worlds import Choices, choices, random_chain
from tests.examples import examples

V100, P100 = GpuModel("V100"), GpuModel("P100")
LEVELS = (CellLevel("GPU"), CellLevel("PCIE-SWITCH", 2), CellLevel("CPU-SOCKET", 2), CellLevel("NODE", 2))


def nodes(count: int, *above: CellLevel) -> Chain:
    """So many nodes of eight GPUs, with the levels of Fig. 3."""
    return Chain("V100", V100, (*LEVELS, *above), tuple(MachineId(f"n{n}") for n in range(count)), 4)


def tenant(name: str, **cells: int) -> VirtualCluster:
    """A virtual cluster that owns so many cells of levels, `l4=2` being two of level 4."""
    owned = tuple(OwnedCells("V100", LEVELS[int(level[1]) - 1].name, count) for level, count in cells.items())
    return VirtualCluster(VirtualClusterId(name), owned)


def job(key: str, owner: str | None, tasks: int, gpus: int, *, priority: int = 3, within: str = "") -> CellRequest:
    gang = AffinityGroup((Tasks(tasks, gpus),), CellAffinity(within) if within else None)
    virtual_cluster = VirtualClusterId(owner) if owner is not None else None
    return CellRequest(key, gang, TenantId(owner or "low"), virtual_cluster, Standing(priority, 0))


def start(cells: CellCluster, request: CellRequest) -> Placement:
    placement = decide(cells, request)
    assert isinstance(placement, Placement), placement
    cells.commit(placement)
    for victim in placement.victims:
        cells.release(victim)
    check_cells(cells)
    return placement


# §3.2, Fig. 3.

FIGURE_3 = (tenant("A", l3=1, l2=1, l1=1), tenant("B", l3=1, l2=1, l1=1), tenant("C", l4=2, l2=1))


def test_the_assignment_of_figure_3_is_feasible() -> None:
    """There exists a one-to-one mapping from the logical cells in each VC to the physical cells (§3.2)."""
    cells = CellCluster([nodes(4)], FIGURE_3)
    assert cells.buddies[0].owed == [0, 2, 3, 2, 2]
    for owner, gpus in (("A", 7), ("B", 7), ("C", 18)):
        assert cells.views[ViewKey(VirtualClusterId(owner), "V100")].free_gpus == gpus
    start(cells, job("c1", "C", 2, 8))
    start(cells, job("c2", "C", 1, 2))
    for owner in "AB":
        start(cells, job(f"{owner}1", owner, 1, 4))
        start(cells, job(f"{owner}2", owner, 1, 2))
        start(cells, job(f"{owner}3", owner, 1, 1))
    assert cells.buddies[0].free == [0, 0, 0, 0, 0]


@pytest.mark.parametrize("level", [1, 2, 3, 4])
def test_one_cell_more_of_any_level_than_figure_3_is_not(level: int) -> None:
    more = tenant("D", **{f"l{level}": 1})
    with pytest.raises(AssignmentProblem, match=r"level (GPU|PCIE-SWITCH|CPU-SOCKET|NODE): .* more than the"):
        CellCluster([nodes(4)], (*FIGURE_3, more))


def test_the_scheduler_can_treat_tenant_c_as_two_nodes_and_one_of_two_gpus() -> None:
    """Two 8-GPU nodes and one 2-GPU node, despite the fact that the 2-GPU node is actually a level-2 cell (§3.2)."""
    cells = CellCluster([nodes(4)], FIGURE_3)
    sizes = cells.views[ViewKey(VirtualClusterId("C"), "V100")].nodes.sizes
    assert sorted(sizes.tolist()) == [2, 8, 8]


def test_a_cell_is_the_granularity_of_reservation_not_of_jobs() -> None:
    """It can schedule two 2-GPU jobs to a 4-GPU (level-3) cell (§3.2)."""
    cells = CellCluster([nodes(1)], [tenant("A", l3=1)])
    first, second = (start(cells, job(key, "A", 1, 2)).tasks[0] for key in ("one", "two"))
    assert (first.machine, first.bits | second.bits) == (second.machine, 0b1111)
    assert cells.buddies[0].free == [0, 0, 0, 1, 0]


def test_logical_cells_are_bound_by_use_and_unbound_without() -> None:
    """If none of the GPUs is in use, the logical cell will be unbound from the physical cluster (§3.1)."""
    cells = CellCluster([nodes(4)], FIGURE_3)
    empty = cells.buddies[0].layout()
    start(cells, job("one", "A", 1, 1))
    assert cells.buddies[0].layout() != empty
    cells.release("one")
    assert cells.buddies[0].layout() == empty


def test_the_specification_of_figure_4() -> None:
    """Two racks of V100 and one of P100, of eight nodes each; vc1 has the P100 rack and four V100 nodes (Fig. 4)."""
    racks = tuple(
        Rack(RackId(f"r{r}"), tuple(Machine(MachineId(f"10.0.{r}.{n}"), model, 8, 64, 512) for n in range(8)))
        for r, model in enumerate((V100, V100, P100), 1)
    )
    levels = [
        (*(CellLevel(f"{model}-{level.name}", level.split) for level in LEVELS), CellLevel(f"{model}-RACK", 8))
        for model in (V100, P100)
    ]
    declared = [CellHierarchy(f"{model}-RACK", model, own) for model, own in zip((V100, P100), levels, strict=True)]
    chains = chains_of(Cluster(ClusterId("c"), racks), declared)
    owned = (OwnedCells("P100-RACK", "P100-RACK", 1), OwnedCells("V100-RACK", "V100-NODE", 4))
    cells = CellCluster(chains, [VirtualCluster(VirtualClusterId("vc1"), owned)])
    assert [chain.counts for chain in chains] == [(0, 128, 64, 32, 16, 2), (0, 64, 32, 16, 8, 1)]
    gang = start(cells, job("w", "vc1", 8, 8, within="P100-RACK"))
    assert {chains[task.chain].name for task in gang.tasks} == {"P100-RACK"}


# §3.3, Algorithm 1.


def test_algorithm_1_step_by_step() -> None:
    """It will move up level-by-level, until a free level-l cell is available, then split it recursively (§3.3)."""
    cells = BuddyCells(Occupancy(nodes(2)))
    assert cells.layout() == ((), (), (), (), (0, 1)), "initial state of free_cells: only the top level has cells"
    cells.owed = [0, 9, 9, 9, 0]
    gpu = cells.choose(1)
    cells.allocate(1, gpu)
    assert (gpu, cells.layout()) == (0, ((), (1,), (1,), (1,), (1,)))
    switch = cells.choose(2)
    cells.allocate(2, switch)
    assert (switch, cells.layout()) == (1, ((), (1,), (), (1,), (1,))), "a free cell of the level itself is taken"
    socket = cells.choose(3)
    cells.allocate(3, socket)
    assert (socket, cells.layout()) == (1, ((), (1,), (), (), (1,)))
    cells.release(1, gpu)
    assert cells.layout() == ((), (), (0,), (), (1,)), "the two GPUs merge; their buddy switch is still allocated"
    cells.release(2, switch)
    assert cells.layout() == ((), (), (), (0,), (1,))
    cells.release(3, socket)
    assert cells.layout() == ((), (), (), (), (0, 1)), "the merge process continues recursively"


def test_a_faulty_cell_is_taken_only_without_another_choice() -> None:
    """It prefers binding to a healthy cell when possible (§4)."""
    cells = CellCluster([nodes(2)], [tenant("A", l4=2)])
    cells.set_usable(MachineId("n0"), usable=False)
    assert start(cells, job("one", "A", 1, 1)).tasks[0].machine == 1
    wait = decide(cells, job("two", "A", 1, 8))
    assert isinstance(wait, Wait)
    assert wait.reason is WaitReason.BAD_HARDWARE


# §3.3, Theorem 1.


def invariant_holds(cells: BuddyCells) -> bool:
    """r_k - a_k <= f_k + F_k for all k, with F_k by equation (1), written down as in the paper."""
    highest, h = cells.chain.top, cells.chain.splits

    def obtainable(k: int) -> int:
        if k == highest:
            return 0
        return (cells.free[k + 1] + obtainable(k + 1) - cells.owed[k + 1]) * h[k + 1]

    return all(cells.owed[k] <= cells.free[k] + obtainable(k) for k in range(1, highest + 1))


@settings(max_examples=examples(200))
@given(choices())
def test_never_breaks_invariant_2_by_a_legal_allocation(choose: Choices) -> None:
    """Buddy cell allocation satisfies any legal cell allocation if the original VC assignment is feasible (Theorem 1)."""
    cells = BuddyCells(Occupancy(random_chain(choose, "chain")))
    for _ in range(20):
        level = 1 + choose.below(cells.chain.top)
        cells.owed[level] += 1
        if not invariant_holds(cells):
            cells.owed[level] -= 1
    allocated: list[tuple[int, int]] = []
    for _ in range(40):
        legal = [level for level in range(1, cells.chain.top + 1) if cells.owed[level]]
        if legal and not choose.one_in(3):
            level = choose.of(legal)
            cell = cells.choose(level)
            cells.allocate(level, cell)
            cells.owed[level] -= 1
            allocated.append((level, cell))
        elif allocated:
            level, cell = allocated.pop(choose.below(len(allocated)))
            cells.release(level, cell)
            cells.owed[level] += 1
        assert invariant_holds(cells)
        assert cells.shortage() is None


# §2, the sharing anomaly.


def test_a_tenant_with_64_gpus_runs_its_8_by_8_job() -> None:
    """A tenant is assigned a quota of 64 GPUs but reports that it cannot run a single (and the only) 8 × 8 job (§2)."""
    cells = CellCluster([nodes(16)], [tenant("large", l4=8), tenant("small", l4=8)])
    for number in range(64):
        start(cells, job(f"s{number}", "small", 1, 1))
    for number in range(0, 64, 2):
        cells.release(f"s{number}")
    for number in range(64):
        start(cells, job(f"o{number}", None, 1, 1))
    placement = start(cells, job("the only one", "large", 8, 8))
    assert len({task.machine for task in placement.tasks}) == 8
    assert all(task.bits == 0xFF for task in placement.tasks)


def test_the_same_anomaly_happens_where_only_numbers_are_reserved() -> None:
    """Single GPUs, as a quota reserves them: enough of them everywhere, and eight together nowhere."""
    cells = CellCluster([nodes(16)], [tenant("large", l1=64), tenant("small", l1=64)])
    wait = decide(cells, job("the only one", "large", 8, 8))
    assert isinstance(wait, Wait)
    assert wait.reason is WaitReason.TOPOLOGY


def test_binding_avoids_cells_used_by_low_priority_jobs() -> None:
    """It can avoid cells used by low-priority jobs to reduce preemptions (§3.1)."""
    cells = CellCluster([nodes(4)], [tenant("A", l4=2)])
    start(cells, job("low", None, 2, 8))
    placement = decide(cells, job("high", "A", 2, 8))
    assert isinstance(placement, Placement)
    assert placement.victims == ()


def test_low_priority_jobs_choose_the_cells_farthest_from_high_priority_ones() -> None:
    """For example, a non-buddy cell of a high-priority cell (§3.3)."""
    cells = CellCluster([nodes(4, CellLevel("PAIR", 2))], [tenant("A", l4=2)])
    high = start(cells, job("high", "A", 1, 8)).tasks[0].machine
    low = start(cells, job("low", None, 1, 8)).tasks[0].machine
    assert high // 2 != low // 2
