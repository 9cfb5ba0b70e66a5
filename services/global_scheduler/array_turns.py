"""Elements of arrays get their turn: when others of their array have ended, as many enter the queue as may be there.

A sweep, woken by whatever ends a workload and by the clock: what it misses at one time it finds at the next, whoever died in
between. One look finds the arrays of which elements wait and of which more may be active, and only these are locked; what else
an array has costs nothing.
"""

from __future__ import annotations

import asyncio
from functools import partial

import structlog

from domain.clock import Clock
from domain.events import Event, EventKind
from domain.identifiers import WorkloadId
from services.database import array_store, event_store, user_request_store
from services.database.channels import SCAN_CHANNEL
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.errors import DatabaseUnavailable
from services.database.requeue_store import requeued_entry
from services.wire.workloads import specification_from_proto
from topmast.v1 import workload_pb2

_LOOK_REAL_S = 1.0
_LEAST_INTERVAL_REAL_S = 0.05
"""What ends within that time is looked at together."""

_log = structlog.get_logger(__name__)


class ArrayTurns:
    """Gives elements their turn. `run` until cancelled."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def run(self) -> None:
        async with self._database.listen(SCAN_CHANNEL) as subscription:
            while True:
                try:
                    more = await self.give_turns()
                except DatabaseUnavailable as error:
                    _log.warning("turns of arrays given up", error=str(error))
                    more = False
                await asyncio.sleep(_LEAST_INTERVAL_REAL_S)
                await subscription.wait(0.0 if more else _LOOK_REAL_S)

    async def give_turns(self) -> bool:
        """To all that are due, one transaction for each array; whether there may be more of them."""
        more = False
        for array in await self._database.run(array_store.arrays_with_room, snapshot=True):
            given = await self._database.run(partial(self._give, array))
            more = more or given == array_store.MOST_TURNS
        return more

    async def _give(self, array: WorkloadId, connection: AnyConnection) -> int:
        due = await array_store.take_turns(connection, array)
        if due:
            now = self._clock.now()
            # Elements of an array say the same, unless they were changed one by one.
            entries = {
                said: requeued_entry(specification_from_proto(workload_pb2.WorkloadSpecification.FromString(said)))
                for said in {one.specification for one in due}
            }
            await user_request_store.enter_queue(
                connection, {one.workload: entries[one.specification] for one in due}, now
            )
            said_by = {"by": array_store.LIMIT_OF_ARRAY}
            await event_store.append(
                connection,
                [Event(now, EventKind.RELEASED, one.workload, tenant=one.tenant, details=said_by) for one in due],
            )
        return len(due)
