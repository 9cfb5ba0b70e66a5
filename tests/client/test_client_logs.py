"""Logs: gathered from the clusters of an attempt, continued over breaks, restarts and preemptions."""

from __future__ import annotations

import threading
from functools import partial

import grpc
import pytest

from tests.client.loopback_server import LoopbackServer
from topmast import (
    Client,
    Emulated,
    JobSpecification,
    NotFoundError,
    NotPlacedYetError,
    UnavailableError,
    WorkloadSpecification,
)
from topmast.errors import LogBrokeOffError
from topmast.v1 import workload_pb2

pytestmark = pytest.mark.usefixtures("workload")


@pytest.fixture
def workload(server: LoopbackServer, client: Client) -> None:
    """w1, with the jobs `main` and `feed`, and the managers of two clusters."""
    jobs = [JobSpecification(name=name, gpus=1, emulated=Emulated(duration_s=60.0)) for name in ("main", "feed")]
    client.submit(WorkloadSpecification(tenant="vision", name="gang", jobs=jobs))
    server.start("eu-1")
    server.start("eu-2")


def dispatch(server: LoopbackServer, **clusters: str) -> None:
    server.do(lambda: server.topmast.dispatch("w1", clusters))


def print_line(server: LoopbackServer, cluster: str, text: str, job: str = "main", attempt: int = 1) -> None:
    server.do(lambda: server.topmast.print_line(cluster, text, job, attempt))


def end(server: LoopbackServer) -> None:
    server.do(lambda: server.topmast.move("w1", workload_pb2.WORKLOAD_STATE_COMPLETED))


def test_what_was_printed_is_read_cluster_by_cluster(server: LoopbackServer, client: Client) -> None:
    dispatch(server, main="eu-2", feed="eu-1")
    print_line(server, "eu-2", "step 1\n")
    print_line(server, "eu-1", "reading\n", job="feed")
    chunks = list(client.logs("w1"))
    assert [(chunk.cluster, chunk.job, chunk.task, chunk.chunk) for chunk in chunks] == [
        ("eu-1", "feed", 0, b"reading\n"),
        ("eu-2", "main", 0, b"step 1\n"),
    ]
    assert [chunk.chunk for chunk in client.logs("w1", job="main")] == [b"step 1\n"]


def test_the_newest_attempt_is_read_unless_one_is_named(server: LoopbackServer, client: Client) -> None:
    dispatch(server, main="eu-1")
    dispatch(server, main="eu-2")
    print_line(server, "eu-1", "first", attempt=1)
    print_line(server, "eu-2", "second", attempt=2)
    assert [chunk.chunk for chunk in client.logs("w1")] == [b"second"]
    assert [chunk.chunk for chunk in client.logs("w1", attempt=1)] == [b"first"]
    with pytest.raises(NotFoundError, match="no placed attempt 3; its attempts: 1, 2"):
        list(client.logs("w1", attempt=3))


def test_a_job_or_task_that_is_not_there_is_refused(server: LoopbackServer, client: Client) -> None:
    dispatch(server, main="eu-1")
    print_line(server, "eu-1", "step 1")
    with pytest.raises(NotFoundError, match="workload w1 has no job nosuch; its jobs: main, feed"):
        list(client.logs("w1", job="nosuch"))
    with pytest.raises(NotFoundError, match="job main of workload w1 has no task 5; it has task 0 only"):
        list(client.logs("w1", job="main", task=5))
    with pytest.raises(NotFoundError, match="workload w1 has no task -1"):
        list(client.logs("w1", task=-1, follow=True))


def test_a_workload_that_was_not_placed_has_no_logs(server: LoopbackServer, client: Client) -> None:
    server.do(lambda: server.topmast.move("w1", workload_pb2.WORKLOAD_STATE_WAITING, "no region has 16 GPUs free"))
    with pytest.raises(NotFoundError, match="has not been placed yet, it is WAITING: no region has 16 GPUs free"):
        list(client.logs("w1"))
    with pytest.raises(NotFoundError, match="there is no workload w9"):
        list(client.logs("w9"))


@pytest.mark.parametrize("follow", [False, True])
def test_what_clusters_find_in_a_shared_folder_comes_once(server: LoopbackServer, client: Client, follow: bool) -> None:
    dispatch(server, main="eu-1", feed="eu-2")
    for cluster in ("eu-1", "eu-2"):
        print_line(server, cluster, "step 1\n")
        print_line(server, cluster, "reading\n", job="feed")
        server.do(partial(server.topmast.end_log, cluster))
    end(server)
    chunks = sorted((chunk.cluster, chunk.job, chunk.chunk) for chunk in client.logs("w1", follow=follow))
    assert chunks == [("eu-1", "main", b"step 1\n"), ("eu-2", "feed", b"reading\n")]


def test_a_task_that_came_later_is_read_from_one_cluster(server: LoopbackServer, client: Client) -> None:
    dispatch(server, main="eu-1", feed="eu-2")
    for cluster in ("eu-1", "eu-2"):
        print_line(server, cluster, "grown", job="grown")
    assert [chunk.chunk for chunk in client.logs("w1")] == [b"grown"]


def test_a_first_look_says_that_nothing_is_there_yet(server: LoopbackServer, client: Client) -> None:
    told: list[str] = []
    with pytest.raises(NotPlacedYetError, match="has not been placed yet"):
        list(client.logs("w1", told=told.append))
    dispatch(server, main="eu-1")
    server.do(lambda: server.topmast.workloads["w1"].attempts[0].ClearField("started_s"))
    assert list(client.logs("w1", told=told.append)) == []
    server.do(lambda: setattr(server.topmast.workloads["w1"].attempts[0], "started_s", 1_600.0))
    assert list(client.logs("w1", told=told.append)) == []
    assert told == [
        "nothing is printed yet: attempt 1 is starting in eu: its environment and its tasks are being set up",
        "nothing is printed yet: attempt 1 of w1 runs in eu",
    ]


def test_a_cluster_that_has_not_heard_of_the_attempt_yet_is_waited_for(server: LoopbackServer, client: Client) -> None:
    dispatch(server, main="eu-1")
    server.do(
        lambda: server.topmast.fail("ReadLogs", grpc.StatusCode.NOT_FOUND, "there are no logs of attempt 1 of w1 here")
    )
    assert list(client.logs("w1")) == []
    server.do(
        lambda: server.topmast.fail(
            "ReadLogs", grpc.StatusCode.NOT_FOUND, "there are no logs of attempt 1 of w1 here", times=2
        )
    )
    chunks = client.logs("w1", follow=True)
    print_line(server, "eu-1", "step 1")
    assert next(chunks).chunk == b"step 1"
    chunks.close()


def test_what_happens_between_two_attempts_is_told(server: LoopbackServer, client: Client) -> None:
    told: list[str] = []
    chunks = client.logs("w1", follow=True, told=told.append)
    dispatch(server, main="eu-1")
    print_line(server, "eu-1", "step 1")
    assert next(chunks).chunk == b"step 1"

    def preempt() -> None:
        found = server.topmast.workloads["w1"]
        found.attempts[0].ended_s, found.attempts[0].end = 1_700.0, "preempted"
        found.attempts[0].preempted_by.priority = 1
        server.topmast.move("w1", workload_pb2.WORKLOAD_STATE_PENDING)
        server.topmast.end_log("eu-1")
        server.topmast.dispatch("w1", {"main": "eu-2"})

    server.do(preempt)
    print_line(server, "eu-2", "resumed at step 1", attempt=2)
    assert next(chunks).chunk == b"resumed at step 1"
    assert told[-2:] == [
        "attempt 1 of w1 was preempted by a workload of another tenant, priority 1",
        "attempt 2 is in eu; its output follows",
    ]
    chunks.close()


def test_following_goes_from_attempt_to_attempt(server: LoopbackServer, client: Client) -> None:
    chunks = client.logs("w1", follow=True)
    dispatch(server, main="eu-1")
    print_line(server, "eu-1", "step 1")
    assert next(chunks).chunk == b"step 1"
    server.do(lambda: server.topmast.end_log("eu-1"))
    dispatch(server, main="eu-2")
    print_line(server, "eu-2", "resumed at step 1", attempt=2)
    assert next(chunks).chunk == b"resumed at step 1"
    server.do(lambda: server.topmast.end_log("eu-2", attempt=2))
    end(server)
    assert list(chunks) == []


def test_following_several_clusters_reads_them_at_once(server: LoopbackServer, client: Client) -> None:
    dispatch(server, main="eu-1", feed="eu-2")
    chunks = client.logs("w1", follow=True)
    for number in range(3):
        print_line(server, "eu-1", f"step {number}")
        print_line(server, "eu-2", f"read {number}", job="feed")
        # Both, although neither log has ended.
        assert {next(chunks).chunk, next(chunks).chunk} == {f"step {number}".encode(), f"read {number}".encode()}
    server.do(lambda: server.topmast.end_log("eu-1"))
    server.do(lambda: server.topmast.end_log("eu-2"))
    end(server)
    assert list(chunks) == []
    assert_no_reader_is_left()


def test_a_reader_may_leave(server: LoopbackServer, client: Client) -> None:
    dispatch(server, main="eu-1", feed="eu-2")
    print_line(server, "eu-1", "step 1")
    chunks = client.logs("w1", follow=True)
    assert next(chunks).chunk == b"step 1"
    chunks.close()
    assert_no_reader_is_left()


def assert_no_reader_is_left() -> None:
    for thread in threading.enumerate():
        if thread.name.startswith("logs of"):
            thread.join(timeout=30)
            assert not thread.is_alive(), thread.name


def test_a_log_that_breaks_off_continues_where_it_was(server: LoopbackServer, client: Client) -> None:
    dispatch(server, main="eu-1")
    for number in range(4):
        print_line(server, "eu-1", f"step {number}\n")
    chunks = client.logs("w1", follow=True)
    assert [next(chunks).chunk for _ in range(4)] == [f"step {number}\n".encode() for number in range(4)]
    server.stop("eu-1")
    # The new manager hands out the same bytes, cut in another way, and answers at another port.
    server.topmast.log["eu-1"] = []
    del server.topmast.cluster_addresses["eu-1"]
    server.forget_port("eu-1")
    server.start("eu-1")
    print_line(server, "eu-1", "step 0\nstep 1\nstep 2\nst")
    print_line(server, "eu-1", "ep 3\nstep 4\n")
    server.do(lambda: server.topmast.end_log("eu-1"))
    end(server)
    assert b"".join(chunk.chunk for chunk in chunks) == b"step 4\n"


def test_the_last_lines_cannot_be_continued(server: LoopbackServer, client: Client) -> None:
    dispatch(server, main="eu-1")
    print_line(server, "eu-1", "step 1\n")
    server.topmast.break_streams_after = 1
    chunks = client.logs("w1", tail_lines=5)
    assert next(chunks).chunk == b"step 1\n"
    with pytest.raises(LogBrokeOffError, match="read it again"):
        next(chunks)


@pytest.mark.parametrize("follow", [False, True])
def test_a_cluster_manager_that_stays_away_is_named(server: LoopbackServer, follow: bool) -> None:
    dispatch(server, main="eu-1", feed="us-1")
    away = pytest.raises(UnavailableError, match="the cluster manager of us-1 does not answer")
    with Client(server.address, attempts=1, patience_s=0.2) as client, away:
        list(client.logs("w1", follow=follow))
    assert_no_reader_is_left()
