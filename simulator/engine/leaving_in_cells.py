"""Whom an attempt waits for that was placed in cells of a virtual cluster: an owner does not wait to be placed (HiveD §3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from domain.placement import machines_of
from domain.plan import Plan
from simulator.engine.workloads import SimulatedWorkload
from simulator.engine.world import World


def leaving_in_cells(world: World, work: SimulatedWorkload, plan: Plan) -> list[SimulatedWorkload]:
    """Who is leaving the machines of its places already, though not for it; nobody unless these are in cells."""
    if not plan.cells:
        return []
    machines, inventory = frozenset(machines_of(plan.placements)), world.regions.members[work.region].inventory
    victims = plan.evictions
    found: list[SimulatedWorkload] = []
    for other in world.live.values():
        if other.region == work.region and other.run.eviction is not None and other.key not in victims:
            holding = inventory.holding(other.key)
            if holding is not None and not machines.isdisjoint(machines_of(holding.placements)):
                found.append(other)
    return found


def awaiting(work: SimulatedWorkload) -> list[tuple[SimulatedWorkload, int]]:
    """Who waits until the attempt has left, with their tokens: the one for which it leaves, and those placed there too."""
    first = [(work.makes_room_for, work.room_token)] if work.makes_room_for is not None else []
    return [*first, *work.also_awaited_by]


def wait_no_longer(
    work: SimulatedWorkload, awaited_by: Sequence[tuple[SimulatedWorkload, int]]
) -> Iterator[SimulatedWorkload]:
    """The attempt has left: those of them that wait for nobody else."""
    work.makes_room_for = None
    work.also_awaited_by.clear()
    for newcomer, token in awaited_by:
        if newcomer.token == token:
            newcomer.victims_left -= 1
            if newcomer.victims_left == 0:
                yield newcomer
