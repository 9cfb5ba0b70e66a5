"""What must hold at every moment of a run, computed anew from what is held: sampled, and logged when it does not."""

from __future__ import annotations

from collections.abc import Iterator

from cluster_manager.attempt_run.making_room import is_in_the_way
from cluster_manager.attempt_run.run import Phase
from cluster_manager.capacity.errors import InvariantBroken
from domain.identifiers import RegionId
from domain.placement import AttemptKey, TaskPlacement
from simulator.engine.world import World


def broken_invariants(world: World) -> Iterator[tuple[RegionId | None, str]]:
    """The region, if it is about one, and a sentence for each invariant that does not hold now."""
    for member in world.regions.members:
        try:
            member.inventory.check()
        except InvariantBroken as error:
            yield member.region, str(error)
    yield from world.needless
    world.needless.clear()
    gpus = [0] * len(world.tenants)
    for work in world.live.values():
        gpus[work.tenant] += work.gpus
        member = world.regions.members[work.region]
        holding = member.inventory.holding(work.key)
        if holding is None:
            yield member.region, f"{work.workload.workload} is live, and its attempt holds nothing"
        elif holding.standing != work.standing:
            yield (
                member.region,
                f"{work.workload.workload} stands at {work.standing}, in the inventory at {holding.standing}",
            )
    held = sum(len(member.inventory.holdings()) for member in world.regions.members)
    kept = sum(work.goes_on_in is not None for work in world.live.values())
    if held != len(world.live) + kept:
        yield None, f"{held} attempts hold something, but {len(world.live)} are live, and {kept} places are kept"
    if gpus != list(world.tenant_gpus):
        yield None, f"tenants hold {gpus} GPUs, but {list(world.tenant_gpus)} are counted"
    yield from _started_too_early(world)


def _started_too_early(world: World) -> Iterator[tuple[RegionId | None, str]]:
    """An attempt is being set up only when none is in its way any more; a service asks before it gives the order."""
    leaving: list[tuple[AttemptKey, AttemptKey | None, tuple[TaskPlacement, ...]]] = []
    starting: list[tuple[RegionId, AttemptKey, tuple[TaskPlacement, ...]]] = []
    for work in world.live.values():
        member = world.regions.members[work.region]
        holding = member.inventory.holding(work.key)
        if holding is not None and work.run.eviction is not None:
            leaving.append((work.key, work.run.eviction.by, holding.placements))
        elif holding is not None and work.run.phase is Phase.STARTING:
            starting.append((member.region, work.key, holding.placements))
    for region, newcomer, place in starting:
        for key, leaves_for, placements in leaving:
            if is_in_the_way(placements, leaves_for, newcomer, place):
                yield region, f"{newcomer.workload} starts, and {key.workload} is in its way and has not left"
