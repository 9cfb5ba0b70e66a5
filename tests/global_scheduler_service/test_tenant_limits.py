"""Limits of tenants at the front door: what waits, how fast they submit, and what the scan pass keeps back."""

import asyncio
from dataclasses import replace

import grpc
from google.rpc import error_details_pb2

from domain.tenant import Tenant
from domain.tenant_limits import TenantLimits
from services.database import attempt_store
from services.wire.workloads import specification_to_proto
from tests.database.small_world import EAST, TENANTS, VISION, specification
from tests.global_scheduler_service.service import Service, attempt_of, detail, in_service, refused, submit_request
from topmast.v1 import global_scheduler_pb2 as messages

_VISIONS = specification_to_proto(specification(VISION, gpus=1))


def _tenants(**limits: float) -> tuple[Tenant, ...]:
    """Those of the small world; the first one has limits."""
    return (replace(TENANTS[0], limits=TenantLimits(**limits)), *TENANTS[1:])  # type: ignore[arg-type]  # as they are named


def _wait_s(error: grpc.aio.AioRpcError) -> float:
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    advice = detail(error, error_details_pb2.RetryInfo).retry_delay
    return float(advice.seconds + advice.nanos / 1e9)


async def _accepted(service: Service, key: str) -> bool:
    """Whether it is, and not refused because there is too much of it."""
    (outcome,) = await asyncio.gather(service.submit(key=key), return_exceptions=True)
    if isinstance(outcome, grpc.aio.AioRpcError) and outcome.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return False
    if isinstance(outcome, BaseException):
        raise outcome
    return True


async def _until_pending(service: Service, tenant: str, said: str) -> list[str]:
    """Until a workload of the tenant waits for that reason; all that do."""
    while True:
        page = await service.stub.ListWorkloads(messages.ListWorkloadsRequest(tenant=tenant))
        found = [one.workload for one in page.workloads if said in one.queue_position.reason]
        if found:
            return found
        await asyncio.sleep(0.02)


def test_what_waits_and_how_fast_it_comes(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        await service.apply(tenants=_tenants(max_pending=3))
        first = await service.submit(key="first")
        array = specification_to_proto(replace(specification(), array="0-1"))
        await service.submit(array)
        error = await refused(service.submit(key="another"))
        assert _wait_s(error) == 1.0
        assert "tenant ads has 3 workloads that wait, and 3 is the most" in str(error.details())
        assert "limits.max_pending of its entry in tenants.yaml" in str(error.details())
        # What was accepted before is no more; others are not concerned, and whoever cancels may submit again.
        assert (await service.submit(key="first")).existed
        await service.submit(_VISIONS)
        await service.stub.CancelWorkload(messages.CancelWorkloadRequest(workload=first.workload))
        while not await _accepted(service, "another"):
            pass  # it is counted once a second at most

        await service.apply(tenants=_tenants(submissions_per_s=0.01, submissions_burst=4))
        await service.stub.SubmitWorkloads(messages.SubmitWorkloadsRequest(requests=[submit_request()] * 3))
        error = await refused(
            service.stub.SubmitWorkloads(messages.SubmitWorkloadsRequest(requests=[submit_request()] * 2))
        )
        assert 50.0 < _wait_s(error) <= 100.0
        assert "tenant ads submits faster than the 0.01 workloads a second that it may" in str(error.details())
        await service.submit()
        assert _wait_s(await refused(service.submit())) > 50.0

    in_service(database_url, scenario)


def test_what_is_kept_back_says_so_and_comes_again(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        await service.apply(tenants=_tenants(max_running=2))
        names = [(await service.submit()).workload for _ in range(3)]
        assert await _until_pending(service, "ads", "may run 2 workloads at a time (limits.max_running") == names[2:]
        async with service.database.transaction() as connection:
            await attempt_store.dispatch(connection, EAST, [attempt_of(name) for name in names[:2]])
        other = (await service.submit(_VISIONS)).workload
        await service.until_ranked(other)
        ranked = "SELECT workload FROM queue_entries WHERE priority IS NOT NULL"
        assert await service.rows(ranked) == [(other,)]
        await service.apply(tenants=_tenants(max_running=3))
        await service.until_ranked(names[2])
        assert sorted(await service.rows(ranked)) == sorted([(other,), (names[2],)])
        assert not await service.rows("SELECT FROM queue_entries WHERE at_limit OR reason <> ''")

    in_service(database_url, scenario)
