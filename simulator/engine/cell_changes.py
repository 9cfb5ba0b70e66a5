"""Attempts that lose cells and get cells again while they go on, as the region's inventory has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from domain.cells import CellsOfJobs
from domain.events import EventKind
from formats.event_details import cells_details
from regional_scheduler.cell_changes import bound_anew, cell_changes
from simulator.engine.workloads import SimulatedWorkload
from simulator.engine.world import World

if TYPE_CHECKING:
    from simulator.engine.attempts import Attempts


def change_cells(world: World, attempts: Attempts) -> None:
    """Downgraded attempts get cells again where there are some, and inconsistent ones lose theirs."""
    for region, member in enumerate(world.regions.members):
        for key, cells in bound_anew(member.inventory):
            member.inventory.replace_cells(key, cells)
        actions = cell_changes(member.inventory)
        if actions:
            attempts.carry_out(region, actions)


def tell_of_cells(
    world: World, work: SimulatedWorkload, kind: EventKind, cells: CellsOfJobs, by: SimulatedWorkload | None = None
) -> None:
    """It was downgraded, for that newcomer if any, or has cells again; its inventory knows it already."""
    if world.log is not None:
        details = cells_details(cells, by.workload.workload if by is not None else None)
        world.log.cells_changed(work, kind, details, world.clock.now())
