"""Changes of placements that a cluster refuses as impossible are undone, and what they had reserved is free again."""

from __future__ import annotations

from collections.abc import Sequence

from cluster_manager.attempt_run.events import Eviction
from cluster_manager.capacity.errors import InventoryError
from domain.clock import Clock
from domain.events import Event, EventKind, EvictionCause
from domain.life_cycle import State
from domain.placement_changes import PlacementChange, undone
from services.database import event_store, placement_change_store
from services.database.channels import SCAN_CHANNEL
from services.database.connection import AnyConnection, wake_after_commit
from services.database.engine import Database
from services.database.lease_store import Lease
from services.regional_scheduler.cluster_link import ChangeRefused
from services.regional_scheduler.due_attempts import DueAttempts
from services.regional_scheduler.eviction_writer import EvictionWriter
from services.regional_scheduler.live_attempts import LiveAttempt
from services.regional_scheduler.region_memory import RegionMemory
from services.regional_scheduler.session_over import SessionOver
from services.tiers.fenced_transaction import fenced_transaction

_REFUSED = Eviction(EvictionCause.CHANGE_REFUSED)


class RefusedChanges:
    """Undoes them. The change back is one like others: clusters that have carried out the first carry out that too.

    What the attempt was to give up may be another one's by now, which waits for it. Then the attempt leaves instead, with
    its work saved; and so it does when even the change back is refused.
    """

    def __init__(
        self,
        database: Database,
        lease: Lease,
        memory: RegionMemory,
        due_attempts: DueAttempts,
        eviction_writer: EvictionWriter,
        clock: Clock,
    ) -> None:
        self._database = database
        self._lease = lease
        self._memory = memory
        self._due_attempts = due_attempts
        self._eviction_writer = eviction_writer
        self._clock = clock

    async def undo(self, refused: Sequence[ChangeRefused]) -> None:
        """One transaction for each attempt. What was refused and is not its last change any more is passed over."""
        for refusal in refused:
            attempt = self._memory.live.get(refusal.key)
            if attempt is None or attempt.revision != refusal.revision or attempt.state is not State.RUNNING:
                continue
            if attempt.change is not None:
                await self._undo(attempt, attempt.change, refusal)

    async def _undo(self, attempt: LiveAttempt, change: PlacementChange, refusal: ChangeRefused) -> None:
        back = undone(change, attempt.placements)
        goes_back = not change.undoes and self._has_room(attempt, back)
        async with fenced_transaction(self._database, self._lease) as connection:
            await event_store.append(connection, [self._event(attempt, change, refusal)])
            if goes_back:
                await self._write(connection, attempt, back)
                wake_after_commit(connection, SCAN_CHANNEL)
                leaving = []
            else:
                leaving = await self._eviction_writer.write(connection, [attempt.key], _REFUSED)
        if goes_back:
            self._memory.inventory.replace_placements(attempt.key, back.before)
            waiting = self._memory.live.begin_change(attempt.key, back.before, back)
            for key in (attempt.key, *waiting):
                self._due_attempts.give_orders(key)
        self._eviction_writer.begin(leaving, _REFUSED)

    def _has_room(self, attempt: LiveAttempt, back: PlacementChange) -> bool:
        """Whether what it was to give up is still free."""
        try:
            with self._memory.inventory.tentatively():
                self._memory.inventory.replace_placements(attempt.key, back.before)
        except InventoryError:
            return False
        return True

    async def _write(self, connection: AnyConnection, attempt: LiveAttempt, back: PlacementChange) -> None:
        number = attempt.revision + 1
        if not await placement_change_store.begin_change(
            connection, attempt.key, number, back.before, back, self._clock.now()
        ):
            raise SessionOver(f"{attempt.key} does not run in the database, or was changed meanwhile")

    def _event(self, attempt: LiveAttempt, change: PlacementChange, refusal: ChangeRefused) -> Event:
        return Event(
            self._clock.now(),
            EventKind.CHANGE_REFUSED,
            attempt.key.workload,
            attempt.key.attempt,
            attempt.tenant,
            attempt.standing.priority,
            attempt.standing.level,
            self._memory.region.region,
            refusal.cluster,
            details={"change": change.kind.value, "reason": refusal.reason},
        )
