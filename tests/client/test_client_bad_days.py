"""Servers that go away: calls are tried again, streams continue where they were, and the client gives up in the end."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from tests.client.loopback_server import LoopbackServer
from topmast import Client, Emulated, Event, NotFoundError, TopmastError, UnavailableError, WorkloadState
from topmast.reconnection import Reconnection
from topmast.v1 import workload_pb2

LOAD = Emulated(duration_s=60.0)


def submit(client: Client, name: str = "load") -> str:
    return client.submit(tenant="vision", name=name, gpus=1, emulated=LOAD).workload


# ---------------------------------------------------------------- calls


def test_an_unavailable_server_is_asked_again(server: LoopbackServer, client: Client) -> None:
    server.do(lambda: server.topmast.fail("SubmitWorkload", grpc.StatusCode.UNAVAILABLE, "starting", times=2))
    assert submit(client) == "w1"
    assert server.topmast.calls["SubmitWorkload"] == 3


def test_a_submission_whose_answer_was_lost_makes_one_workload(server: LoopbackServer, client: Client) -> None:
    # 1. The server stores the workload. 2. It dies before it answers. 3. The client sends the same again.
    answer = server.topmast.SubmitWorkload
    lost: list[str] = []

    async def lose_the_first_answer(request: object, context: object) -> object:
        response = await answer(request, context)  # type: ignore[arg-type]  # handed on as they came
        if not lost:
            lost.append(response.workload)
            await context.abort(grpc.StatusCode.UNAVAILABLE, "died")  # type: ignore[attr-defined]  # a grpc context
        return response

    server.stop()
    server.topmast.SubmitWorkload = lose_the_first_answer  # type: ignore[method-assign,assignment]  # dies on purpose
    server.start()
    submission = client.submit(tenant="vision", name="load", gpus=1, emulated=LOAD)
    assert lost == [submission.workload]
    assert submission.existed
    assert list(server.topmast.workloads) == [submission.workload]


def test_only_unavailable_is_tried_again(server: LoopbackServer, client: Client) -> None:
    server.do(lambda: server.topmast.fail("GetStatus", grpc.StatusCode.INTERNAL, "a bug"))
    with pytest.raises(TopmastError, match="a bug"):
        client.status()
    assert server.topmast.calls["GetStatus"] == 1


def test_attempts_are_limited(server: LoopbackServer) -> None:
    server.do(lambda: server.topmast.fail("GetStatus", grpc.StatusCode.UNAVAILABLE, "starting", times=9))
    with Client(server.address, attempts=2) as client, pytest.raises(UnavailableError, match="starting"):
        client.status()
    assert server.topmast.calls["GetStatus"] == 2


def test_a_call_waits_for_a_server_that_restarts(server: LoopbackServer, client: Client) -> None:
    submit(client)
    server.stop()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(client.get, "w1")
        server.start()
        assert answer.result().workload == "w1"


# ---------------------------------------------------------------- watching a workload


def test_watching_yields_each_change_until_the_end(server: LoopbackServer, client: Client) -> None:
    changes = client.watch(submit(client))
    assert next(changes).state is WorkloadState.PENDING
    server.do(lambda: server.topmast.dispatch("w1", {"main": "eu-1"}))
    assert next(changes).state is WorkloadState.RUNNING
    server.do(lambda: server.topmast.move("w1", workload_pb2.WORKLOAD_STATE_COMPLETED))
    assert [change.state for change in changes] == [WorkloadState.COMPLETED]
    assert client.wait("w1").ended_s == 2_000.0


def test_watching_goes_on_after_a_restart_and_yields_nothing_twice(server: LoopbackServer, client: Client) -> None:
    changes = client.watch(submit(client))
    assert next(changes).state is WorkloadState.PENDING
    server.stop()
    server.start()
    with ThreadPoolExecutor(1) as pool:
        change = pool.submit(next, changes)
        server.do(lambda: server.topmast.dispatch("w1", {"main": "eu-1"}))
        assert change.result().state is WorkloadState.RUNNING
    server.stop()
    server.topmast.workloads["w1"].state = workload_pb2.WORKLOAD_STATE_COMPLETED
    server.start()
    assert [change.state for change in changes] == [WorkloadState.COMPLETED]


def test_watching_what_is_not_there_is_refused(client: Client) -> None:
    with pytest.raises(NotFoundError, match="there is no workload w9"):
        next(client.watch("w9"))


def test_watching_gives_up_when_the_server_stays_away(server: LoopbackServer) -> None:
    with Client(server.address, attempts=1, patience_s=0.2) as client:
        changes = client.watch(submit(client))
        next(changes)
        server.stop()
        with pytest.raises(UnavailableError, match="does not answer"):
            next(changes)


# ---------------------------------------------------------------- events


def add_events(server: LoopbackServer, count: int) -> None:
    for _ in range(count):
        server.do(lambda: server.topmast.add_event(t=1.0, event="ranked"))


@pytest.mark.parametrize("in_order", [False, True], ids=["cut_off", "ended"])
def test_events_come_once_each_over_many_breaks(server: LoopbackServer, client: Client, in_order: bool) -> None:
    add_events(server, 7)
    server.topmast.break_streams_after = 2
    server.topmast.break_in_order = in_order
    events = client.events(follow=True)
    assert [next(events).sequence for _ in range(7)] == [10, 20, 30, 40, 50, 60, 70]
    assert server.topmast.calls["WatchEvents"] == 4
    events.close()


def test_without_following_the_log_ends_where_it_is(server: LoopbackServer, client: Client) -> None:
    add_events(server, 3)
    server.topmast.break_streams_after = 2
    assert [event.sequence for event in client.events()] == [10, 20, 30]
    assert [event.sequence for event in client.events(after_sequence=20)] == [30]


def test_following_events_outlives_a_restart(server: LoopbackServer, client: Client) -> None:
    add_events(server, 1)
    events = client.events(follow=True)
    assert next(events).sequence == 10
    server.stop()
    add_events(server, 1)
    server.start()
    assert next(events).sequence == 20


def test_following_outlives_a_server_that_stays_away_before_the_first_event(server: LoopbackServer) -> None:
    with Client(server.address, attempts=2) as client:
        came: list[Event] = []
        following = threading.Thread(target=lambda: came.append(next(client.events(follow=True))), daemon=True)
        following.start()
        server.until_called("WatchEvents")
        server.stop()
        refuse_connections(server.address, 5)
        server.start()
        add_events(server, 1)
        following.join(timeout=30)
        assert [event.sequence for event in came] == [10]


def refuse_connections(address: str, count: int) -> None:
    """Is the server at an address until so many have come, and hangs up on each."""
    host, _, port = address.partition(":")
    with socket.create_server((host, int(port))) as listener:
        for _ in range(count):
            listener.accept()[0].close()


def test_events_come_as_the_log_has_them(server: LoopbackServer, client: Client) -> None:
    placement = [{"job": "main", "machine": "m1", "gpus": [0, 1], "cpus": 8.5, "memory_gib": 64}]
    server.do(
        lambda: server.topmast.add_event(
            t=1.5,
            event="started",
            workload="w1",
            attempt=1,
            tenant="vision",
            priority=0,
            level=0,
            region="eu",
            details={"placement": placement, "within_quota": True, "by": None},
        )
    )
    (event,) = client.events()
    assert event.cluster is None
    assert event.as_json() == {
        "t": 1.5,
        "event": "started",
        "workload": "w1",
        "attempt": 1,
        "tenant": "vision",
        "priority": 0,
        "level": 0,
        "region": "eu",
        "by": None,
        "placement": placement,
        "within_quota": True,
    }
    assert list(event.as_json())[:2] == ["t", "event"]


def test_events_can_be_chosen(server: LoopbackServer, client: Client) -> None:
    submit(client)
    client.submit(tenant="ads", name="load", gpus=1, emulated=LOAD)
    add_events(server, 1)
    assert [event.workload for event in client.events(workload="w2")] == ["w2"]
    assert [event.workload for event in client.events(tenant="vision")] == ["w1"]
    assert [event.event for event in client.events(events=["ranked"])] == ["ranked"]


# ---------------------------------------------------------------- patience


def test_never_waits_longer_than_the_patience_allows() -> None:
    reconnection = Reconnection(patience_s=10.0)
    waits = []
    while (wait_s := reconnection.next_wait_s()) is not None:
        waits.append(wait_s)
    assert 10.0 <= sum(waits) <= 15.0
    assert all(0.1 <= wait_s <= 5.0 for wait_s in waits)
    reconnection.succeeded()
    again = reconnection.next_wait_s()
    assert again is not None
    assert again <= 0.2
