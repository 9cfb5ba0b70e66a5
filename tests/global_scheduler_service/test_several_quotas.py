"""Tenants with quotas at several priorities (MAST §2): submitting, ranking, charging, and new tenants."""

from dataclasses import replace

import grpc

from domain.identifiers import ANY_GPU_MODEL, WorkloadId
from domain.resources import Quota
from domain.tenant import quota_charges, quota_limits
from services.database import quota_store
from services.database.connection import AnyConnection
from services.wire.workloads import specification_to_proto
from tests.database.small_world import A100, ADS, TENANTS, dispatch, specification
from tests.global_scheduler_service.service import Service, attempt_of, in_service, refused, violated_fields
from topmast.v1 import global_scheduler_pb2 as messages

SEVERAL = replace(TENANTS[0], further_quotas=((0, Quota.of({A100: 8})), (5, Quota.of({ANY_GPU_MODEL: 8}, cpus=0.0))))
URGENT = replace(specification(), priority=0)


async def submit(service: Service, priority: int | None) -> WorkloadId:
    wanted = specification_to_proto(replace(specification(), priority=priority))
    return WorkloadId((await service.submit(wanted)).workload)


async def run_urgent(service: Service) -> WorkloadId:
    """Submitted, ranked, and dispatched as a region does it: charged within the quota at priority 0."""
    workload = await submit(service, 0)
    await service.until_ranked(workload)
    charges = quota_charges(URGENT, SEVERAL)
    attempt = replace(attempt_of(workload), charges=charges)

    async def charged(connection: AnyConnection) -> None:
        assert await quota_store.charge(connection, [(ADS, charges)], {ADS: quota_limits(SEVERAL)}) == [True]
        await dispatch(connection, attempt)

    await service.database.run(charged)
    return workload


def test_each_is_ranked_by_the_quota_at_the_priority_that_it_asks_for(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        await service.apply(tenants=(SEVERAL, TENANTS[1]))
        await run_urgent(service)
        names = [await submit(service, priority) for priority in (0, None, 1, 1, 5)]
        await service.until_ranked(*names)
        rows = await service.rows("SELECT workload, priority, within_quota FROM queue_entries")
        stand = {str(workload): (priority, within) for workload, priority, within in rows}
        # 8 GPUs at 0 are in use by what runs; 16 at 1, its own; 8 of any model at 5.
        assert [stand[name] for name in names] == [(6, False), (1, True), (1, True), (6, False), (5, True)]

    in_service(database_url, scenario)


def test_a_priority_without_a_quota_is_refused_by_field(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        await service.apply(tenants=(SEVERAL, TENANTS[1]))
        error = await refused(submit(service, 3))
        assert violated_fields(error) == ["specification.priority"]
        assert "has quotas at 0, 1, 5" in str(error.details())
        assert violated_fields(await refused(submit(service, 7))) == ["specification.priority"]

    in_service(database_url, scenario)


def test_a_quota_that_is_asked_for_stays_or_becomes_empty(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        await service.apply(tenants=(SEVERAL, TENANTS[1]))
        await run_urgent(service)
        error = await refused(service.apply(tenants=TENANTS))
        assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert "ads at priority 0 (1)" in str(error.details())
        empty = replace(SEVERAL, further_quotas=((0, Quota.of({}, cpus=0.0)),))
        await service.apply(tenants=(empty, TENANTS[1]))
        assert await service.rows("SELECT charges FROM attempts") == [({"any at priority 0": 8},)]
        await service.stub.CancelWorkload(messages.CancelWorkloadRequest(workload=await submit(service, 0)))

    in_service(database_url, scenario)


def test_what_runs_is_charged_anew_when_its_priority_becomes_the_tenants_own(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        await service.apply(tenants=(SEVERAL, TENANTS[1]))
        await run_urgent(service)
        ledger = "SELECT tenant, bucket, amount FROM quota_use WHERE amount <> 0"
        assert await service.rows(ledger) == [("ads", "A100 at priority 0", 8)]
        own = replace(SEVERAL, priority=0, quota=Quota.of({A100: 8}), further_quotas=((1, SEVERAL.quota),))
        await service.apply(tenants=(own, TENANTS[1]))
        assert await service.rows(ledger) == [("ads", "A100", 8)]

    in_service(database_url, scenario)
