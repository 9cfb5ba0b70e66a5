"""Changes of what running attempts hold, where what they get more of is not free yet.

A change counts on what leaving attempts will give back. As in the service it waits until all those have left that hold
something where the attempt gets more; what the attempt gives up, it gives up at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from domain.events import EventKind
from domain.identifiers import MachineId
from domain.life_cycle import State
from domain.placement import AttemptKey, TaskPlacement
from domain.placement_changes import grown, kept
from simulator.engine.workloads import SimulatedWorkload
from simulator.engine.world import World


@dataclass(slots=True)
class _WaitingChange:
    """What happens to the attempt when the others have left."""

    work: SimulatedWorkload
    kind: EventKind
    waits_for: set[AttemptKey]


class PlacementChanges:
    """The changes that wait; at most one of each workload."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._waiting: dict[int, _WaitingChange] = {}

    def waits(self, work: SimulatedWorkload) -> bool:
        """Whether the attempt does not hold yet what it was given."""
        return work.index in self._waiting

    def begin(
        self, work: SimulatedWorkload, kind: EventKind, after: tuple[TaskPlacement, ...]
    ) -> tuple[TaskPlacement, ...] | None:
        """What the attempt holds from now on of what it was given: all of it, or what is left of what it held.

        None when all that it was given has to wait.
        """
        self.drop(work)
        waits_for = self._leaving_on({placement.machine for placement in grown(work.placements, after)}, work)
        if not waits_for:
            return after
        self._waiting[work.index] = _WaitingChange(work, kind, waits_for)
        left = kept(work.placements, after)
        return left if left != work.placements else None

    def losing(
        self, works: Iterable[SimulatedWorkload], down: Sequence[MachineId], why: str
    ) -> list[SimulatedWorkload]:
        """Which of these attempts hold something on the machines: they get nothing more. Those that were only to hold
        something there keep what they hold, and what they were to get, there or elsewhere, is free again."""
        lost: list[SimulatedWorkload] = []
        for work in works:
            change = self._waiting.pop(work.index, None)
            if change is None or any(placement.machine in down for placement in work.placements):
                lost.append(work)
            else:
                self._undo(change, down, why)
        return lost

    def _undo(self, change: _WaitingChange, down: Sequence[MachineId], why: str) -> None:
        world, work = self._world, change.work
        inventory = world.regions.members[work.region].inventory
        holding = inventory.holding(work.key)
        to_be = {placement.machine for placement in holding.placements} if holding is not None else set()
        inventory.replace_placements(work.key, work.placements)
        if world.log is not None:
            machine = next(machine for machine in down if machine in to_be)
            reason = f"machine {machine}, where it was to hold more, is lost: {why}"
            world.log.change_refused(work, change.kind, inventory.cluster_of(machine), reason, world.clock.now())

    def drop(self, work: SimulatedWorkload) -> None:
        """The attempt leaves or ends: it gets nothing more."""
        self._waiting.pop(work.index, None)

    def ready_after(self, gone: AttemptKey) -> list[tuple[SimulatedWorkload, EventKind]]:
        """Whose changes waited for this attempt, and for no other any more: they wait no longer."""
        ready: list[tuple[SimulatedWorkload, EventKind]] = []
        for change in [change for change in self._waiting.values() if gone in change.waits_for]:
            change.waits_for.discard(gone)
            if not change.waits_for:
                del self._waiting[change.work.index]
                ready.append((change.work, change.kind))
        return ready

    def _leaving_on(self, machines: set[str], work: SimulatedWorkload) -> set[AttemptKey]:
        """Which other attempts are leaving any of these machines."""
        return {
            other.key
            for other in self._world.live.values()
            if other.state is State.PREEMPTING
            and other is not work
            and any(placement.machine in machines for placement in other.placements)
        }
