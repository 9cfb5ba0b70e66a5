"""Durable submission over gRPC: ``python -m benchmarks.submission [--seconds S]``.

This process is the global scheduler on an embedded PostgreSQL that flushes every commit to disk; the clients are
another process. Three measurements: one workload per call from 64 clients in a closed loop; batches of 100 from 8
clients in a closed loop; one workload per call at 200 per second, whether or not the former ones were answered
(durations count from the moment at which the call was due).
"""

import argparse
import asyncio
import contextlib
import json
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Final, TypeAlias

import grpc

from benchmarks.measurement import report
from services.clock import SystemClock
from services.configuration import Configuration
from services.database import migrations_runner
from services.database.embedded import EmbeddedLayout, start_embedded, stop_embedded
from services.database.engine import Database
from services.global_scheduler.tier import GlobalSchedulerTier
from services.runtime.collection import forget_for_collection
from topmast.v1 import fleet_pb2, global_scheduler_pb2, global_scheduler_pb2_grpc, workload_pb2

_CLIENTS: Final = 64
_BATCH: Final = 100
_BATCH_CLIENTS: Final = 8
_RATE_PER_S: Final = 200.0
_TENANTS: Final = 50
_WARM_UP_S: Final = 2.0

_BUDGETS: Final = {
    "unary": "submit, durable: unary, 64 clients in a closed loop: >= 2,000 workloads/s",
    "batch": "submit, durable: batches of 100: >= 12,000 workloads/s",
    "open": "submit, durable: open loop at 200 per s: p99 <= 15 ms",
}

Call = Callable[[], Awaitable[object]]
Stub: TypeAlias = "global_scheduler_pb2_grpc.GlobalSchedulerAsyncStub"


# ---------------------------------------------------------------- the clients' process


class Requests:
    """Makes requests; each has an idempotency key of its own, as the Python client's have."""

    def __init__(self, mode: str) -> None:
        self._mode = mode
        self._made = 0

    def next(self) -> global_scheduler_pb2.SubmitWorkloadRequest:
        self._made += 1
        return global_scheduler_pb2.SubmitWorkloadRequest(
            idempotency_key=f"{self._mode}-{self._made}",
            specification=workload_pb2.WorkloadSpecification(
                name=f"train-{self._made}",
                tenant=f"tenant-{self._made % _TENANTS:02}",
                jobs=[
                    workload_pb2.JobSpecification(
                        name="trainer",
                        tasks=1 + self._made % 4,
                        resources=workload_pb2.TaskResources(gpus=8, gpu_model="A100"),
                        command=workload_pb2.Command(arguments=["python", "train.py", "--seed", str(self._made)]),
                    )
                ],
                labels={"team": "benchmark"},
            ),
        )


async def closed_loop(call: Call, clients: int, seconds: float) -> list[float]:
    """Each client calls again as soon as it is answered; durations of all calls that ended in time."""
    durations_s: list[float] = []
    end_s = time.perf_counter() + seconds

    async def client() -> None:
        while (start_s := time.perf_counter()) < end_s:
            await call()
            durations_s.append(time.perf_counter() - start_s)

    await asyncio.gather(*(client() for _ in range(clients)))
    return durations_s


async def open_loop(call: Call, rate_per_s: float, seconds: float) -> list[float]:
    """Calls at a steady rate; durations from the moment at which each was due."""
    durations_s: list[float] = []
    start_s = time.perf_counter()

    async def one(due_s: float) -> None:
        await call()
        durations_s.append(time.perf_counter() - due_s)

    async with asyncio.TaskGroup() as calls:
        for number in range(round(rate_per_s * seconds)):
            due_s = start_s + number / rate_per_s
            await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
            calls.create_task(one(due_s))
    return durations_s


async def clients(address: str, mode: str, seconds: float) -> None:
    """Prints seconds taken and durations, as JSON."""
    options = (("grpc.max_receive_message_length", -1),)
    async with grpc.aio.insecure_channel(address, options) as channel:
        stub: Stub = global_scheduler_pb2_grpc.GlobalSchedulerStub(channel)
        requests = Requests(mode)

        async def unary() -> None:
            await stub.SubmitWorkload(requests.next())

        async def batch() -> None:
            await stub.SubmitWorkloads(
                global_scheduler_pb2.SubmitWorkloadsRequest(requests=[requests.next() for _ in range(_BATCH)])
            )

        loops: dict[str, Callable[[float], Awaitable[list[float]]]] = {
            "unary": lambda for_s: closed_loop(unary, _CLIENTS, for_s),
            "batch": lambda for_s: closed_loop(batch, _BATCH_CLIENTS, for_s),
            "open": lambda for_s: open_loop(unary, _RATE_PER_S, for_s),
        }
        await loops[mode](_WARM_UP_S)
        start_s = time.perf_counter()
        durations_s = await loops[mode](seconds)
        print(json.dumps({"took_s": time.perf_counter() - start_s, "durations_s": durations_s}))


# ---------------------------------------------------------------- the server's process


@contextlib.asynccontextmanager
async def running_scheduler(home: Path) -> AsyncIterator[str]:
    """The address of a global scheduler with a fleet and tenants."""
    url = EmbeddedLayout.of(home).url("postgres")
    async with Database(url) as database:
        tier = GlobalSchedulerTier(database, SystemClock(), Configuration(), home=home)
        forget_for_collection()
        address = f"127.0.0.1:{await tier.start('127.0.0.1:0')}"
        running = asyncio.create_task(tier.run(address, "benchmark"))
        try:
            async with grpc.aio.insecure_channel(address) as channel:
                stub: Stub = global_scheduler_pb2_grpc.GlobalSchedulerStub(channel)
                await _apply(stub)
            yield address
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await tier.stop(1.0)


async def _apply(stub: Stub) -> None:
    machines = [
        fleet_pb2.Machine(machine=f"m{number}", gpu_model="A100", gpus=8, cpus=96, memory_gib=1024)
        for number in range(64)
    ]
    rack = fleet_pb2.Rack(rack="rack", machines=machines)
    region = fleet_pb2.Region(region="east", clusters=[fleet_pb2.Cluster(cluster="east-a", racks=[rack])])
    tenants = [
        fleet_pb2.Tenant(tenant=f"tenant-{number:02}", priority=number % 7, gpu_quota={"any": 1_000})
        for number in range(_TENANTS)
    ]
    while True:
        try:
            await stub.ApplyFleet(global_scheduler_pb2.ApplyFleetRequest(fleet=fleet_pb2.Fleet(regions=[region])))
            break
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
        await asyncio.sleep(0.1)
    await stub.ApplyTenants(global_scheduler_pb2.ApplyTenantsRequest(tenants=tenants))


async def measure(mode: str, seconds: float) -> None:
    home = Path(tempfile.mkdtemp(prefix="topmast-benchmark-"))
    try:
        await asyncio.to_thread(start_embedded, home, stop_with_us=True)
        await asyncio.to_thread(migrations_runner.upgrade, EmbeddedLayout.of(home).url("postgres"))
        async with running_scheduler(home) as address:
            arguments = ("-m", "benchmarks.submission", "--clients-of", address, mode, "--seconds", str(seconds))
            process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=asyncio.subprocess.PIPE)
            output, _ = await process.communicate()
            if process.returncode != 0:
                raise SystemExit(f"the clients of {mode} failed with {process.returncode}")
        _report(mode, json.loads(output))
    finally:
        await asyncio.to_thread(stop_embedded, home)
        shutil.rmtree(home)


def _report(mode: str, measured: dict[str, object]) -> None:
    durations_s, took_s = measured["durations_s"], measured["took_s"]
    if not isinstance(durations_s, list) or not isinstance(took_s, float):
        raise TypeError(f"the clients of {mode} said {measured}")
    per_call = _BATCH if mode == "batch" else 1
    concurrency = {"unary": _CLIENTS, "batch": _BATCH_CLIENTS, "open": f"{_RATE_PER_S:g} per s"}[mode]
    report(
        f"submission_{mode}",
        {"workloads": len(durations_s) * per_call, "clients": concurrency, "workloads_per_call": per_call},
        durations_s,
        _BUDGETS[mode],
        {"workloads_per_s": round(len(durations_s) * per_call / took_s, 1)},
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure durable submission.")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--modes", nargs="+", choices=sorted(_BUDGETS), default=list(_BUDGETS))
    parser.add_argument("--clients-of", nargs=2, metavar=("ADDRESS", "MODE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.clients_of:
        address, mode = arguments.clients_of
        asyncio.run(clients(address, mode, arguments.seconds))
        return
    for mode in arguments.modes:
        asyncio.run(measure(mode, arguments.seconds))


if __name__ == "__main__":
    main()
