"""The client for asyncio does what the other one does; only waiting is different."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from typing import Any

import grpc
import pytest

from tests.client.loopback_server import LoopbackServer
from topmast import (
    AppliedFleet,
    AsyncClient,
    Client,
    Emulated,
    Fleet,
    InvalidArgumentError,
    JobSpecification,
    NotFoundError,
    PartlySubmittedError,
    PreconditionError,
    Submission,
    Tenant,
    TopmastError,
    UnavailableError,
    WorkloadSpecification,
    WorkloadState,
)
from topmast.v1 import workload_pb2

Use = Callable[[AsyncClient], Coroutine[Any, Any, None]]


def run(server: LoopbackServer, use: Use, attempts: int = 5, patience_s: float = 60.0) -> None:
    async def connected() -> None:
        async with AsyncClient(server.address, attempts=attempts, patience_s=patience_s) as client:
            await use(client)

    asyncio.run(connected())


def emulated(name: str = "load") -> WorkloadSpecification:
    jobs = [JobSpecification(gpus=1, emulated=Emulated(duration_s=60.0))]
    return WorkloadSpecification(tenant="vision", name=name, jobs=jobs)


def public(kind: type) -> dict[str, inspect.Signature]:
    return {
        name: inspect.signature(method) for name, method in vars(kind).items() if callable(method) and name[0] != "_"
    }


def test_both_clients_have_the_same_surface() -> None:
    waiting, asynchronous = public(Client), public(AsyncClient)
    assert waiting.keys() == asynchronous.keys()
    assert len(waiting) >= 14
    for name, signature in waiting.items():
        assert signature.parameters == asynchronous[name].parameters, name
    assert inspect.signature(Client) == inspect.signature(AsyncClient)


def test_calls_are_answered(server: LoopbackServer) -> None:
    async def use(client: AsyncClient) -> None:
        assert await client.submit(tenant="vision", command=["train"], gpus=8) == Submission("w1", existed=False)
        assert await client.submit(emulated(), idempotency_key="k") == Submission("w2", existed=False)
        assert await client.submit(emulated(), idempotency_key="k") == Submission("w2", existed=True)
        assert (await client.get("w1")).specification.jobs[0].gpus == 8
        assert (await client.queue(limit=1)).queued == 2
        assert (await client.status()).workloads == {"PENDING": 2}
        assert await client.cancel("w1") is WorkloadState.CANCELLED
        assert await client.apply_fleet(Fleet([])) == AppliedFleet(0, 0, 0, 0)
        assert await client.apply_tenants([Tenant("vision", 0)]) == 1
        with pytest.raises(PreconditionError, match="w1: has ended"):
            await client.cancel("w1")
        with pytest.raises(NotFoundError):
            await client.get("w9")

    run(server, use)


def test_many_are_submitted_and_listed(server: LoopbackServer) -> None:
    async def use(client: AsyncClient) -> None:
        submitted = await client.submit_many(emulated(f"load-{number}") for number in range(1_500))
        assert len({submission.workload for submission in submitted}) == 1_500
        assert [one.workload async for one in client.list(limit=2)] == ["w1500", "w1499"]
        assert len([one async for one in client.list(tenant="vision")]) == 1_500
        assert [one async for one in client.list(limit=0)] == []
        many = [emulated(f"load-{number}") for number in range(1_001)]
        with pytest.raises(PartlySubmittedError, match=r"requests\[1001\]") as failed:
            await client.submit_many([*many, emulated("")])
        assert len(failed.value.accepted) == 1_000
        with pytest.raises(InvalidArgumentError, match=r"requests\[0\]"):
            await client.submit_many([emulated("")])

    run(server, use)


def test_an_unavailable_server_is_asked_again(server: LoopbackServer) -> None:
    server.do(lambda: server.topmast.fail("SubmitWorkload", grpc.StatusCode.UNAVAILABLE, "starting", times=2))

    async def use(client: AsyncClient) -> None:
        assert (await client.submit(emulated())).workload == "w1"

    run(server, use)
    assert server.topmast.calls["SubmitWorkload"] == 3


def test_streams_continue_over_breaks_and_restarts(server: LoopbackServer) -> None:
    for _ in range(5):
        server.do(lambda: server.topmast.add_event(t=1.0, event="ranked"))
    server.topmast.break_streams_after = 2

    async def use(client: AsyncClient) -> None:
        assert [event.sequence async for event in client.events()] == [10, 20, 30, 40, 50]
        workload = (await client.submit(emulated())).workload
        async with aclosing(client.watch(workload)) as changes:
            assert (await anext(changes)).state is WorkloadState.PENDING
            server.stop()
            server.topmast.workloads[workload].state = workload_pb2.WORKLOAD_STATE_COMPLETED
            server.start()
            assert [change.state async for change in changes] == [WorkloadState.COMPLETED]
        assert (await client.wait(workload)).state is WorkloadState.COMPLETED

    run(server, use)


def test_a_stream_gives_up_when_the_server_stays_away(server: LoopbackServer) -> None:
    async def use(client: AsyncClient) -> None:
        await client.submit(emulated())
        async with aclosing(client.watch("w1")) as changes:
            await anext(changes)
            server.stop()
            with pytest.raises(UnavailableError, match="does not answer"):
                await anext(changes)

    run(server, use, attempts=1, patience_s=0.2)


async def taken(chunks: AsyncGenerator[Any, None], count: int) -> set[bytes]:
    return {(await anext(chunks)).chunk for _ in range(count)}


def test_logs_are_gathered_and_followed(server: LoopbackServer) -> None:
    server.start("eu-1")
    server.start("eu-2")

    def print_both(text: str, attempt: int) -> None:
        server.topmast.print_line("eu-1", f"main {text}", attempt=attempt)
        server.topmast.print_line("eu-2", f"feed {text}", job="feed", attempt=attempt)

    def end_both(attempt: int) -> None:
        server.topmast.end_log("eu-1", attempt)
        server.topmast.end_log("eu-2", attempt)

    async def use(client: AsyncClient) -> None:
        await client.submit(emulated())
        with pytest.raises(NotFoundError, match="has not been placed yet"):
            await anext(client.logs("w1"))
        async with aclosing(client.logs("w1", follow=True)) as chunks:
            server.do(lambda: server.topmast.dispatch("w1", {"main": "eu-1", "feed": "eu-2"}))
            server.do(lambda: print_both("one", 1))
            assert await taken(chunks, 2) == {b"main one", b"feed one"}
            server.do(lambda: end_both(1))
            server.do(lambda: server.topmast.dispatch("w1", {"main": "eu-1", "feed": "eu-2"}))
            server.do(lambda: print_both("two", 2))
            assert await taken(chunks, 2) == {b"main two", b"feed two"}
        # Left in the middle: no reader stays behind.
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("logs of")]
        assert [chunk.chunk async for chunk in client.logs("w1", attempt=1)] == [b"main one", b"feed one"]

    run(server, use)


def test_a_cluster_manager_that_stays_away_is_named(server: LoopbackServer) -> None:
    async def use(client: AsyncClient) -> None:
        await client.submit(emulated())
        server.do(lambda: server.topmast.dispatch("w1", {"main": "eu-1", "feed": "eu-2"}))
        async with aclosing(client.logs("w1", follow=True)) as chunks:
            with pytest.raises(UnavailableError, match=r"the cluster manager of eu-[12] does not answer"):
                await anext(chunks)

    run(server, use, attempts=1, patience_s=0.2)


def test_a_closed_client_says_so(server: LoopbackServer) -> None:
    async def closed() -> None:
        client = AsyncClient(server.address)
        await client.status()
        await client.close()
        with pytest.raises(TopmastError, match="the client is closed"):
            await client.status()

    asyncio.run(closed())
