"""Owned cells that stand for one physical cell for good: what dynamic binding is compared with (HiveD §5.3)."""

from __future__ import annotations

from cluster_manager.cells.cell_cluster import CellCluster
from cluster_manager.cells.decisions import find_place
from cluster_manager.cells.hierarchy import Chain
from cluster_manager.cells.requests import AffinityGroup, CellRequest, Tasks
from cluster_manager.cells.work import Placement
from domain.cells import CellLevel, OwnedCells, VirtualCluster
from domain.identifiers import GpuModel, MachineId, TenantId, VirtualClusterId
from domain.rank import Standing

LEVELS = (CellLevel("gpu"), CellLevel("machine", 8))
OWNERS = (
    VirtualCluster(VirtualClusterId("a"), (OwnedCells("V100", "machine", 2),)),
    VirtualCluster(VirtualClusterId("b"), (OwnedCells("V100", "machine", 2),)),
)


def cluster(*, static: bool) -> CellCluster:
    machines = tuple(MachineId(f"m{number}") for number in range(4))
    return CellCluster([Chain("V100", GpuModel("V100"), LEVELS, machines, 2)], OWNERS, static_binding=static)


def place(cells: CellCluster, name: str, owner: str | None, gpus: int) -> Placement:
    request = CellRequest(
        name,
        AffinityGroup((Tasks(1, gpus),)),
        TenantId(owner or "low"),
        VirtualClusterId(owner) if owner is not None else None,
        Standing(0, 0),
    )
    found = find_place(cells, request)
    assert found is not None
    cells.commit(found)
    return found


def test_static_cells_evict_what_dynamic_ones_avoid() -> None:
    for static in (True, False):
        cells = cluster(static=static)
        place(cells, "low", None, 8)
        first = place(cells, "a1", "a", 8)
        second = place(cells, "a2", "a", 8)
        evicted = {*first.victims, *second.victims}
        assert evicted == ({"low"} if static else set())


def test_static_cells_stay_where_they_are() -> None:
    cells = cluster(static=True)
    machine = place(cells, "a1", "a", 4).tasks[0].machine
    cells.release("a1")
    place(cells, "low", None, 8)
    assert place(cells, "a2", "a", 8).tasks[0].machine == machine
    assert {place(cells, f"b{n}", "b", 8).tasks[0].machine for n in range(2)} | {
        machine,
        place(cells, "a3", "a", 8).tasks[0].machine,
    } == {0, 1, 2, 3}
