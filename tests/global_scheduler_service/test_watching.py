from typing import Any

import grpc

from cluster_manager.attempt_run.actions import RecordEnd
from domain.events import Event, EventKind, EvictionCause
from domain.identifiers import WorkloadId
from domain.life_cycle import State
from services.database import attempt_store, event_store, requeue_store
from services.database.connection import AnyConnection
from tests.database.small_world import dispatch
from tests.global_scheduler_service.service import Service, attempt_of, in_service
from topmast.v1 import global_scheduler_pb2 as messages
from topmast.v1 import workload_pb2


async def _events(service: Service, after_sequence: int = 0, **wanted: object) -> list[tuple[str, str, int]]:
    request = messages.WatchEventsRequest(after_sequence=after_sequence, **wanted)  # type: ignore[arg-type]  # by name
    return [(event.event, event.workload, event.sequence) async for event in service.stub.WatchEvents(request)]


async def _run_and_complete(service: Service, workload: str) -> None:
    """As a region would: dispatched, started, completed."""
    name = WorkloadId(workload)
    attempt = attempt_of(name)
    key = attempt.key

    async def start(connection: AnyConnection) -> None:
        await dispatch(connection, attempt)
        await attempt_store.record_started(connection, [(key, attempt.dispatched_s)])
        await event_store.append(connection, [Event(attempt.dispatched_s, EventKind.STARTED, name, 1)])

    async def complete(connection: AnyConnection) -> None:
        end = RecordEnd(key, "completed", "", attempt.dispatched_s + 1.0, 600.0, 600.0, State.COMPLETED)
        await attempt_store.record_ends(connection, [end], {})
        await event_store.append(connection, [Event(attempt.dispatched_s + 1.0, EventKind.COMPLETED, name, 1)])

    await service.database.run(start)
    await service.database.run(complete)


def test_a_workload_is_watched_until_it_ends(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        submitted = await service.submit()
        watching = service.stub.WatchWorkload(messages.WatchWorkloadRequest(workload=submitted.workload))
        first = await anext(aiter(watching))
        assert first.state == workload_pb2.WORKLOAD_STATE_PENDING
        await _run_and_complete(service, submitted.workload)
        last = first
        async for received in watching:
            assert received != last, "the same was told twice"
            last = received
        assert last.state == workload_pb2.WORKLOAD_STATE_COMPLETED
        assert (last.ended_s, last.progress, last.attempts[0].end) == (
            last.attempts[0].started_s + 1.0,
            600.0,
            "completed",
        )

    in_service(database_url, scenario)


def test_progress_is_reported_though_it_is_no_event(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        workload = WorkloadId((await service.submit()).workload)
        attempt = attempt_of(workload)
        await service.database.run(lambda connection: dispatch(connection, attempt))
        progress = attempt_store.AttemptProgress(attempt.key, 7.0, 5.0, 1.5)
        async for received in service.stub.WatchWorkload(messages.WatchWorkloadRequest(workload=workload)):
            if received.progress:
                assert (received.progress, received.checkpoint_progress, received.throughput) == (7.0, 5.0, 1.5)
                return
            await service.database.run(lambda connection: attempt_store.record_progress(connection, [progress]))

    in_service(database_url, scenario)


def test_the_log_is_read_in_order_and_resumed(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        names = [(await service.submit()).workload for _ in range(5)]
        submitted = await _events(service, events=["submitted"])
        assert [workload for _, workload, _ in submitted] == names
        sequences = [sequence for _, _, sequence in submitted]
        assert sequences == sorted(set(sequences))
        assert await _events(service, sequences[2], events=["submitted"]) == submitted[3:]
        assert await _events(service, workload=names[1], events=["submitted"]) == submitted[1:2]
        assert await _events(service, tenant="vision") == []
        assert await _events(service, 2**63 - 1) == []

    in_service(database_url, scenario)


def test_the_log_is_followed_and_taken_up_again(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        wanted = messages.WatchEventsRequest(follow=True, events=["submitted", "cancelled"])
        following = service.stub.WatchEvents(wanted)
        first = (await service.submit()).workload
        seen = [await anext(aiter(following))]
        following.cancel()
        second = (await service.submit()).workload
        await service.stub.CancelWorkload(messages.CancelWorkloadRequest(workload=first))
        wanted.after_sequence = seen[0].sequence
        async for event in service.stub.WatchEvents(wanted):
            seen.append(event)
            if event.event == "cancelled":
                break
        assert [(event.event, event.workload) for event in seen] == [
            ("submitted", first),
            ("submitted", second),
            ("cancelled", first),
        ]

    in_service(database_url, scenario)


def test_clients_that_vanish_are_forgotten(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        workload = (await service.submit()).workload
        watchers = service.tier._watchers
        subscriptions = service.database._watcher._subscriptions["topmast_events"]
        without_clients = len(subscriptions)
        async with grpc.aio.insecure_channel(service.address) as channel:
            watch = channel.unary_stream(
                "/topmast.v1.GlobalScheduler/WatchWorkload",
                messages.WatchWorkloadRequest.SerializeToString,
                workload_pb2.Workload.FromString,
            )
            follow: Any = channel.unary_stream(
                "/topmast.v1.GlobalScheduler/WatchEvents", messages.WatchEventsRequest.SerializeToString, None
            )
            watching = [watch(messages.WatchWorkloadRequest(workload=workload)) for _ in range(10)]
            following = [follow(messages.WatchEventsRequest(follow=True)) for _ in range(10)]
            for stream in (*watching, *following):
                await stream.read()
            assert watchers.count == 10
        # One more subscription may be left: that of the reader of the log for all watchers of workloads.
        while watchers.count or len(subscriptions) > without_clients + 1:
            assert (await service.get(workload)).workload == workload  # others are served meanwhile

    in_service(database_url, scenario)


def test_an_eviction_is_reported_with_its_cause(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        workload = WorkloadId((await service.submit()).workload)
        attempt = attempt_of(workload)
        end = RecordEnd(
            attempt.key, EvictionCause.DRAINED.value, "", attempt.dispatched_s + 1.0, 9.0, 4.0, State.PENDING
        )
        entry = requeue_store.RequeuedEntry("A100", 8, 0.0)

        async def evict(connection: AnyConnection) -> None:
            await dispatch(connection, attempt)
            await attempt_store.record_ends(connection, [end], {workload: entry})

        await service.database.run(evict)
        received = await service.get(workload)
        assert received.state == workload_pb2.WORKLOAD_STATE_PENDING
        assert (received.progress, received.attempts[0].end, received.attempts[0].progress) == (4.0, "drained", 9.0)

    in_service(database_url, scenario)
