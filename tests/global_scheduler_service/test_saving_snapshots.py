"""A snapshot of a long queue is of one moment; nobody waits for it, and nothing is left of one that is given up."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

from domain.snapshot import Snapshot
from domain.snapshot_contradictions import contradictions
from formats.snapshot_file import parse_snapshot
from services.database import workload_store
from services.database.connection import AnyConnection
from services.wire.workloads import specification_to_proto
from tests.database.small_world import dispatch, specification, submission
from tests.global_scheduler_service.service import Service, attempt_of, in_service
from topmast.v1 import global_scheduler_pb2 as messages

PENDING = 10_000
AT_ONCE = 1_000
GIVEN_UP = 10
"""More than a global scheduler has connections to its database."""


def test_a_long_queue_is_saved_as_of_one_moment_while_everything_goes_on(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        names = await _submit_many(service, PENDING)
        async with _saving_stops_midway(service):
            saving = asyncio.create_task(_saved(service))
            await _until_a_snapshot_waits(service)
            # What is submitted meanwhile is answered, ranked and started.
            newcomer = (await service.submit()).workload
            await service.until_ranked(newcomer)
            await service.database.run(lambda connection: dispatch(connection, attempt_of(names[0])))
            assert not saving.done()
        snapshot = await saving
        assert [str(entry.workload.workload) for entry in snapshot.queue] == names
        assert snapshot.running == ()
        assert contradictions(snapshot) == []
        later = await _saved(service)
        assert {str(workload.workload) for workload in later.workloads()} == {*names, newcomer}
        assert [str(attempt.workload.workload) for attempt in later.running] == names[:1]

    in_service(database_url, scenario)


def test_nothing_is_left_of_a_snapshot_that_its_client_gives_up(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        names = await _submit_many(service, AT_ONCE)
        async with _saving_stops_midway(service):
            for _ in range(GIVEN_UP):
                saving = service.stub.SaveSnapshot(messages.SaveSnapshotRequest())
                await _until_a_snapshot_waits(service)
                saving.cancel()
                await _until_no_snapshot_is_read(service)
        await service.submit()
        snapshot = await _saved(service)
        assert len(snapshot.queue) == len(names) + 1
        assert contradictions(snapshot) == []

    in_service(database_url, scenario)


async def _submit_many(service: Service, count: int) -> list[str]:
    """Names, in the order of submission."""
    wanted = specification()
    stored = specification_to_proto(wanted).SerializeToString()
    for first in range(0, count, AT_ONCE):
        submissions = [
            replace(submission(number, wanted), serialized=stored) for number in range(first, first + AT_ONCE)
        ]
        await service.database.run(partial(workload_store.insert_submissions, submissions=submissions))
    return [str(submission(number).workload) for number in range(count)]


async def _saved(service: Service) -> Snapshot:
    chunks = [chunk.content async for chunk in service.stub.SaveSnapshot(messages.SaveSnapshotRequest())]
    return parse_snapshot(gzip.decompress(b"".join(chunks)).decode("utf-8"))


@asynccontextmanager
async def _saving_stops_midway(service: Service) -> AsyncIterator[None]:
    """Between the live attempts and the queue a snapshot reads the catalog, which nobody else here needs."""
    async with service.database.transaction() as connection:
        await connection.execute("LOCK TABLE data_tables IN ACCESS EXCLUSIVE MODE")
        yield


async def _until_a_snapshot_waits(service: Service) -> None:
    """Until one has read the live attempts and wants the catalog; scan passes wait for locks of their own meanwhile."""
    while not await service.database.run(_others_at_work):
        pass


async def _until_no_snapshot_is_read(service: Service) -> None:
    """Until no transaction but ours, which has the lock, sees the database as it was."""
    while await service.database.run(_others_at_work):
        pass


async def _others_at_work(connection: AnyConnection) -> bool:
    cursor = await connection.execute(
        """SELECT count(*) FROM pg_stat_activity JOIN pg_locks USING (pid)
            WHERE datname = current_database() AND relation = 'data_tables'::regclass AND NOT granted"""
    )
    row = await cursor.fetchone()
    return row is not None and row[0] > 0
