"""Counts what ended workloads read and used, as the event log says that they ended: each once, whatever stops the service."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import structlog

from domain.events import EventKind
from domain.identifiers import WorkloadId
from domain.workload import WorkloadSpecification
from domain.workload_fingerprint import workload_fingerprint
from services.clock import ServiceClock
from services.database import event_store, use_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.errors import DatabaseUnavailable
from services.database.event_store import EventFilter, StoredEvent
from services.database.use_store import ReaderUse, RunUse
from services.wire.workloads import specification_from_proto
from topmast.v1 import workload_pb2

_INTERVAL_REAL_S = 30.0
_EVENTS_AT_ONCE = 200
"""Reading the specifications of so many workloads takes some milliseconds."""
_DAY_S = 86_400.0
_ENDS = EventFilter(kinds=(EventKind.COMPLETED, EventKind.FAILED, EventKind.CANCELLED))
_log = structlog.get_logger(__name__)


class UseCounting:
    """Follows the event log. `run` until cancelled; `catch_up` for those who need the present state."""

    def __init__(self, database: Database, clock: ServiceClock) -> None:
        self._database = database
        self._clock = clock
        self._turn = asyncio.Lock()

    async def run(self) -> None:
        while True:
            try:
                await self.catch_up()
            except DatabaseUnavailable as error:
                _log.warning("counting what tables are used for given up until later", error=str(error))
            await asyncio.sleep(_INTERVAL_REAL_S)

    async def catch_up(self) -> None:
        """Counts all that has ended by now."""
        async with self._turn:
            while not await self._database.run(_count_some):
                pass


async def _count_some(connection: AnyConnection) -> bool:
    """Counts some of what has ended since the last time; True: there is nothing more."""
    after = await use_store.counted_through(connection)
    page = await event_store.read(connection, after, _EVENTS_AT_ONCE, _ENDS)
    if page.through == after:
        return True
    ended = {stored.event.workload: stored for stored in page.events if _is_end(stored) and stored.event.workload}
    specifications = await _specifications(connection, sorted(ended))
    uses = await use_store.uses_of(connection, sorted(specifications))
    found = [
        use
        for workload, specification in sorted(specifications.items())
        for use in reader_uses(
            specification,
            [use for use in uses if use.workload == workload],
            int(ended[WorkloadId(workload)].event.t // _DAY_S),
        )
    ]
    await use_store.count_uses(connection, found, after, page.through)
    return page.complete


def reader_uses(specification: WorkloadSpecification, uses: Sequence[RunUse], day: int) -> list[ReaderUse]:
    """What a run says of its recurring workload: a reader for each GPU model and priority that it had.

    CPUs beside GPUs count with the GPU model of which it had most.
    """
    fingerprint = workload_fingerprint(specification)
    if fingerprint is None:
        return []
    tables = tuple(str(table.table) for table in specification.tables)
    newest = tuple(
        (str(table.table), table.newest_partitions) for table in specification.tables if table.newest_partitions
    )
    hours: dict[tuple[str, int], tuple[float, float]] = {}
    main = max((use for use in uses if use.gpu_hours > 0), key=lambda use: (use.gpu_hours, use.gpu_model), default=None)
    for use in uses:
        model = use.gpu_model if use.gpu_hours > 0 else "" if main is None else main.gpu_model
        gpu_hours, cpu_hours = hours.get((model, use.priority), (0.0, 0.0))
        hours[model, use.priority] = (gpu_hours + use.gpu_hours, cpu_hours + use.cpu_hours)
    return [
        ReaderUse(
            f"{fingerprint}/{model or 'cpu'}/{priority}",
            fingerprint,
            model,
            priority,
            day,
            gpu_hours,
            cpu_hours,
            tables,
            newest,
        )
        for (model, priority), (gpu_hours, cpu_hours) in sorted(hours.items())
    ]


def _is_end(stored: StoredEvent) -> bool:
    """A failure after which the workload is tried again is none."""
    return stored.event.event is not EventKind.FAILED or bool(stored.event.details.get("final"))


async def _specifications(connection: AnyConnection, workloads: Sequence[str]) -> Mapping[str, WorkloadSpecification]:
    """Of those that read tables."""
    cursor = await connection.execute(
        "SELECT workload, specification FROM workloads WHERE workload = ANY (%s)", (list(workloads),)
    )
    found: dict[str, WorkloadSpecification] = {}
    for workload, content in await cursor.fetchall():
        message = workload_pb2.WorkloadSpecification.FromString(content)
        if message.tables:
            found[str(workload)] = specification_from_proto(message)
    return found
