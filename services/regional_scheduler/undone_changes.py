"""Changes of placements that will not be carried out are undone, and what they had reserved is free again."""

from __future__ import annotations

from dataclasses import replace

from cluster_manager.capacity.errors import InventoryError
from domain.clock import Clock
from domain.events import Event, EventKind
from domain.identifiers import ClusterId
from domain.placement_changes import PlacementChange, name_of, undone
from domain.plan import TaskName
from services.database import event_store, placement_change_store
from services.database.channels import SCAN_CHANNEL
from services.database.connection import AnyConnection, wake_after_commit
from services.regional_scheduler.due_attempts import DueAttempts
from services.regional_scheduler.live_attempts import LiveAttempt
from services.regional_scheduler.region_memory import RegionMemory
from services.regional_scheduler.session_over import SessionOver


class UndoneChanges:
    """The change back is one like others: clusters that have carried out the first carry out that too."""

    def __init__(self, memory: RegionMemory, due_attempts: DueAttempts, clock: Clock) -> None:
        self._memory = memory
        self._due_attempts = due_attempts
        self._clock = clock

    def way_back(self, attempt: LiveAttempt) -> PlacementChange | None:
        """The change back to what the attempt held before its last one.

        None where there is none: no change is pending, it is a change back itself, or what was to be given up is another
        one's by now, or on a machine that is to be emptied.
        """
        if attempt.change is None or attempt.change.undoes:
            return None
        back = undone(replace(attempt.change, lost=self._lost(attempt.change)), attempt.placements)
        kept = {name_of(placement) for placement in attempt.placements}
        returning = {placement.machine for placement in back.before if name_of(placement) not in kept}
        if any(not self._memory.machine_state(machine).takes_work for machine in returning):
            return None
        try:
            with self._memory.inventory.tentatively():
                self._memory.inventory.replace_placements(attempt.key, back.before)
        except InventoryError:
            return None
        return back

    def _lost(self, change: PlacementChange) -> tuple[TaskName, ...]:
        """The tasks that it held and that nothing brings back: those on machines that were lost since it was decided, too."""
        gone = {name_of(held) for held in change.before if self._memory.machine_state(held.machine).is_down}
        return tuple(sorted({*change.lost, *gone}))

    async def write(self, connection: AnyConnection, attempt: LiveAttempt, back: PlacementChange) -> None:
        """Writes the change back; after the commit `begin` does the same to memory. Raises SessionOver when the database
        knows the attempt otherwise."""
        number = attempt.revision + 1
        if not await placement_change_store.begin_change(
            connection, attempt.key, number, back.before, back, self._clock.now(), replaces=True
        ):
            raise SessionOver(f"{attempt.key} does not run in the database, or was changed meanwhile")
        wake_after_commit(connection, SCAN_CHANNEL)

    async def tell(self, connection: AnyConnection, attempt: LiveAttempt, cluster: ClusterId, reason: str) -> None:
        """Writes the event that the cluster will not carry out the attempt's change."""
        if attempt.change is None:
            return
        event = Event(
            self._clock.now(),
            EventKind.CHANGE_REFUSED,
            attempt.key.workload,
            attempt.key.attempt,
            attempt.tenant,
            attempt.standing.priority,
            attempt.standing.level,
            self._memory.region.region,
            cluster,
            details={"change": attempt.change.kind.value, "reason": reason},
        )
        await event_store.append(connection, [event])

    def begin(self, attempt: LiveAttempt, back: PlacementChange) -> None:
        """What was written counts in memory too."""
        self._memory.inventory.replace_placements(attempt.key, back.before)
        waiting = self._memory.live.begin_change(attempt.key, back.before, back)
        for key in (attempt.key, *waiting):
            self._due_attempts.give_orders(key)
