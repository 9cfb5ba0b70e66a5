"""Changes of placements that a cluster refuses as impossible are undone."""

from __future__ import annotations

from collections.abc import Sequence

from cluster_manager.attempt_run.events import Eviction
from domain.events import EvictionCause
from domain.life_cycle import State
from services.database.engine import Database
from services.database.lease_store import Lease
from services.regional_scheduler.cluster_link import ChangeRefused
from services.regional_scheduler.eviction_writer import EvictionWriter
from services.regional_scheduler.live_attempts import LiveAttempt
from services.regional_scheduler.region_memory import RegionMemory
from services.regional_scheduler.undone_changes import UndoneChanges
from services.tiers.fenced_transaction import fenced_transaction

_REFUSED = Eviction(EvictionCause.CHANGE_REFUSED)


class RefusedChanges:
    """Undoes them.

    What the attempt was to give up may be another one's by now, which waits for it. Then the attempt leaves instead, with
    its work saved; and so it does when even the change back is refused.
    """

    def __init__(
        self,
        database: Database,
        lease: Lease,
        memory: RegionMemory,
        undone_changes: UndoneChanges,
        eviction_writer: EvictionWriter,
    ) -> None:
        self._database = database
        self._lease = lease
        self._memory = memory
        self._undone_changes = undone_changes
        self._eviction_writer = eviction_writer

    async def undo(self, refused: Sequence[ChangeRefused]) -> None:
        """One transaction for each attempt. What was refused and is not its last change any more is passed over."""
        for refusal in refused:
            attempt = self._memory.live.get(refusal.key)
            if attempt is None or attempt.revision != refusal.revision or attempt.state is not State.RUNNING:
                continue
            if attempt.change is not None:
                await self._undo(attempt, refusal)

    async def _undo(self, attempt: LiveAttempt, refusal: ChangeRefused) -> None:
        back = self._undone_changes.way_back(attempt)
        async with fenced_transaction(self._database, self._lease) as connection:
            await self._undone_changes.tell(connection, attempt, refusal.cluster, refusal.reason)
            if back is not None:
                await self._undone_changes.write(connection, attempt, back)
                leaving = []
            else:
                leaving = await self._eviction_writer.write(connection, [attempt.key], _REFUSED)
        if back is not None:
            self._undone_changes.begin(attempt, back)
        self._eviction_writer.begin(leaving, _REFUSED)
