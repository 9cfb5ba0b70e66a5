"""Machines and virtual clusters change while work runs (HiveD §4): nothing ends, all is written down, and all comes back."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings

from cluster_manager.cells.invariants import check_cells
from cluster_manager.cells.mechanism import Cells
from cluster_manager.cells.rebuild import holdings
from domain.cells import VirtualCluster
from domain.fleet import Cluster, MachineState, Region
from domain.identifiers import MachineId
from domain.placement import AttemptKey, TaskPlacement
from domain.plan import Downgrade, Plan
from regional_scheduler.cell_changes import bound_anew, cell_changes
from regional_scheduler.plan_application import apply_actions
from regional_scheduler.region_capacity import RegionCapacity
from regional_scheduler.region_change import capacity_after_change
from tests.cluster_manager.cells.test_cells_in_a_region import SharedRegion, random_job, virtual_cluster
from tests.cluster_manager.cells.worlds import Choices, choices
from tests.cluster_manager.fleets import gpu_machine, region

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
    """Other virtual clusters, a machine more, machines in another order, or several of these."""
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
    return region(Cluster(divided.cluster, racks, divided.mechanism, cells), *others)


def settle(capacity: RegionCapacity) -> list[AttemptKey]:
    """As both drivers do; returns who was downgraded."""
    for key, cells in bound_anew(capacity):
        capacity.replace_cells(key, cells)
    actions = cell_changes(capacity)
    apply_actions(capacity, actions, 0.0)
    assert not cell_changes(capacity)
    assert not bound_anew(capacity)
    return [action.attempt for action in actions if isinstance(action, Downgrade)]


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


@settings(max_examples=150, deadline=None)
@given(choices(200))
def test_never_ends_work_nor_loses_a_cell_by_a_change(choose: Choices) -> None:
    original = history(choose)
    states = {MachineId("h1"): MachineState.DRAINING} if choose.one_in(4) else {}
    first = described(original)
    other = changed(choose, first)
    after = capacity_after_change(original, other, states)
    settle(after)
    assert placements(after) == placements(original)
    # A session that begins now binds the very same, and finds nothing to write down.
    begun_anew = capacity_after_change(after, other, states)
    assert not cell_changes(begun_anew)
    assert not bound_anew(begun_anew)
    assert bindings(begun_anew) == bindings(after)
    # Everything as it was: all have their cells again.
    again = capacity_after_change(after, first, {})
    settle(again)
    assert placements(again) == placements(original)
    assert cells_of(again) == cells_of(original)
    assert all(all(seated) for seated in cells_of(again).values())
