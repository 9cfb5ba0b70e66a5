"""Clients of the service: each is a Ray task in a process of its own, with a connection of its own."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from typing import Any

import ray

from benchmarks.load.histograms import histogram_of
from benchmarks.load.open_loop import LoopResult, run_open_loop
from benchmarks.tail_of_queue import one_task
from domain.identifiers import TenantId
from domain.resources import TaskResources
from services.wire.workloads import specification_to_proto
from topmast import AsyncClient

_LEAD_S = 2.0
"""From the order to clients to begin to the first request: they connect meanwhile."""


def all_of(clients: Sequence[Any]) -> list[Any]:
    """The results of Ray tasks, in their order. Raises what one of them raised."""
    return list(ray.get(list(clients)))


def beginning_s() -> float:
    """The time of the wall clock at which clients that are started now begin."""
    return time.time() + _LEAD_S


@ray.remote(num_cpus=0)
def submitting(
    address: str,
    token: str | None,
    due_s: Sequence[float],
    begin_s: float,
    tenant: str,
    name: str,
    run_s: float,
    resources: TaskResources,
) -> LoopResult:
    """Submits an emulated workload whenever one is due."""
    specification = specification_to_proto(one_task(name, TenantId(tenant), resources, run_s))

    async def body() -> LoopResult:
        async with AsyncClient(address, token=token) as client:
            await client.status()

            async def request(_number: int) -> str:
                return (await client.submit(specification)).workload

            return await run_open_loop(due_s, begin_s, request)

    return asyncio.run(body())


@ray.remote(num_cpus=0)
def reading(
    address: str,
    token: str | None,
    due_s: Sequence[float],
    begin_s: float,
    workloads: Sequence[str],
    listing: bool,
    seed: int,
) -> LoopResult:
    """Gets one of the workloads, or lists a page of 100, whenever that is due."""
    random_numbers = random.Random(seed)  # nothing is kept secret by it

    async def body() -> LoopResult:
        async with AsyncClient(address, token=token) as client:
            await client.status()

            async def request(number: int) -> str:
                if listing:
                    await client.list_page(page_size=100)
                else:
                    await client.get(random_numbers.choice(workloads))
                return str(number)

            return await run_open_loop(due_s, begin_s, request)

    return asyncio.run(body())


@ray.remote(num_cpus=0)
def watching(address: str, token: str | None, workloads: Sequence[str], per_s: float) -> tuple[bytes, bytes, int]:
    """Watches all of them at once until they have ended, opening `per_s` streams in a second. Returns how long first messages took from
    when the stream was due, how late the last ones came after the ends that they tell, and how many streams brought an end."""

    async def body() -> tuple[bytes, bytes, int]:
        opened_s: list[float] = []
        late_s: list[float] = []

        async with AsyncClient(address, token=token) as client:
            await client.status()
            origin = time.monotonic()

            async def one(workload: str, due: float) -> None:
                await asyncio.sleep(max(0.0, origin + due - time.monotonic()))
                first = True
                async for now in client.watch(workload):
                    if first:
                        opened_s.append(time.monotonic() - origin - due)
                        first = False
                    if now.ended_s is not None:
                        late_s.append(max(0.0, time.time() - now.ended_s))

            async with asyncio.TaskGroup() as group:
                for number, workload in enumerate(workloads):
                    group.create_task(one(workload, number / per_s))
        return histogram_of(opened_s).encode(), histogram_of(late_s).encode(), len(late_s)

    return asyncio.run(body())
