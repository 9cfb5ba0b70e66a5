"""What workloads asked for, kept in memory: the same ones come up for auction again and again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from sqlalchemy import select

from domain.identifiers import WorkloadId
from domain.workload import Workload
from services.database.connection import AnyConnection
from services.database.core_statements import any_of, execute
from services.database.tables.workloads import WORKLOADS
from services.wire.workloads import specification_from_proto
from topmast.v1 import workload_pb2

CAPACITY = 200_000
"""Workloads remembered; at about 2 KiB each this is a few hundred MiB at the very most."""


class SpecificationCache:
    """Workloads by name, least recently used ones forgotten. What was submitted never changes."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._workloads: OrderedDict[WorkloadId, Workload] = OrderedDict()

    async def workloads(self, connection: AnyConnection, names: Sequence[WorkloadId]) -> dict[WorkloadId, Workload]:
        """All of these; raises LookupError when the database has no such workload."""
        missing = [name for name in names if name not in self._workloads]
        if missing:
            columns = (WORKLOADS.c.workload, WORKLOADS.c.specification, WORKLOADS.c.submitted_s)
            cursor = await execute(connection, select(*columns).where(any_of(WORKLOADS.c.workload, missing)))
            for workload, specification, submitted_s in await cursor.fetchall():
                message = workload_pb2.WorkloadSpecification.FromString(bytes(specification))
                name = WorkloadId(workload)
                self._workloads[name] = Workload(name, specification_from_proto(message), submitted_s)
        found: dict[WorkloadId, Workload] = {}
        for name in names:
            remembered = self._workloads.get(name)
            if remembered is None:
                raise LookupError(f"the database has no workload {name}")
            self._workloads.move_to_end(name)
            found[name] = remembered
        while len(self._workloads) > self._capacity:
            self._workloads.popitem(last=False)
        return found
