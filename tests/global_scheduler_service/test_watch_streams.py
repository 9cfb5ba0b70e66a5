"""What watch streams tell is what answers say, for few snapshots however many streams there are, and only to who may see it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import grpc

from cluster_manager.attempt_run.actions import RecordEnd
from domain.events import Event, EventKind
from domain.identifiers import WorkloadId
from domain.life_cycle import State
from services.database import attempt_store, event_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.requeue_store import RequeuedEntry
from services.wire.workloads import specification_to_proto
from tests.database.small_world import VISION, dispatch, specification, until_somebody_waits
from tests.global_scheduler_service.service import Service, attempt_of, in_service, refused
from topmast.v1 import global_scheduler_pb2 as messages
from topmast.v1 import workload_pb2

Step = Callable[[], Awaitable[object]]


class _Watched:
    """A workload, or array, and the stream that tells of it."""

    def __init__(self, service: Service, name: str) -> None:
        self._service = service
        self.name = name
        self.stream = service.stub.WatchWorkload(messages.WatchWorkloadRequest(workload=name))
        self._messages = aiter(self.stream)
        self.told: workload_pb2.Workload | None = None

    async def agrees(self) -> None:
        """Returns when the stream has told what an answer says."""
        while True:
            said = await self._service.get(self.name)
            del said.region_diagnoses[:]  # answers only say what each region says
            if self.told == said:
                return
            self.told = await anext(self._messages)

    async def first(self) -> workload_pb2.Workload:
        return await anext(self._messages)

    async def rest(self) -> list[workload_pb2.Workload]:
        return [one async for one in self._messages]


def _life(service: Service, name: WorkloadId) -> list[Step]:
    """All that can become of it, one after the other."""
    first, second = attempt_of(name), attempt_of(name, 2)
    evicted = RecordEnd(first.key, "drained", "m", first.dispatched_s + 9.0, 9.0, 4.0, State.PENDING)
    over = RecordEnd(second.key, "completed", "", second.dispatched_s + 99.0, 600.0, 600.0, State.COMPLETED)
    entry = {name: RequeuedEntry("A100", 8, 0.0)}

    def stores(operation: Callable[[AnyConnection], Awaitable[object]], kind: EventKind | None) -> Step:
        async def store(connection: AnyConnection) -> None:
            await operation(connection)
            if kind is not None:
                await event_store.append(connection, [Event(first.dispatched_s, kind, name, 1)])

        return lambda: service.database.run(store)

    started = [(first.key, first.dispatched_s + 1.0)]
    progress = [attempt_store.AttemptProgress(first.key, 8.0, 4.0, 1.5)]
    stub, names = service.stub, [name]
    return [
        lambda: service.until_ranked(name),
        stores(lambda connection: dispatch(connection, first), EventKind.DISPATCHED),
        stores(lambda connection: attempt_store.record_started(connection, started), EventKind.STARTED),
        stores(lambda connection: attempt_store.record_progress(connection, progress), None),
        stores(lambda connection: attempt_store.record_ends(connection, [evicted], entry), EventKind.EVICTED),
        lambda: stub.HoldWorkloads(messages.HoldWorkloadsRequest(workloads=names, asked_by="ann")),
        lambda: stub.ReleaseWorkloads(messages.ReleaseWorkloadsRequest(workloads=names, asked_by="bob")),
        lambda: stub.ChangeWorkloads(messages.ChangeWorkloadsRequest(workloads=names, max_time_s=7.0)),
        stores(lambda connection: dispatch(connection, second), EventKind.DISPATCHED),
        lambda: stub.CancelWorkload(messages.CancelWorkloadRequest(workload=name)),
        stores(lambda connection: attempt_store.record_ends(connection, [over], {}), EventKind.COMPLETED),
    ]


def test_a_stream_tells_what_an_answer_says_at_each_moment_of_a_life(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        array = (await service.submit(specification_to_proto(replace(specification(), array="0-1")))).workload
        name = (await service.submit(specification_to_proto(specification(tasks=2)))).workload
        behind = (await service.submit(specification_to_proto(specification(VISION)))).workload
        watched = [_Watched(service, one) for one in (name, name, array, f"{array}[1]", behind)]
        for number, step in enumerate(_life(service, WorkloadId(name))):
            await step()
            # The last one's rank changes with the others, without news.
            for one in watched if number < 2 else watched[:-1]:
                await one.agrees()
        ended = [one for one in watched if one.told is not None and one.told.ended_s]
        assert [one.name for one in ended] == [name, name]
        await service.stub.CancelWorkload(messages.CancelWorkloadRequest(workload=array))
        for one in watched:
            await one.agrees()
        for one in watched[:-1]:
            assert await one.rest() == [], "a stream ends with what it watches"

    in_service(database_url, scenario)


def _snapshots(database: Database) -> float:
    """How many there were so far."""
    return sum(
        sample.value
        for metric in database._snapshot_seconds.collect()
        for sample in metric.samples
        if sample.name.endswith("_count")
    )


def test_many_streams_share_few_snapshots(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        requests = [messages.SubmitWorkloadRequest(specification=specification_to_proto(specification(VISION)))] * 400
        answer = await service.stub.SubmitWorkloads(messages.SubmitWorkloadsRequest(requests=requests))
        names = [one.workload for one in answer.responses]
        await service.until_ranked(*names)
        watchers = service.tier._watchers
        before = _snapshots(service.database)
        async with Database(database_url) as other, other.transaction() as connection:
            await connection.execute("LOCK TABLE attempts IN ACCESS EXCLUSIVE MODE")
            watched = [_Watched(service, name) for name in names]
            firsts = [asyncio.create_task(one.first()) for one in watched]
            await until_somebody_waits(other)
            while watchers.count < len(names):
                await connection.execute("SELECT 1")
        told = await asyncio.gather(*firsts)
        assert [one.workload for one in told] == names
        # All but the first are in as few as there can be; beside them are what the service takes for itself, and, where this took
        # long, looks of those who look again.
        assert _snapshots(service.database) - before < len(names) / 4
        # Here and there one says that it has gone: nobody else is told anything of that.
        for one in watched[::2]:
            one.stream.cancel()
        await service.stub.CancelWorkloads(messages.CancelWorkloadsRequest(workloads=names[1::2]))
        for one in watched[1::2]:
            assert (await one.rest())[-1].state == workload_pb2.WORKLOAD_STATE_CANCELLED

    in_service(database_url, scenario)


def test_a_workload_that_is_removed_meanwhile_is_not_found_any_more(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        gone, stays = [(await service.submit()).workload for _ in range(2)]
        watched = _Watched(service, gone), _Watched(service, stays)
        for one in watched:
            await one.agrees()
        await service.rows("DELETE FROM workloads WHERE workload = %s RETURNING 1", gone)
        error = await refused(watched[0].rest())
        assert error.code() is grpc.StatusCode.NOT_FOUND
        await service.stub.CancelWorkload(messages.CancelWorkloadRequest(workload=stays))
        assert (await watched[1].rest())[-1].state == workload_pb2.WORKLOAD_STATE_CANCELLED

    in_service(database_url, scenario)
