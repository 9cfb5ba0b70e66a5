"""Who reads tables at present: attempts that run, and workloads that wait for data."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from domain.identifiers import RegionId, TableId, WorkloadId
from domain.life_cycle import State
from domain.workload import WorkloadSpecification
from services.database import changed_workload_store
from services.database.connection import AnyConnection
from services.wire.workloads import specification_from_proto
from topmast.v1 import workload_pb2

_SPECIFICATIONS_REMEMBERED = 10_000


class QueuedWorkloads:
    """The head of the queue with what it asks for, which is parsed once, and again when it was changed."""

    def __init__(self) -> None:
        self._known: OrderedDict[WorkloadId, WorkloadSpecification] = OrderedDict()
        self._revision = 0
        """Of the newest change that it has heard of."""

    async def head(
        self, connection: AnyConnection, states: Sequence[State], limit: int, passed: int = 0
    ) -> list[tuple[WorkloadId, int, WorkloadSpecification]]:
        """Name, priority and specification of the first ones in these states behind so many, in the order of the queue."""
        cursor = await connection.execute(
            """SELECT workload, priority FROM queue_entries WHERE priority IS NOT NULL AND state = ANY (%s)
                ORDER BY priority, level, (-credit), submitted_s, workload LIMIT %s OFFSET %s""",
            ([state.value for state in states], limit, passed),
        )
        rows = [(WorkloadId(workload), int(priority)) for workload, priority in await cursor.fetchall()]
        for changed in await changed_workload_store.changed_workloads(connection, self._revision):
            self._revision = changed.revision
            self._known.pop(changed.newest.workload, None)
        await self._learn(connection, [workload for workload, _ in rows if workload not in self._known])
        head = [(workload, priority, self._known[workload]) for workload, priority in rows if workload in self._known]
        while len(self._known) > _SPECIFICATIONS_REMEMBERED:
            self._known.popitem(last=False)
        return head

    async def _learn(self, connection: AnyConnection, workloads: Sequence[WorkloadId]) -> None:
        cursor = await connection.execute(
            "SELECT workload, specification FROM workloads WHERE workload = ANY (%s)", (list(workloads),)
        )
        for workload, specification in await cursor.fetchall():
            self._known[WorkloadId(workload)] = _parsed(specification)


async def read_by_live_attempts(
    connection: AnyConnection, tables: Sequence[TableId]
) -> frozenset[tuple[TableId, RegionId]]:
    """Which of the tables attempts read that have not ended, and in which regions."""
    if not tables:
        return frozenset()
    cursor = await connection.execute(
        """SELECT DISTINCT r.data_table, a.region
             FROM attempts a JOIN workload_tables r USING (workload)
            WHERE a.ended_s IS NULL AND r.data_table = ANY (%s)""",
        (list(tables),),
    )
    return frozenset((TableId(table), RegionId(region)) for table, region in await cursor.fetchall())


async def gpus_held(connection: AnyConnection) -> dict[RegionId, int]:
    """By region, of all attempts that have not ended."""
    cursor = await connection.execute(
        """SELECT a.region, sum(w.gpus)::bigint FROM attempts a JOIN workloads w USING (workload)
            WHERE a.ended_s IS NULL GROUP BY a.region ORDER BY a.region"""
    )
    return {RegionId(region): int(gpus) for region, gpus in await cursor.fetchall()}


def _parsed(specification: object) -> WorkloadSpecification:
    if not isinstance(specification, bytes | memoryview):
        raise TypeError(f"a specification is stored as bytes, not as {type(specification).__name__}")
    return specification_from_proto(workload_pb2.WorkloadSpecification.FromString(bytes(specification)))
