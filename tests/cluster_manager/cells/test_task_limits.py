"""Tasks in cells that ask for more CPUs than the share of their GPUs: as many on a machine as it has CPUs for."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_manager.cells.work import WaitReason
from cluster_manager.mechanism import NO_AFFINITY, Place, Query, Shortfall
from domain.affinity import CellAffinity, JobAffinity, TaskGroup
from domain.cells import PinnedCell, VirtualCluster
from domain.fleet import MachineState
from domain.identifiers import JobName, MachineId, TenantId
from domain.placement import Holding, TaskPlacement
from domain.rank import Standing
from tests.cluster_manager.cells.test_cells_mechanism import A, B, World, machines, owner
from tests.cluster_manager.fleets import gpu_machine, key_of

CPUS = gpu_machine("any").cpus
"""Of each machine with eight H100s: the share of a GPU is an eighth."""
SWITCH, SOCKET = (CellAffinity(level, hard=True) for level in ("switch", "socket"))
ROWS_OF_CHAINS = ((0, 1, 3, 4), (5, 6))
"""Of the machines with H100s and with A100s in the tables of the capacity."""


def opportunistic(world: World, tasks: int, gpus: int = 1, cpus: float | None = None) -> Query:
    return world.query(tasks, gpus, "b", guaranteed=False, evict=False, cpus=cpus)


def test_others_use_further_machines_where_one_has_too_few_cpus() -> None:
    world = World()
    place = world.start("wide", opportunistic(world, 7, cpus=CPUS / 2))
    assert sorted(machines(place, world)) == ["h0", "h0", "h1", "h1", "h2", "h2", "h3"]


def test_an_owner_uses_all_of_its_machines_where_one_has_too_few_cpus() -> None:
    world = World(owner(A, ("H100", "node", 2)))
    place = world.start("wide", world.query(4, 1, "a", cpus=CPUS / 2))
    assert place.cells is not None
    assert sorted(machines(place, world).count(name) for name in set(machines(place, world))) == [2, 2]


def test_an_owner_of_parts_of_machines_may_count_on_their_part_of_the_cpus() -> None:
    world = World(owner(A, ("H100", "socket", 4)))
    place = world.start("wide", world.query(8, 1, "a", cpus=CPUS / 4))
    assert place.cells is not None
    assert sorted(machines(place, world).count(name) for name in set(machines(place, world))) == [4, 4]


def test_what_exceeds_the_cpus_of_its_cells_uses_what_is_idle() -> None:
    """As a job that asks for more GPUs than its tenant owns."""
    world = World(owner(A, ("H100", "node", 1)))
    place = world.start("wide", world.query(3, 1, "a", cpus=CPUS / 2))
    assert place.cells is None
    assert len(set(machines(place, world))) == 2
    within = world.start("within", world.query(2, 1, "a", cpus=CPUS / 2))
    assert within.cells is not None


def test_what_is_left_of_a_machine_is_used() -> None:
    world = World()
    for number in range(4):
        world.start(f"hungry-{number}", opportunistic(world, 1, cpus=0.7 * CPUS))
    place = world.start("small", opportunistic(world, 4, cpus=0.3 * CPUS))
    assert sorted(machines(place, world)) == ["h0", "h1", "h2", "h3"]
    wait = world.mechanism.explain(opportunistic(world, 1, 5, cpus=0.3 * CPUS), world.view)
    assert wait is not None
    assert (wait.reason, wait.why) == (
        WaitReason.IN_USE,
        "machines whose GPUs are free have too few CPUs or too little memory left",
    )
    assert isinstance(world.find(opportunistic(world, 1, 5, cpus=0.0)), Place)


@settings(max_examples=150)
@given(
    st.lists(
        st.tuples(
            st.integers(1, 6), st.sampled_from((1, 2, 3, 4)), st.sampled_from((0.0, 6.0, 12.0, 20.0, 40.0, 96.0))
        ),
        min_size=1,
        max_size=12,
    )
)
def test_never_waits_while_machines_have_gpus_and_cpus_for_all_its_tasks(asks: list[tuple[int, int, float]]) -> None:
    """Against counting: a gang without affinity fits as soon as the machines together hold as many tasks."""
    world = World()
    for number, (tasks, gpus, cpus) in enumerate(asks):
        arrays = world.view.arrays
        most = max(
            sum(
                min(
                    int(arrays.free_gpus[row]).bit_count() // gpus,
                    int(arrays.state[row, 1] // (cpus * 1000)) if cpus else 99,
                    int(arrays.state[row, 2] // 1024),
                )
                for row in rows
            )
            for rows in ROWS_OF_CHAINS
        )
        found = world.find(opportunistic(world, tasks, gpus, cpus))
        assert isinstance(found, Place) == (most >= tasks), (tasks, gpus, cpus, most)
        if isinstance(found, Place):
            world.charge(f"w{number}", opportunistic(world, tasks, gpus, cpus), found)
        else:
            assert isinstance(found, Shortfall)


def hold(world: World, name: str, machine: str, gpus: Iterable[int], millicpus: int, priority: int = 6) -> None:
    task = TaskPlacement(JobName("job"), 0, world.view.cluster, MachineId(machine), tuple(gpus), millicpus, 0)
    world.view.hold(Holding(key_of(name), Standing(priority, 0), 0.0, (task,), tenant=TenantId("other")))


def test_work_without_gpus_leaves_for_others_than_owners_by_standing() -> None:
    world = World(owner(A, ("H100", "node", 1)), owner(B, ("H100", "node", 3)))
    for machine in ("a0", "a1"):
        world.view.set_machine_state(MachineId(machine), MachineState.DOWN)
    for number in range(4):
        hold(world, f"cpus-{number}", f"h{number}", (), 90_000, priority=5)
    for query in (
        world.query(1, 2, "guest", priority=1, cpus=10.0),
        world.query(1, 2, "guest", priority=1),
        world.query(2, 8, "a", priority=1),
    ):
        found = world.find(query)
        assert isinstance(found, Place)
        assert {victim.key.workload[:4] for victim in found.victims} == {"cpus"}
        assert found.cells is None


@pytest.mark.parametrize(
    ("held", "tasks", "gpus", "cpus", "groups"),
    [
        ((4,), 2, 2, 30.0, (TaskGroup(2, SOCKET),)),
        ((0, 4), 4, 1, 24.0, (TaskGroup(2, SOCKET), TaskGroup(2, SOCKET))),
        ((0, 4), 2, 2, 40.0, (TaskGroup(1, SWITCH), TaskGroup(1, SWITCH))),
    ],
)
def test_never_do_limits_take_the_gpus_that_an_affinity_asks_for(
    held: tuple[int, ...], tasks: int, gpus: int, cpus: float, groups: tuple[TaskGroup, ...]
) -> None:
    world = World()
    for number in (1, 2, 3):
        hold(world, f"full-{number}", f"h{number}", range(8), 0)
    hold(world, "held", "h0", held, 12_000 * (len(held) % 2))
    affinity = NO_AFFINITY._replace(said=JobAffinity(None, groups), hard=True)
    for guaranteed in (False, True):
        query = world.query(tasks, gpus, "b", guaranteed=guaranteed, evict=False, cpus=cpus, affinity=affinity)
        assert isinstance(world.find(query), Place)


def test_a_pinned_part_of_a_machine_may_use_more_than_its_part_of_the_cpus() -> None:
    pinned = PinnedCell("p", "H100", "socket", MachineId("h0"), 0)
    world = World(VirtualCluster(A, (), (pinned,)))
    affinity = NO_AFFINITY._replace(said=JobAffinity(pinned_cell="p"))
    place = world.find(world.query(3, 1, "a", cpus=CPUS / 3, affinity=affinity))
    assert isinstance(place, Place)
    assert place.cells is not None


@pytest.mark.parametrize("gpus", [1, 4])
def test_parts_of_machines_that_lack_cpus_beside_each_other_are_no_reason_to_wait(gpus: int) -> None:
    """Both of the owner's sockets may be on one machine."""
    world = World(owner(A, ("H100", "socket", 2)))
    place = world.find(world.query(2, gpus, "a", cpus=0.6 * CPUS))
    assert isinstance(place, Place)
    assert len(set(machines(place, world))) == 2
