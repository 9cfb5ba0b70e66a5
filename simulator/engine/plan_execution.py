"""What the actions of a plan come to in a simulation, one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from domain.events import EventKind
from domain.plan import Downgrade, Evict, Migrate, Reclaim, Restore, Retune, ScaleIn, ScaleOut, Start
from simulator.engine.cell_changes import tell_of_cells
from simulator.engine.workloads import SimulatedWorkload
from simulator.engine.world import World

if TYPE_CHECKING:
    from simulator.engine.attempts import Attempts


class SimulatedExecution:
    """Translates the actions of a plan into what happens to workloads; the inventory has them already."""

    def __init__(self, world: World, attempts: Attempts, region: int, newcomer: SimulatedWorkload | None) -> None:
        self._world = world
        self._attempts = attempts
        self._region = region
        self._newcomer = newcomer

    def start(self, action: Start) -> None:
        """The newcomer starts when its victims have left, or at once."""
        if self._newcomer is None:
            raise ValueError(f"nothing starts here: {action}")

    def evict(self, action: Evict) -> None:
        if self._newcomer is None:
            raise ValueError(f"{action.victim} is to make room for no attempt")
        self._attempts.make_room(self._attempts.workload_of(action.victim), self._newcomer, own_cells=action.own_cells)

    def downgrade(self, action: Downgrade) -> None:
        work = self._attempts.workload_of(action.attempt)
        tell_of_cells(self._world, work, EventKind.DOWNGRADED, action.cells, self._newcomer)

    def restore(self, action: Restore) -> None:
        work = self._attempts.workload_of(action.attempt)
        tell_of_cells(self._world, work, EventKind.RESTORED, action.cells)

    def scale_in(self, action: ScaleIn) -> None:
        self._attempts.change(self._attempts.workload_of(action.attempt), EventKind.RESIZED)

    def scale_out(self, action: ScaleOut) -> None:
        self._attempts.change(self._attempts.workload_of(action.attempt), EventKind.RESIZED)

    def retune(self, action: Retune) -> None:
        self._attempts.change(self._attempts.workload_of(action.attempt), EventKind.TUNED)

    def migrate(self, action: Migrate) -> None:
        work = self._attempts.workload_of(action.attempt)
        self._attempts.migrate(work, (self._region, action.placements), action.room_for)

    def reclaim(self, action: Reclaim) -> None:
        self._attempts.give_back(self._region, action)
