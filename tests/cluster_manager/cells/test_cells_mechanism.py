"""Cells as the mechanism of a cluster: what is found can be charged, keeps safety, and follows from what is held."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from cluster_manager.capacity.cluster_capacity import ClusterCapacity
from cluster_manager.cells.invariants import check_cells
from cluster_manager.cells.mechanism import Cells
from cluster_manager.cells.work import WaitReason
from cluster_manager.gpu_bits import indices_of
from cluster_manager.mechanism import NO_AFFINITY, Affinity, AffinityLevel, Place, Query, Shortfall
from cluster_manager.mechanisms import MECHANISMS
from domain.cells import CellHierarchy, CellLevel, ClusterCells, OwnedCells, VirtualCluster, cells_after, downgraded
from domain.fleet import Cluster, MachineState
from domain.identifiers import JobName, MachineId, TenantId, VirtualClusterId
from domain.placement import AttemptKey, Holding, TaskPlacement
from domain.rank import Standing
from domain.resources import TaskResources
from domain.workload import Emulated, JobSpecification
from tests.cluster_manager.cells.worlds import Choices, choices, state_of
from tests.cluster_manager.fleets import A100, H100, cluster, cpu_machine, gpu_machine, key_of
from tests.examples import examples

A, B = (VirtualClusterId(name) for name in "ab")
LEVELS = tuple(CellLevel(name, split) for name, split in (("gpu", 1), ("switch", 2), ("socket", 2), ("node", 2)))
JOB = JobName("job")


def owner(name: VirtualClusterId, *cells: tuple[str, str, int]) -> VirtualCluster:
    return VirtualCluster(name, tuple(OwnedCells(*owned) for owned in cells))


def capacity(*owners: VirtualCluster) -> ClusterCapacity:
    """Four machines with H100s as declared, in two racks, two with A100s, and one without GPUs."""
    racks = [
        [gpu_machine("h0"), gpu_machine("h1"), cpu_machine("c0")],
        [gpu_machine("h2"), gpu_machine("h3"), gpu_machine("a0", 4, A100), gpu_machine("a1", 4, A100)],
    ]
    described = cluster("c", *racks)
    hierarchies = (CellHierarchy("H100", H100, (*LEVELS, CellLevel("pair", 2))),)
    cells = ClusterCells(hierarchies, owners)
    return ClusterCapacity(Cluster(described.cluster, described.racks, "cells", cells))


class World:
    """A cluster and its mechanism; what is found is charged, and victims leave at once unless told otherwise."""

    def __init__(self, *owners: VirtualCluster) -> None:
        self.view = capacity(*owners)
        self.mechanism = Cells(self.view)
        self.now_s = 0.0

    def query(
        self,
        tasks: int,
        gpus: int,
        tenant: str,
        *,
        guaranteed: bool = True,
        priority: int = 3,
        affinity: Affinity = NO_AFFINITY,
        evict: bool = True,
        cpus: float | None = None,
    ) -> Query:
        resources = TaskResources(gpus=gpus, cpus=cpus, memory_gib=1.0 if cpus is not None else None)
        kind = self.view.shared.kinds.of(JobSpecification(JOB, tasks, resources, Emulated(1.0)))
        own = VirtualClusterId(tenant) if guaranteed else None
        standing = Standing(priority if guaranteed else 6, 0)
        return Query(kind, tasks, affinity, standing, self.now_s, TenantId(tenant), own, guaranteed, evict)

    def find(self, query: Query) -> Place | Shortfall:
        found = self.mechanism.find(query, self.view)
        self.check()
        return found

    def charge(self, name: str, query: Query, place: Place, *, leave: bool = True) -> AttemptKey:
        self.now_s += 1.0
        for victim in place.victims:
            self.view.begin_eviction(victim.key)
        for attempt, job in place.downgraded:
            held = self.view.holding(attempt)
            assert held is not None
            lost = tuple((name, downgraded(use)) for name, use in held.cells if name == job)
            self.view.replace_cells(attempt, cells_after(held.cells, lost))
        cells = ((JOB, place.cells),) if place.cells is not None else ()
        key = key_of(name)
        self.view.hold(Holding(key, query.standing, self.now_s, self.placements(place), cells=cells))
        for victim in place.victims if leave else ():
            self.view.release(victim.key)
        return key

    def placements(self, place: Place) -> tuple[TaskPlacement, ...]:
        layout = self.view.layout
        return tuple(
            TaskPlacement(JOB, n, layout.cluster, layout.machine_ids[m], tuple(indices_of(bits)), cpus, memory)
            for n, (m, cpus, memory, bits) in enumerate(place.tasks.tolist())
        )

    def start(self, name: str, query: Query, *, leave: bool = True) -> Place:
        place = self.find(query)
        assert isinstance(place, Place)
        self.charge(name, query, place, leave=leave)
        return place

    def check(self) -> None:
        self.view.check()
        self.mechanism._work.bring_up_to_date(self.view)
        check_cells(self.mechanism._work.cells)


def machines(place: Place, world: World) -> list[str]:
    return [str(world.view.layout.machine_ids[machine]) for machine in place.tasks[:, 0]]


def test_it_is_one_of_the_mechanisms() -> None:
    world = World(owner(A, ("H100", "node", 2)))
    assert isinstance(MECHANISMS["cells"](world.view), Cells)


def test_guaranteed_jobs_get_their_cells_and_write_them_down() -> None:
    world = World(owner(A, ("H100", "node", 2)), owner(B, ("H100", "node", 2)))
    place = world.start("one", world.query(2, 8, "a"))
    assert place.cells is not None
    assert [use.owned_level for use in place.cells.tasks] == ["node", "node"]
    assert isinstance(world.find(world.query(1, 1, "a", priority=3)), Shortfall)
    assert isinstance(world.find(world.query(2, 8, "b")), Place)


def test_opportunistic_jobs_leave_for_whoever_owns_the_cells() -> None:
    world = World(owner(A, ("H100", "node", 4)))
    world.start("low", world.query(6, 4, "b", guaranteed=False, evict=False))
    free = world.start("first", world.query(1, 8, "a", evict=False))
    assert not free.victims
    assert isinstance(world.find(world.query(1, 8, "a", evict=False)), Shortfall)
    place = world.start("second", world.query(1, 8, "a"))
    assert [victim.key for victim in place.victims] == [key_of("low")]


def test_a_tenant_without_cells_uses_what_is_idle() -> None:
    world = World(owner(A, ("H100", "node", 4)))
    place = world.start("b", world.query(2, 4, "b"))
    assert place.cells is None
    assert not world.start("a", world.query(3, 8, "a")).victims


def test_jobs_without_gpus_share_the_machines_of_all() -> None:
    world = World(owner(A, ("H100", "node", 4)))
    place = world.find(world.query(1, 0, "b", cpus=4.0))
    assert isinstance(place, Place)
    assert machines(place, world) == ["c0"]


def test_a_machine_without_enough_cpus_is_left_out() -> None:
    world = World(owner(A, ("H100", "node", 1)))
    query = world.query(1, 8, "a")
    first = world.find(query)
    assert isinstance(first, Place)
    name = MachineId(machines(first, world)[0])
    busy = TaskPlacement(JobName("cpus"), 0, world.view.cluster, name, (), 90_000, 0)
    world.view.hold(Holding(key_of("cpus"), Standing(0, 0), 0.0, (busy,)))
    second = world.find(query)
    assert isinstance(second, Place)
    assert machines(second, world) != [name]


def test_jobs_without_gpus_leave_for_whoever_owns_the_gpus() -> None:
    world = World(owner(A, ("H100", "node", 4)))
    for number in range(4):
        busy = TaskPlacement(JobName("cpus"), 0, world.view.cluster, MachineId(f"h{number}"), (), 90_000, 0)
        world.view.hold(Holding(key_of(f"cpus{number}"), Standing(5, 0), 0.0, (busy,)))
        small = TaskPlacement(JobName("cpus"), 0, world.view.cluster, MachineId(f"h{number}"), (), 1_000, 0)
        world.view.hold(Holding(key_of(f"small{number}"), Standing(4, 0), 0.0, (small,)))
    assert isinstance(world.find(world.query(1, 7, "a", evict=False)), Shortfall)
    place = world.start("a", world.query(1, 7, "a"))
    assert [victim.key for victim in place.victims] == [key_of("cpus0")], "the other leaves enough"


def fill_with_cpu_jobs(world: World, standing: Standing, tenant: str) -> None:
    for number in range(4):
        busy = TaskPlacement(JobName("cpus"), 0, world.view.cluster, MachineId(f"h{number}"), (), 90_000, 0)
        held = Holding(key_of(f"cpus{number}"), standing, 0.0, (busy,), tenant=TenantId(tenant))
        world.view.hold(held)


def test_never_waits_for_other_tenants_work_without_gpus() -> None:
    """Whatever its standing, and however short it has run: the CPUs that come with owned GPUs are the owner's."""
    world = World(owner(A, ("H100", "node", 4)))
    fill_with_cpu_jobs(world, Standing(0, 0), "other")
    place = world.start("a", world.query(1, 7, "a"))
    assert [victim.key for victim in place.victims] == [key_of("cpus0")]
    assert place.own_cells == (key_of("cpus0"),)


@pytest.mark.parametrize("level", ["node", "socket"])
def test_beyond_the_share_of_its_cells_only_standing_counts(level: str) -> None:
    """Half of the GPUs of a machine: all of its CPUs are the owner's where the machine is, and else half of them."""
    world = World(owner(A, ("H100", level, 4)))
    fill_with_cpu_jobs(world, Standing(0, 0), "other")
    assert isinstance(world.find(world.query(1, 4, "a", cpus=40.0)), Place)
    assert isinstance(world.find(world.query(1, 4, "a", cpus=60.0)), Place if level == "node" else Shortfall)


def test_beside_other_work_in_its_cell_a_job_has_what_comes_with_its_gpus() -> None:
    world = World(owner(A, ("H100", "node", 1)))
    first = world.start("first", world.query(1, 2, "a", cpus=24.0))
    (machine,) = machines(first, world)
    busy = TaskPlacement(JobName("cpus"), 0, world.view.cluster, MachineId(machine), (), 72_000, 0)
    world.view.hold(Holding(key_of("cpus"), Standing(0, 0), 0.0, (busy,), tenant=TenantId("other")))
    assert isinstance(world.find(world.query(1, 4, "a", cpus=60.0)), Shortfall)
    assert isinstance(world.find(world.query(1, 4, "a", cpus=48.0)), Place)


def test_ones_own_work_without_gpus_leaves_by_standing_alone() -> None:
    world = World(owner(A, ("H100", "node", 4)))
    fill_with_cpu_jobs(world, Standing(0, 0), "a")
    assert isinstance(world.find(world.query(1, 7, "a")), Shortfall)


def test_an_owners_job_larger_than_its_cells_uses_what_others_leave_idle() -> None:
    world = World(owner(A, ("H100", "node", 1)), owner(B, ("H100", "node", 3)))
    large = world.query(2, 8, "a")
    place = world.start("large", large)
    assert place.cells is None
    assert not place.victims
    again = world.mechanism.explain(world.query(3, 8, "a"), world.view)
    assert again is not None
    assert again.owned == "1 node of chain H100"
    assert "uses what others leave idle" in again.sentence
    assert isinstance(world.find(world.query(3, 8, "a")), Shortfall)
    own = world.find(world.query(1, 8, "a"))
    assert isinstance(own, Place)
    assert own.cells is not None, "what it owns is still its own"
    assert world.mechanism.refusal_scope(large, world.view) != world.mechanism.refusal_scope(
        world.query(1, 8, "a"), world.view
    )
    victims = [victim.key for n in range(3) for victim in world.start(f"b{n}", world.query(1, 8, "b")).victims]
    assert victims == [key_of("large")], "owners take their cells back"


def test_an_owners_job_whose_tasks_are_larger_than_its_cells_uses_what_others_leave_idle() -> None:
    world = World(owner(A, ("H100", "socket", 2)))
    place = world.start("wide", world.query(1, 8, "a"))
    assert place.cells is None
    within = world.start("within", world.query(2, 4, "a"))
    assert within.cells is not None


def test_jobs_without_gpus_never_evict_who_owns_the_gpus() -> None:
    world = World(owner(A, ("H100", "node", 4)))
    world.start("a", world.query(4, 8, "a", priority=5))
    low = TaskPlacement(JobName("cpus"), 0, world.view.cluster, MachineId("c0"), (), 64_000, 0)
    world.view.hold(Holding(key_of("low"), Standing(1, 0), 0.0, (low,)))
    for machine in ("a0", "a1"):
        world.view.set_machine_state(MachineId(machine), MachineState.DOWN)
    assert isinstance(world.find(world.query(1, 0, "b", priority=1, cpus=40.0)), Shortfall)


def test_a_wait_is_explained_with_the_cells_asked_for_and_owned() -> None:
    world = World(owner(A, ("H100", "node", 2)))
    hard = Affinity(AffinityLevel.RACK, hard=True)
    wait = world.mechanism.explain(world.query(3, 8, "a", affinity=hard), world.view)
    assert wait is not None
    assert wait.reason is WaitReason.NOTHING_IDLE
    assert wait.sentence == (
        "asks for 3 tasks of 8 GPUs within one rack; its virtual cluster owns 2 node of chain H100; that could never hold it, "
        "so it uses what others leave idle: not enough GPUs are idle and close enough"
    )
    assert world.mechanism.explain(world.query(2, 8, "a"), world.view) is None
    wait = world.mechanism.explain(world.query(1, 16, "a"), world.view)
    assert wait is not None
    assert wait.reason is WaitReason.TOPOLOGY


def test_hard_affinities_are_kept_and_preferred_ones_given_up() -> None:
    world = World(owner(A, ("H100", "node", 2)), owner(B, ("H100", "pair", 1)))
    rack = Affinity(AffinityLevel.RACK, hard=True)
    apart = world.find(world.query(2, 8, "a", affinity=rack))
    assert isinstance(apart, Place)
    assert apart.cells is None, "nobody has promised that two cells of it are in one rack"
    assert apart.spread == 1
    preferred = world.find(world.query(2, 8, "a", affinity=rack._replace(hard=False)))
    assert isinstance(preferred, Place)
    assert preferred.cells is not None
    both = world.find(world.query(2, 8, "b", affinity=rack))
    assert isinstance(both, Place)
    assert both.spread == 1
    machine = Affinity(AffinityLevel.MACHINE, hard=True)
    together = world.find(world.query(4, 2, "b", affinity=machine))
    assert isinstance(together, Place)
    assert (together.spread, together.fragmentation) == (0, 0.0)


def test_machines_that_take_no_work_are_avoided() -> None:
    world = World(owner(A, ("H100", "node", 3)))
    world.view.set_machine_state(MachineId("h0"), MachineState.DRAINING)
    place = world.start("a", world.query(3, 8, "a"))
    assert machines(place, world) == ["h1", "h2", "h3"]
    world.view.set_machine_state(MachineId("h0"), MachineState.UP)
    world.check()
    world.view.release(key_of("a"))
    assert machines(world.start("b", world.query(1, 8, "a")), world) == ["h0"]


def test_only_attempts_that_may_be_evicted_are() -> None:
    world = World(owner(A, ("H100", "node", 1)))
    place = world.start("low", world.query(1, 8, "a", priority=5))
    low = world.view.holding(key_of("low"))
    assert low is not None
    assert isinstance(world.find(world.query(1, 8, "a", priority=5)), Shortfall)
    evicting = world.find(world.query(1, 8, "a", priority=1))
    assert isinstance(evicting, Place)
    assert evicting.victims == (low,)
    assert isinstance(world.find(world.query(1, 8, "a", priority=1)._replace(victims_from_priority=6)), Shortfall)
    world.view.release(low.key)
    world.view.hold(low._replace(evictable_from_s=1000.0))
    assert isinstance(world.find(world.query(1, 8, "a", priority=1)), Shortfall)
    assert place.cells is not None


def test_what_is_supposed_counts_and_is_forgotten_again() -> None:
    world = World(owner(A, ("H100", "node", 2)))
    world.start("low", world.query(1, 8, "a", priority=5))
    query = world.query(1, 8, "a", priority=1)
    first = world.find(query)
    assert isinstance(first, Place)
    before = state_of(world.mechanism._work.cells)
    world.view.suppose_charged(first.entries)
    second = world.mechanism.find(query, world.view)
    assert isinstance(second, Place)
    assert machines(second, world) != machines(first, world)
    world.view.suppose_released(key_of("low"))
    world.view.suppose_charged(second.entries)
    assert isinstance(world.mechanism.find(query._replace(standing=Standing(6, 0)), world.view), Shortfall | Place)
    world.view.end_supposing()
    world.check()
    assert state_of(world.mechanism._work.cells) == before


def test_jobs_of_one_workload_share_what_their_owner_has() -> None:
    """Places of earlier jobs are supposed to be taken while the next one is tried, with the cells that they are."""
    world = World(owner(A, ("H100", "node", 1)), owner(B, ("H100", "node", 3)))
    for gpus, fits_beside_it in ((4, True), (8, False)):
        query = world.query(1, gpus, "a")
        first = world.find(query)
        assert isinstance(first, Place)
        world.view.suppose_charged(first.entries)
        second = world.mechanism.find(query, world.view)
        assert isinstance(second, Place)
        assert (second.cells is not None) == fits_beside_it
        assert (machines(second, world) == machines(first, world)) == fits_beside_it
        assert not (fits_beside_it and second.tasks[0, 3] & first.tasks[0, 3])
        world.view.end_supposing()
        world.check()


def test_a_job_that_its_owner_has_no_cells_for_beside_another_one_uses_what_is_idle_only() -> None:
    """It evicts nobody; and it waits for its owner's cells where these would do, with nothing but the workload in them."""
    world = World(owner(A, ("H100", "node", 2)), owner(B, ("H100", "node", 2)))
    world.start("own", world.query(1, 8, "a", priority=0))
    for machine in ("a0", "a1"):
        world.view.set_machine_state(MachineId(machine), MachineState.DOWN)
    query = world.query(1, 8, "a")
    first = world.find(query)
    assert isinstance(first, Place)
    world.view.suppose_charged(first.entries)
    assert isinstance(world.mechanism.find(query, world.view), Shortfall), "two cells are enough for both"
    third = world.query(2, 8, "a")
    place = world.mechanism.find(third, world.view)
    assert isinstance(place, Place)
    assert place.cells is None
    world.view.end_supposing()
    world.start("guest", world.query(4, 4, "guest", guaranteed=False, evict=False))
    world.view.suppose_charged(first.entries)
    assert isinstance(world.mechanism.find(third, world.view), Shortfall)


def test_what_other_jobs_take_of_the_cpus_counts() -> None:
    world = World(owner(A, ("H100", "node", 1)), owner(B, ("H100", "node", 3)))
    first = world.find(world.query(1, 1, "a", cpus=60.0))
    assert isinstance(first, Place)
    assert first.cells is not None
    world.view.suppose_charged(first.entries)
    for tasks, in_its_cells in ((3, True), (4, False)):
        second = world.mechanism.find(world.query(tasks, 1, "a", cpus=12.0), world.view)
        assert isinstance(second, Place)
        assert (second.cells is not None) == in_its_cells


def test_what_others_suppose_is_left_alone() -> None:
    world = World(owner(A, ("H100", "node", 1)))
    place = world.find(world.query(1, 8, "a"))
    assert isinstance(place, Place)
    Cells(world.view).find(world.query(1, 8, "a"), world.view)
    mechanism = Cells(world.view)
    world.view.suppose_charged(place.entries)
    other = mechanism.find(world.query(1, 8, "a"), world.view)
    assert isinstance(other, Place)
    assert machines(other, world) != machines(place, world)
    world.view.end_supposing()


def random_query(world: World, choose: Choices) -> Query:
    affinity = choose.of(
        (NO_AFFINITY, NO_AFFINITY, Affinity(AffinityLevel.RACK), Affinity(AffinityLevel.MACHINE, hard=True))
    )
    return world.query(
        1 + choose.below(3),
        choose.of((1, 2, 3, 4, 8)),
        choose.of("abz"),
        guaranteed=not choose.one_in(3),
        priority=1 + choose.below(4),
        affinity=affinity,
        evict=not choose.one_in(4),
    )


@settings(max_examples=examples(100))
@given(choices())
def test_never_finds_what_cannot_be_charged_or_forgets_what_is_held(choose: Choices) -> None:
    owners = owner(A, ("H100", "node", 2), ("A100", "machine", 1)), owner(B, ("H100", "socket", 3), ("H100", "gpu", 3))
    world = World(*owners)
    names: list[AttemptKey] = []
    for number in range(14):
        if names and choose.one_in(3):
            world.view.release(names.pop(choose.below(len(names))))
        elif choose.one_in(6):
            state = choose.of((MachineState.UP, MachineState.DOWN, MachineState.DRAINING))
            world.view.set_machine_state(MachineId(choose.of(("h0", "h1", "h2", "a0"))), state)
        else:
            _submit(world, choose, f"w{number}", names)
        world.check()
    _check_anew(world)


def _submit(world: World, choose: Choices, name: str, names: list[AttemptKey]) -> None:
    query = random_query(world, choose)
    place = world.find(query)
    if isinstance(place, Shortfall):
        assert place.capacity < query.tasks
        return
    assert query.may_evict or not place.victims
    leave = choose.one_in(2)
    names.append(world.charge(name, query, place, leave=leave))
    if leave:
        gone = {victim.key for victim in place.victims}
        names[:] = [key for key in names if key not in gone]


def _check_anew(world: World) -> None:
    """The cells follow from what is held: a mechanism made now has the same."""
    again = Cells(world.view)
    again._work.bring_up_to_date(world.view)
    anew, known = state_of(again._work.cells), state_of(world.mechanism._work.cells)
    assert anew[:-1] == known[:-1], "all but the holdings, which are in the order in which they came"


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_the_same_key_gets_the_same_answer(share: float) -> None:
    world = World(owner(A, ("H100", "node", 2)))
    query = world.query(1, 8, "a", evict=bool(share))
    key = world.mechanism.same_answer_key(query, world.view)
    assert key != world.mechanism.same_answer_key(world.query(1, 8, "b", evict=bool(share)), world.view)
    scope = world.mechanism.refusal_scope(query, world.view)
    assert scope == world.mechanism.refusal_scope(query._replace(standing=Standing(6, 0)), world.view)
    assert world.mechanism.required_victims(query, [key_of("x")], world.view) == (False,)
