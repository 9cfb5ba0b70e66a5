"""What must never happen to the inventory, whatever happens to the region."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_manager.capacity.errors import GpuTaken, OverCommitted
from cluster_manager.capacity.machine_entries import entries_of_placements
from domain.fleet import Region
from domain.identifiers import JobName
from domain.placement import Holding, TaskPlacement
from tests.cluster_manager.fleets import key_of
from tests.cluster_manager.inventory_worlds import Step, World, all_arrays, regions, standings, steps
from tests.cluster_manager.plain_search import PlainMachine, plain_machines
from tests.examples import examples


@given(regions(), steps())
def test_never_disagrees_with_what_is_held(region: Region, history: list[Step]) -> None:
    world = World.of(region)
    for step in history:
        world.take(step)
        world.inventory.check()


@given(regions(), steps())
def test_never_holds_anything_that_placements_do_not_sum_up_to(region: Region, history: list[Step]) -> None:
    """Also where a plan said at once what its placements come to."""
    world = World.of(region)
    for step in history:
        world.take(step)
        for holding in world.inventory.holdings():
            for cluster in world.inventory.clusters:
                here = tuple(one for one in holding.placements if one.cluster == cluster.cluster)
                if here:
                    summed_up = entries_of_placements(here, cluster.cluster, cluster.number_of)
                    assert np.array_equal(cluster.entries_of(holding.key), summed_up)


@given(regions(), steps(), steps())
def test_never_keeps_a_trace_of_what_was_tentative(region: Region, history: list[Step], tentative: list[Step]) -> None:
    world = World.of(region)
    for step in history:
        world.take(step)
    arrays = [array.copy() for array in all_arrays(world.inventory)]
    before = (world.inventory.holdings(), world.leaving, world.states)
    with world.inventory.tentatively():
        for step in tentative:
            world.take(step)
        world.inventory.check()
    after = all_arrays(world.inventory)
    assert all(np.array_equal(old, new) for old, new in zip(arrays, after, strict=True))
    assert (world.inventory.holdings(), world.leaving, world.states) == before
    world.inventory.check()


@given(regions(), steps(20))
def test_never_lets_two_attempts_that_have_started_share_anything(region: Region, history: list[Step]) -> None:
    """I1: a newcomer starts when its victims have left, and then fits beside all others that have started."""
    world = World.of(region)
    started: set[object] = set()
    for step in history:
        world.take(step)
        held = {holding.key: holding for holding in world.inventory.holdings()}
        started |= {key for key in held if not any(victim in held for victim in world.waiting.get(key, ()))}
        running = [holding for key, holding in held.items() if key in started]
        for machine in plain_machines(region, {}, running):
            assert min(machine.free) >= 0
            gpus = [gpu for holding in running for gpu in gpus_on(machine, holding)]
            assert len(gpus) == len(set(gpus))


def gpus_on(machine: PlainMachine, holding: Holding) -> list[int]:
    here = [placement for placement in holding.placements if placement.machine == machine.name]
    return [gpu for placement in here for gpu in placement.gpu_indices]


@st.composite
def task_placements(draw: st.DrawFn, region: Region) -> tuple[TaskPlacement, ...]:
    """Tasks strewn over the region without regard to what is there."""
    placements: list[TaskPlacement] = []
    for _ in range(draw(st.integers(1, 3))):
        cluster = draw(st.sampled_from(region.clusters))
        machine = draw(st.sampled_from(tuple(cluster.machines())))
        gpus = draw(st.sets(st.integers(0, max(machine.gpus - 1, 0)), max_size=machine.gpus))
        cpus = draw(st.sampled_from((0, 1, 7, 24)))
        memory_gib = draw(st.sampled_from((0, 8, 200)))
        placements.append(
            TaskPlacement(
                JobName("job"),
                len(placements),
                cluster.cluster,
                machine.machine,
                tuple(sorted(gpus)),
                cpus * 1000,
                memory_gib * 1024,
            )
        )
    return tuple(placements)


@settings(max_examples=examples(60))
@given(st.data(), regions(2, 2, 2))
def test_never_holds_or_refuses_other_than_the_plain_rule(data: st.DataObject, region: Region) -> None:
    world = World.of(region)
    for number in range(data.draw(st.integers(1, 12))):
        placements = data.draw(task_placements(region))
        staying = [h for h in world.inventory.holdings() if h.key not in world.leaving]
        holding = Holding(key_of(f"w{number}"), data.draw(standings()), 0.0, placements)
        try:
            world.inventory.hold(holding)
            held = True
        except (OverCommitted, GpuTaken):
            held = False
        assert held == fits_beside(region, staying, holding)
        if held and data.draw(st.booleans()):
            world.inventory.begin_eviction(holding.key)
        world.inventory.check()


def fits_beside(region: Region, staying: list[Holding], holding: Holding) -> bool:
    for machine in plain_machines(region, {}, [*staying, holding]):
        gpus = [gpu for other in (*staying, holding) for gpu in gpus_on(machine, other)]
        if min(machine.free) < 0 or len(gpus) != len(set(gpus)):
            return False
    return True
