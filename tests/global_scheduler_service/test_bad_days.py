"""PostgreSQL is killed, the lease is lost, the process is replaced: nothing acknowledged is lost or doubled."""

import asyncio
import os
import signal

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2

from services.configuration import Configuration, LeaseConfiguration
from services.database.server_processes import read_postmaster_id
from services.wire.workloads import specification_to_proto
from tests.conftest_postgres import SessionServer
from tests.database.small_world import specification
from tests.global_scheduler_service.service import CONFIGURATION, Service, detail, refused, running_service
from topmast.v1 import global_scheduler_pb2 as messages

_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
_SHORT_LEASE = Configuration(scan=CONFIGURATION.scan, lease=LeaseConfiguration(duration_real_s=0.6))
_SUBMITTERS = 12
_EACH = 20


def _kill_postmaster(server: SessionServer) -> None:
    process = read_postmaster_id(server.layout.data)
    assert process is not None
    os.kill(process, signal.SIGKILL)


async def _submit_stubbornly(service: Service, name: str) -> str:
    """As the client library does: the same key again while the server is unavailable."""
    wanted = specification_to_proto(specification(name=name))
    while True:
        try:
            return (await service.submit(wanted, key=name)).workload
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
        await service.until_serving()


def test_never_loses_or_doubles_what_it_acknowledged(database_url: str, postgres_server: SessionServer) -> None:
    async def run() -> None:
        async with running_service(database_url) as service:
            await service.apply()
            acknowledged: dict[str, str] = {}

            async def submitter(number: int) -> None:
                for turn in range(_EACH):
                    name = f"run-{number:02}-{turn:02}"
                    acknowledged[name] = await _submit_stubbornly(service, name)
                    if (number, turn) in {(0, 4), (0, 12)}:
                        _kill_postmaster(postgres_server)

            async with asyncio.timeout(120.0):
                await asyncio.gather(*(submitter(number) for number in range(_SUBMITTERS)))
                await service.until_serving()
                rows = await service.rows(
                    """SELECT w.name, w.workload FROM workloads w JOIN queue_entries USING (workload)
                         JOIN jobs USING (workload) JOIN events e ON e.workload = w.workload AND e.event = 'submitted'"""
                )
        assert len(acknowledged) == _SUBMITTERS * _EACH
        assert sorted(rows) == sorted(acknowledged.items())

    asyncio.run(run())


def test_without_a_database_it_does_not_serve(database_url: str, postgres_server: SessionServer) -> None:
    async def run() -> None:
        async with running_service(database_url) as service:
            await service.apply()
            watching = service.health.Watch(health_pb2.HealthCheckRequest())
            seen = []
            async for received in watching:
                seen.append(received.status)
                if len(seen) == 1:
                    _kill_postmaster(postgres_server)
                if received.status == _NOT_SERVING:
                    error = await refused(service.get("w0"))
                    # It may be back already.
                    assert error.code() in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.NOT_FOUND}
                if len(seen) == 3:
                    break
            watching.cancel()
            assert seen == [
                health_pb2.HealthCheckResponse.SERVING,
                _NOT_SERVING,
                health_pb2.HealthCheckResponse.SERVING,
            ]
            assert (await service.submit()).workload

    asyncio.run(run())


def test_the_second_one_stands_by_until_the_first_has_gone(database_url: str) -> None:
    async def run() -> None:
        async with running_service(database_url, configuration=_SHORT_LEASE, holder="first") as first:
            await first.apply()
            submitted = await first.submit(key="key")
            async with running_service(
                database_url, configuration=_SHORT_LEASE, holder="second", serving=False
            ) as second:
                await second.until_health(_NOT_SERVING)
                error = await refused(second.submit())
                assert error.code() is grpc.StatusCode.UNAVAILABLE
                assert detail(error, error_details_pb2.RetryInfo).retry_delay.ToMilliseconds() > 0
                for call in (
                    second.get(submitted.workload),
                    second.apply(),
                    second.stub.WatchEvents(messages.WatchEventsRequest()).read(),
                    second.stub.WatchWorkload(messages.WatchWorkloadRequest(workload="w0")).read(),
                ):
                    assert (await refused(call)).code() is grpc.StatusCode.UNAVAILABLE
                # The first gives its lease up when it is asked to stop.
                await _stop(first)
                await second.until_serving()
                again = await second.submit(key="key")
                assert (again.workload, again.existed) == (submitted.workload, True)
                assert (await second.get(submitted.workload)).workload == submitted.workload

    asyncio.run(run())


async def _stop(service: Service) -> None:
    service.running.cancel()
    await asyncio.gather(service.running, return_exceptions=True)


def test_a_lost_lease_ends_the_service_until_it_is_had_again(database_url: str) -> None:
    async def run() -> None:
        async with running_service(database_url, configuration=_SHORT_LEASE) as service:
            await service.apply()
            await service.rows(
                """UPDATE leases SET holder = 'somebody', token = token + 1, expires_at = now() + interval '1 s'
                    WHERE name = 'global' RETURNING 1"""
            )
            await service.until_health(_NOT_SERVING)
            assert (await refused(service.submit())).code() is grpc.StatusCode.UNAVAILABLE
            await service.until_serving()
            answer = await service.submit()
            await service.until_ranked(answer.workload)

    asyncio.run(run())


@pytest.mark.parametrize("restarts", [3])
def test_a_restart_loses_nothing(database_url: str, restarts: int) -> None:
    async def run() -> None:
        names: list[str] = []
        for turn in range(restarts):
            async with running_service(database_url, holder=f"process-{turn}") as service:
                if turn == 0:
                    await service.apply()
                names.append((await service.submit(key=f"key-{turn}")).workload)
                await service.until_ranked(names[-1])
                for earlier, name in enumerate(names):
                    assert (await service.submit(key=f"key-{earlier}")).workload == name
                    assert (await service.get(name)).queue_position.rank == earlier + 1

    asyncio.run(run())
