"""Machines that fail, restarts and changes of who owns what: nothing running is lost, and sharing stays safe."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings

from benchmarks.rebuilt_cells import holdings, rebuilt
from cluster_manager.cells.cell_cluster import CellCluster, StalePlacement
from cluster_manager.cells.decisions import decide
from cluster_manager.cells.health import doomed_cells, owned_cell_states
from cluster_manager.cells.invariants import check_cells
from cluster_manager.cells.rebuild import CellHolding, restore
from cluster_manager.cells.requests import AffinityGroup, CellRequest, InvalidRequest, Tasks
from cluster_manager.cells.virtual_view import ViewKey
from cluster_manager.cells.work import Placement, Wait, WaitReason
from domain.affinity import CellAffinity
from domain.cells import OwnedCells, VirtualCluster
from domain.identifiers import MachineId, TenantId, VirtualClusterId
from domain.rank import Standing
from tests.cluster_manager.cells.worlds import (
    Choices,
    Setting,
    chain_of,
    choices,
    random_request,
    random_setting,
    state_of,
)
from tests.examples import examples


class Cluster:
    """A cluster to which things happen; victims stay on their GPUs until they are released."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.cells = setting.cluster()

    def step(self, choose: Choices, number: int, *, failures: bool) -> None:
        cells, running = self.cells, list(self.cells.work)
        if failures and choose.one_in(4):
            machines = [machine for chain in cells.chains for machine in chain.machines]
            cells.set_usable(choose.of(machines), usable=choose.one_in(2))
        elif running and choose.one_in(4):
            cells.release(choose.of(running))
        else:
            self.submit(random_request(choose, self.setting, f"w{number}"))
        check_cells(cells)

    def submit(self, request: CellRequest) -> Placement | Wait | None:
        before = state_of(self.cells)
        try:
            answer = decide(self.cells, request)
        except InvalidRequest:
            return None
        assert state_of(self.cells) == before, "a decision changes nothing"
        if isinstance(answer, Placement):
            self._check(answer)
            self.cells.commit(answer)
        return answer

    def _check(self, placement: Placement) -> None:
        for task in placement.tasks:
            assert task.machine not in self.cells.occupancy(task.chain).unusable, "new work on a machine out of use"
        for key in placement.waits_for:
            assert key in placement.victims or self.cells.work[key].leaving
        if not placement.request.guaranteed:
            assert not placement.waits_for


def after_some_steps(choose: Choices, *, failures: bool) -> Cluster:
    cluster = Cluster(random_setting(choose))
    for number in range(16):
        cluster.step(choose, number, failures=failures)
    return cluster


def gpus_held(cells: CellCluster) -> dict[Hashable, int]:
    return {key: sum(task.bits.bit_count() for task in work.tasks) for key, work in cells.work.items()}


@settings(max_examples=examples(200))
@given(choices())
def test_never_breaks_safety_or_uses_what_is_out_of_use(choose: Choices) -> None:
    after_some_steps(choose, failures=True)


@settings(max_examples=examples(150))
@given(choices())
def test_never_forgets_anything_at_a_restart(choose: Choices) -> None:
    cluster = after_some_steps(choose, failures=True)
    cells, setting = cluster.cells, cluster.setting
    unusable = [chain.machines[m] for n, chain in enumerate(cells.chains) for m in sorted(cells.occupancy(n).unusable)]
    again = rebuilt(setting.chains, setting.owners, holdings(cells), unusable)
    check_cells(again)
    assert state_of(again) == state_of(cells)
    probe = random_request(choose, setting, "probe")
    try:
        before = decide(cells, probe)
    except InvalidRequest:
        return
    after = decide(again, probe)
    if isinstance(before, Placement) and isinstance(after, Placement):
        assert replace(after, revision=before.revision) == before
    else:
        assert after == before
    _check_alike(setting, cells, choose, unusable)


def _check_alike(setting: Setting, cells: CellCluster, choose: Choices, unusable: Sequence[MachineId]) -> None:
    """Without the virtual cells, and in any order, the same GPUs are guaranteed, and the same cells are free."""
    held = [
        holding._replace(tasks=tuple(task._replace(pairs=()) for task in holding.tasks)) for holding in holdings(cells)
    ]
    order = sorted(range(len(held)), key=lambda number: (choose.below(256), number))
    again = rebuilt(setting.chains, setting.owners, [held[number] for number in order], unusable)
    check_cells(again)
    assert [buddy.layout() for buddy in again.buddies] == [buddy.layout() for buddy in cells.buddies]
    assert {key: work.view for key, work in again.work.items()} == {key: work.view for key, work in cells.work.items()}


@settings(max_examples=examples(150))
@given(choices(), choices(60))
def test_never_kills_or_loses_work_when_virtual_clusters_change(choose: Choices, change: Choices) -> None:
    cluster = after_some_steps(choose, failures=False)
    cells, setting = cluster.cells, cluster.setting
    owners = tuple(_with_less(owner, change) for owner in setting.owners if not change.one_in(5))
    changed = rebuilt(setting.chains, owners, holdings(cells))
    check_cells(changed)
    assert gpus_held(changed) == gpus_held(cells)
    for key, work in changed.work.items():
        assert work.view in {cells.work[key].view, None}, "kept, or downgraded"
    back = rebuilt(setting.chains, setting.owners, holdings(changed))
    restore(back)
    check_cells(back)
    for key, work in back.work.items():
        was = cells.work[key]
        if was.view is not None and not was.leaving:
            assert work.view is not None, "its cells are free again"


def _with_less(owner: VirtualCluster, change: Choices) -> VirtualCluster:
    kept = tuple(owned for owned in owner.cells if not change.one_in(3))
    return VirtualCluster(owner.virtual_cluster, kept, owner.pinned[: change.below(len(owner.pinned) + 1)])


# What is promised in particular.

TEAM, OTHER = VirtualClusterId("team"), VirtualClusterId("other")


def racks(owned: int = 4, others: int = 4) -> CellCluster:
    """Two racks of four nodes of eight GPUs."""
    chain = chain_of((2, 2, 2, 4), 4, 2)
    owners = [
        VirtualCluster(TEAM, (OwnedCells("chain", "node", owned),)),
        VirtualCluster(OTHER, (OwnedCells("chain", "node", others),)),
    ]
    return CellCluster([chain], owners)


def request(
    key: str,
    tasks: int,
    gpus: int,
    owner: VirtualClusterId | None = TEAM,
    *,
    priority: int = 3,
    within: str | None = None,
    yields: bool = False,
) -> CellRequest:
    gang = AffinityGroup((Tasks(tasks, gpus),), CellAffinity(within) if within is not None else None)
    name = TenantId(str(owner or "nobody"))
    return CellRequest(key, gang, name, owner, Standing(priority, 0), yields_to_downgrade=yields)


def placed(cells: CellCluster, asked: CellRequest) -> Placement:
    answer = decide(cells, asked)
    assert isinstance(answer, Placement), answer
    cells.commit(answer)
    check_cells(cells)
    return answer


def waits(cells: CellCluster, asked: CellRequest) -> Wait:
    answer = decide(cells, asked)
    assert isinstance(answer, Wait), answer
    return answer


def machine(number: int) -> MachineId:
    return MachineId(f"chain-m{number}")


def test_a_wait_for_topology_names_the_cell_asked_for_and_the_cells_owned() -> None:
    wait = waits(racks(), request("w", 3, 8, within="rack"))
    assert wait.reason is WaitReason.TOPOLOGY
    assert "3 tasks of 8 GPUs within one rack" in wait.sentence
    assert "4 node of chain chain" in wait.sentence


def test_a_wait_says_whether_cells_are_in_use_or_on_bad_machines() -> None:
    cells = racks()
    placed(cells, request("a", 3, 8))
    assert waits(cells, request("b", 2, 8)).reason is WaitReason.IN_USE
    cells.release("a")
    for number in range(5):
        cells.set_usable(machine(number), usable=False)
    assert waits(cells, request("b", 4, 8)).reason is WaitReason.BAD_HARDWARE
    placed(cells, request("c", 3, 8))
    assert waits(cells, request("o", 1, 1, None)).reason is WaitReason.NOTHING_IDLE


def test_who_may_not_evict_is_told_that_it_would_have_to() -> None:
    cells = racks()
    placed(cells, request("o", 8, 8, None))
    assert waits(cells, replace(request("a", 1, 8), may_evict=False)).reason is WaitReason.NEEDS_EVICTION
    assert placed(cells, request("a", 1, 8)).victims == ("o",)


def test_bad_machines_are_hidden_until_there_is_no_other_choice_and_seen_then() -> None:
    cells = racks()
    cells.set_usable(machine(0), usable=False)
    key = ViewKey(TEAM, "chain")
    assert doomed_cells(cells, key) == {}
    placed(cells, request("b", 4, 8, OTHER))
    assert doomed_cells(cells, key) == {4: 1}
    assert [state.usable for state in owned_cell_states(cells, key)].count(False) == 1
    cells.set_usable(machine(0), usable=True)
    assert doomed_cells(cells, key) == {}


def downgraded(cells: CellCluster) -> list[object]:
    return [key for key, work in cells.work.items() if work.downgraded]


def test_a_downgrade_is_reversed_when_cells_are_free_again() -> None:
    cells = racks()
    placed(cells, request("low", 4, 8, yields=True))
    answer = placed(cells, request("high", 1, 8, priority=1))
    assert answer.downgraded == ("low",)
    assert answer.victims == ()
    assert downgraded(cells) == ["low"]
    assert restore(cells) == ()
    cells.release("high")
    assert restore(cells) == ("low",)
    assert downgraded(cells) == []
    check_cells(cells)


def test_a_downgrade_survives_a_restart() -> None:
    cells = racks()
    placed(cells, request("low", 4, 8, yields=True))
    placed(cells, request("high", 1, 8, priority=1))
    again = rebuilt(cells.chains, tuple(cells.virtual_clusters.values()), holdings(cells))
    assert again.work["low"].downgraded
    assert state_of(again) == state_of(cells)


def test_opportunistic_work_goes_where_guaranteed_work_is_farthest() -> None:
    cells = racks()
    guaranteed = placed(cells, request("a", 1, 2))
    opportunistic = placed(cells, request("o", 1, 2, None))
    assert {task.machine // 4 for task in guaranteed.tasks} != {task.machine // 4 for task in opportunistic.tasks}


def test_guaranteed_work_takes_the_cells_with_the_fewest_opportunistic_gpus() -> None:
    cells = racks()
    placed(cells, request("o", 7, 2, None))
    answer = placed(cells, request("a", 1, 8))
    assert answer.victims == ()


def test_whom_an_owner_evicts_does_not_depend_on_opportunistic_work() -> None:
    chains = [chain_of((2, 2, 2), 4, 1, name) for name in ("first", "second")]
    owners = [VirtualCluster(TEAM, (OwnedCells("first", "node", 1), OwnedCells("second", "node", 1)))]
    taken = []
    for opportunistic in (False, True):
        cells = CellCluster(chains, owners)
        placed(cells, request("a", 1, 4))
        placed(cells, request("b", 1, 8))
        if opportunistic:
            placed(cells, request("o", 1, 4, None))
        taken.append(placed(cells, request("c", 1, 8, priority=1)).tasks)
    assert taken[0] == taken[1]


def test_a_machine_that_drains_keeps_its_work_and_takes_no_more() -> None:
    cells = racks()
    where = placed(cells, request("a", 1, 2)).tasks[0].machine
    assert cells.set_usable(machine(where), usable=False) == ("a",)
    assert placed(cells, request("b", 1, 2)).tasks[0].machine != where
    check_cells(cells)


def test_a_placement_that_others_have_overtaken_is_not_carried_out() -> None:
    cells = racks()
    answer = decide(cells, request("a", 1, 8))
    assert isinstance(answer, Placement)
    placed(cells, request("b", 1, 8))
    with pytest.raises(StalePlacement):
        cells.commit(answer)
    check_cells(cells)


def test_work_on_machines_that_are_gone_holds_what_is_left() -> None:
    cells = racks()
    placed(cells, request("a", 4, 8))
    smaller = replace(cells.chains[0], machines=cells.chains[0].machines[:4])
    owners = [VirtualCluster(TEAM, (OwnedCells("chain", "node", 4),))]
    held: tuple[CellHolding, ...] = holdings(cells)
    assert rebuilt([smaller], owners, held).work["a"].view is not None
    other = replace(smaller, machines=tuple(MachineId(f"new-{n}") for n in range(2)) + smaller.machines[:2])
    changed = rebuilt([other], owners, held)
    check_cells(changed)
    assert changed.work["a"].downgraded
    assert len(changed.work["a"].tasks) == 2
