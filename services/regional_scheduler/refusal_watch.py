"""A region watches the kinds of workloads that no region had room for, so that it says at once when it may have some."""

from __future__ import annotations

from domain.identifiers import WorkloadId
from domain.workload import Workload
from regional_scheduler.refusals.refused_kinds import Objection, RefusedKind, RefusedKinds
from services.database import refusal_store
from services.database.connection import AnyConnection
from services.database.refusal_store import StoredRefusal
from services.regional_scheduler.region_memory import RegionMemory

_MOST_PLANS = 64
"""In one look: about as many as a round takes."""
_ALL_ANEW = 256
"""So many rounds after all were taken over, they are again: what others have ended is left out."""


class RefusalWatch:
    """What holds, as far as the database has said, held against what the region has."""

    def __init__(self, memory: RegionMemory) -> None:
        self._memory = memory
        self._kinds = RefusedKinds()
        self._taken_to = 0
        """The round up to which refusals were taken over."""
        self._all_anew_at = 0

    @property
    def begun(self) -> bool:
        """Whether it has taken anything over yet."""
        return self._all_anew_at > 0

    async def take_over(self, connection: AnyConnection) -> None:
        """Takes over what was refused since the last time."""
        anew = self._taken_to >= self._all_anew_at
        stored = await refusal_store.refused_since(connection, 0 if anew else self._taken_to + 1)
        if anew:
            self._kinds.keep_only([one.key for one in stored])
            self._all_anew_at = self._taken_to + _ALL_ANEW
        if stored:
            workloads = await self._asked(connection, stored)
            self._kinds.add(
                RefusedKind(
                    one.key,
                    one.round_number,
                    workloads[one.position.workload],
                    one.position,
                    one.diagnosis,
                    one.awaits_data,
                )
                for one in stored
            )
            self._taken_to = stored[-1].round_number

    def to_check(self) -> bool:
        """Whether any of them may not hold any more."""
        return self._kinds.to_check(self._memory.bidder, self._memory.revisions)

    def objections(self, now: float) -> tuple[Objection, ...]:
        """To what the region may have room for: see `RefusedKinds.objections`."""
        return self._kinds.objections(self._memory.bidder, self._memory.revisions, now, _MOST_PLANS)

    async def _asked(self, connection: AnyConnection, refusals: list[StoredRefusal]) -> dict[WorkloadId, Workload]:
        memory = self._memory
        names = sorted({one.position.workload for one in refusals})
        workloads = await memory.specifications.workloads(connection, names)
        return {name: memory.asked(workload) for name, workload in workloads.items()}
