"""Tasks in cells that ask for more CPUs than the share of their GPUs: as many on a machine as it has CPUs for."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_manager.cells.work import WaitReason
from cluster_manager.mechanism import Place, Query, Shortfall
from tests.cluster_manager.cells.test_cells_mechanism import A, World, machines, owner
from tests.cluster_manager.fleets import gpu_machine

CPUS = gpu_machine("any").cpus
"""Of each machine with eight H100s: the share of a GPU is an eighth."""
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
