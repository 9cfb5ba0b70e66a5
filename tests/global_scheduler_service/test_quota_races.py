"""Three regions dispatch and end attempts while scan passes re-classify: the ledger stays true, the quota is kept (I4)."""

import asyncio
from dataclasses import replace

import numpy as np

from cluster_manager.attempt_run.actions import RecordEnd
from domain.identifiers import AttemptNumber, RegionId, WorkloadId
from domain.life_cycle import State
from domain.placement import AttemptKey
from domain.rank import Standing
from services.clock import SystemClock
from services.database import attempt_store, quota_store, reclassification_store
from services.database.channels import SCAN_CHANNEL
from services.database.connection import AnyConnection, wake_after_commit
from services.database.engine import Database
from services.database.requeue_store import RequeuedEntry
from services.wire.workloads import specification_to_proto
from tests.database.small_world import ADS, specification
from tests.global_scheduler_service.service import Service, attempt_of, in_service, submit_request
from topmast.v1 import global_scheduler_pb2 as messages

_LIMIT = 16
_WORKLOADS = 24
_RECLASSIFICATIONS = 8
"""It goes on until so many passes' decisions came in between."""

_BOOKS = """
    SELECT coalesce((SELECT amount FROM quota_use WHERE tenant = 'ads' AND bucket = 'A100'), 0),
           coalesce((SELECT sum((charges ->> 'A100')::int) FROM attempts WHERE ended_s IS NULL AND within_quota), 0),
           (SELECT count(*) FROM events WHERE event = 'reclassified')"""


class _QuotaRegion:
    """Does at random what a region does, in the same order of locks."""

    def __init__(self, name: str, database: Database, generator: np.random.Generator) -> None:
        self._name = RegionId(name)
        self._database = database
        self._generator = generator
        self.dispatched = 0

    async def run(self, enough: asyncio.Event) -> None:
        while not enough.is_set():
            step = self._dispatch if self._generator.random() < 0.55 else self._end
            await self._database.run(step)

    async def _dispatch(self, connection: AnyConnection) -> None:
        """Takes some entry out of the queue, unless its quota is used up meanwhile."""
        cursor = await connection.execute(
            """SELECT q.workload, q.priority, q.within_quota, w.attempts + 1 FROM queue_entries q
                 JOIN workloads w USING (workload)
                WHERE q.priority IS NOT NULL ORDER BY random() LIMIT 1 FOR UPDATE OF q SKIP LOCKED"""
        )
        row = await cursor.fetchone()
        if row is None:
            return
        workload, priority, within_quota, number = row
        attempt = replace(attempt_of(workload, number), standing=Standing(priority, 0), within_quota=within_quota)
        if within_quota:
            limits = {ADS: {"A100": _LIMIT}}
            if await quota_store.charge(connection, [(ADS, attempt.charges)], limits) != [True]:
                return
        await attempt_store.dispatch(connection, self._name, [attempt])
        self.dispatched += 1

    async def _end(self, connection: AnyConnection) -> None:
        """Ends one of its own attempts; its workload returns to the queue."""
        cursor = await connection.execute(
            "SELECT workload, attempt FROM attempts WHERE region = %s AND ended_s IS NULL ORDER BY random() LIMIT 1",
            (self._name,),
        )
        row = await cursor.fetchone()
        if row is None:
            return
        key = AttemptKey(WorkloadId(row[0]), AttemptNumber(row[1]))
        end = RecordEnd(key, "drained", "", SystemClock().now(), 0.0, 0.0, State.PENDING)
        await attempt_store.record_ends(connection, [end], {key.workload: RequeuedEntry("A100", 8, 0.0)})
        stands = await reclassification_store.stands(connection, [key])
        await quota_store.release(connection, [(ADS, stand.charges) for stand in stands.values() if stand.within_quota])
        wake_after_commit(connection, SCAN_CHANNEL)


def test_never_more_within_quota_than_the_quota(database_url: str, generator: np.random.Generator) -> None:
    async def audit(service: Service) -> int:
        """How often an attempt was re-classified so far."""
        ((ledger, live, reclassified),) = await service.rows(_BOOKS)
        assert ledger == live, "the ledger does not say what live attempts are charged"
        assert isinstance(ledger, int)
        assert ledger <= _LIMIT
        assert isinstance(reclassified, int)
        return reclassified

    async def scenario(service: Service) -> None:
        wanted = specification_to_proto(specification())
        requests = [submit_request(wanted) for _ in range(_WORKLOADS)]
        answer = await service.stub.SubmitWorkloads(messages.SubmitWorkloadsRequest(requests=requests))
        await service.until_ranked(*(one.workload for one in answer.responses))
        regions = [_QuotaRegion(name, service.database, generator) for name in ("east", "coast", "west")]
        enough = asyncio.Event()
        async with asyncio.TaskGroup() as working:
            for region in regions:
                working.create_task(region.run(enough))
            while await audit(service) < _RECLASSIFICATIONS:
                pass
            enough.set()
        await audit(service)
        assert sum(region.dispatched for region in regions) >= _RECLASSIFICATIONS

    in_service(database_url, scenario)
