"""Machines and virtual clusters change while work runs (HiveD §4): nothing ends, all is written down, and all comes back."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings

from benchmarks.rebuilt_cells import holdings
from cluster_manager.cells.invariants import check_cells
from cluster_manager.cells.mechanism import Cells
from domain.cells import ClusterCells, VirtualCluster
from domain.fleet import Cluster, MachineState, Region
from domain.identifiers import MachineId
from domain.placement import AttemptKey, TaskPlacement
from domain.plan import Downgrade, Plan
from regional_scheduler.cell_changes import bound_anew, cell_changes
from regional_scheduler.plan_application import apply_actions
from regional_scheduler.region_capacity import RegionCapacity
from regional_scheduler.region_change import capacity_after_change
from tests.cluster_manager.cells.test_cells_in_a_region import SharedRegion, gpus, random_job, virtual_cluster
from tests.cluster_manager.cells.worlds import Choices, choices
from tests.cluster_manager.fleets import gpu_machine, region
from tests.examples import examples

MOST_LOOKS = 4
OWNERS = virtual_cluster("a", ("node", 2)), virtual_cluster("b", ("node", 1), ("socket", 1), ("switch", 1))


def history(choose: Choices) -> RegionCapacity:
    """What some random submissions and ends have come to."""
    shared = SharedRegion(*OWNERS)
    for number in range(10):
        running = [holding.key for holding in shared.capacity.holdings()]
        if running and choose.one_in(4):
            shared.capacity.release(choose.of(running))
            continue
        tenant, within_quota = choose.of("ab"), not choose.one_in(3)
        job = random_job(choose)
        plan = shared.plan(f"w{number}", tenant, job, within_quota=within_quota)
        if isinstance(plan, Plan):
            shared.apply(plan, shared._workload(f"w{number}", tenant, job), within_quota=within_quota)
    return shared.capacity


def described(capacity: RegionCapacity) -> Region:
    return region(*(cluster.description for cluster in capacity.clusters))


def changed(choose: Choices, before: Region) -> Region:
    """Other virtual clusters, a machine more, machines in another order, other names, or several of these."""
    divided, *others = before.clusters
    racks = divided.racks
    if choose.one_in(2):
        racks = racks[::-1]
    if choose.one_in(3):
        racks = (*racks[:-1], replace(racks[-1], machines=(gpu_machine("new"), *racks[-1].machines)))
    owners: list[VirtualCluster] = []
    for owner in OWNERS:
        kept = [replace(cells, cells=choose.below(cells.cells + 1)) for cells in owner.cells]
        if not choose.one_in(4):
            owners.append(owner if choose.one_in(3) else replace(owner, cells=tuple(kept)))
    cells = replace(divided.cells, virtual_clusters=tuple(owners))
    if choose.one_in(3):
        cells = renamed(cells, "H100", "other")
    return region(Cluster(divided.cluster, racks, divided.mechanism, cells), *others)


def renamed(cells: ClusterCells, name: str, other: str, socket: str = "socket") -> ClusterCells:
    """The same with another name for the hierarchy, or also for its sockets."""
    levels = {"socket": socket}
    return ClusterCells(
        tuple(
            replace(
                hierarchy,
                name=other if hierarchy.name == name else hierarchy.name,
                levels=tuple(level._replace(name=levels.get(level.name, level.name)) for level in hierarchy.levels),
            )
            for hierarchy in cells.hierarchies
        ),
        tuple(
            replace(
                owner,
                cells=tuple(
                    replace(owned, chain=other, level=levels.get(owned.level, owned.level)) for owned in owner.cells
                ),
            )
            for owner in cells.virtual_clusters
        ),
    )


def settle(capacity: RegionCapacity) -> list[AttemptKey]:
    """As both drivers do, look by look, until nothing changes; returns who was downgraded.

    Who loses cells in one look may make some free for who looks for them in the next.
    """
    downgraded: list[AttemptKey] = []
    for _ in range(MOST_LOOKS):
        anew = bound_anew(capacity)
        for key, cells in anew:
            capacity.replace_cells(key, cells)
        actions = cell_changes(capacity)
        apply_actions(capacity, actions, 0.0)
        downgraded += [action.attempt for action in actions if isinstance(action, Downgrade)]
        if not anew and not actions:
            return downgraded
    raise AssertionError(f"there is something to change after {MOST_LOOKS} looks")


def placements(capacity: RegionCapacity) -> dict[AttemptKey, tuple[TaskPlacement, ...]]:
    return {holding.key: holding.placements for holding in capacity.holdings()}


def bindings(capacity: RegionCapacity) -> list[object]:
    """What is bound to what, as far as anything is used."""
    mechanism = capacity.mechanisms[0]
    assert isinstance(mechanism, Cells)
    mechanism._work.bring_up_to_date(capacity.clusters[0])
    check_cells(mechanism._work.cells)
    return sorted(
        ((held.request.key, held.chain, held.tasks, held.downgraded) for held in holdings(mechanism._work.cells)),
        key=str,
    )


def cells_of(capacity: RegionCapacity) -> dict[AttemptKey, list[bool]]:
    """For each job that asked for cells, whether it has them."""
    return {
        holding.key: [not use.downgraded for _, use in holding.cells]
        for holding in capacity.holdings()
        if holding.cells
    }


@settings(max_examples=examples(100), deadline=None)
@given(choices(200))
def test_never_ends_work_nor_binds_otherwise_after_a_change(choose: Choices) -> None:
    original = history(choose)
    states = {MachineId("h1"): MachineState.DRAINING} if choose.one_in(4) else {}
    first = described(original)
    other = changed(choose, first)
    after = capacity_after_change(original, other, states)
    downgraded = settle(after)
    assert placements(after) == placements(original)
    if owned(other) == owned(first):
        assert not downgraded, "other machines and other names take nothing from anybody"
    # A session that begins now binds the very same, and finds nothing to write down.
    begun_anew = capacity_after_change(after, other, states)
    assert not cell_changes(begun_anew)
    assert not bound_anew(begun_anew)
    assert bindings(begun_anew) == bindings(after)
    # Back again: still nothing has ended, and who lost nothing has its cells.
    again = capacity_after_change(after, first, {})
    settle(again)
    assert placements(again) == placements(original)
    if not downgraded:
        assert all(all(seated) for seated in cells_of(again).values())


def owned(described_as: Region) -> list[list[int]]:
    """How many cells the tenants own, whatever they are called."""
    owners = described_as.clusters[0].cells.virtual_clusters
    return [[cells.cells for cells in owner.cells] for owner in owners]


def test_what_was_lost_comes_back_with_its_cells() -> None:
    shared = SharedRegion(*OWNERS)
    shared.start("w", "a", gpus(2, 8))
    shared.start("v", "b", gpus(1, 4))
    first = described(shared.capacity)
    divided, *others = first.clusters
    smaller = virtual_cluster("a", ("node", 1)), OWNERS[1]
    cells = replace(divided.cells, virtual_clusters=smaller)
    after = capacity_after_change(shared.capacity, region(replace(divided, cells=cells), *others), {})
    assert [key.workload for key in settle(after)] == ["w"]
    assert sorted(cells_of(after).values()) == [[False], [True]]
    again = capacity_after_change(after, first, {})
    assert settle(again) == []
    assert sorted(cells_of(again).values()) == [[True], [True]]


def test_other_names_are_no_loss() -> None:
    shared = SharedRegion(*OWNERS)
    shared.start("w", "a", gpus(2, 8))
    shared.start("v", "b", gpus(1, 4))
    first = described(shared.capacity)
    divided, *others = first.clusters
    cells = renamed(divided.cells, "H100", "other", "half")
    after = capacity_after_change(shared.capacity, region(replace(divided, cells=cells), *others), {})
    assert settle(after) == []
    assert {use.chain for holding in after.holdings() for _, use in holding.cells} == {"other"}
    assert all(all(seated) for seated in cells_of(after).values())
