import asyncio
import base64
import json
from collections.abc import Awaitable
from dataclasses import replace
from functools import partial

import grpc

from domain.identifiers import ClusterId, MachineId, RegionId, TenantId, WorkloadId
from domain.rank import Standing
from domain.reservation import Reservation
from domain.tenant import LOWEST_PRIORITY
from services.configuration import Configuration, ScanConfiguration
from services.database.engine import Database
from services.database.gang_reservation_store import make
from services.wire.workloads import specification_to_proto
from tests.database.small_world import ADS, EAST, VISION, dispatch, specification
from tests.global_scheduler_service.service import (
    CONFIGURATION,
    Service,
    attempt_of,
    in_service,
    refused,
    running_service,
    submit_request,
    violated_fields,
)
from topmast.v1 import global_scheduler_pb2 as messages
from topmast.v1 import workload_pb2


def _wanted(name: str = "night-run", tenant: TenantId = ADS, gpus: int = 8) -> workload_pb2.WorkloadSpecification:
    return specification_to_proto(specification(tenant, name=name, gpus=gpus))


async def _submit_many(service: Service, count: int, tenant: TenantId = ADS, gpus: int = 8) -> list[str]:
    """Names, in the order of submission."""
    requests = [submit_request(_wanted(f"run-{number:03}", tenant, gpus)) for number in range(count)]
    answer = await service.stub.SubmitWorkloads(messages.SubmitWorkloadsRequest(requests=requests))
    return [response.workload for response in answer.responses]


async def _all_pages(service: Service, page_size: int, **wanted: object) -> list[workload_pb2.Workload]:
    found: list[workload_pb2.Workload] = []
    token = ""
    while True:
        request = messages.ListWorkloadsRequest(page_size=page_size, page_token=token, **wanted)  # type: ignore[arg-type]  # fields by name
        page = await service.stub.ListWorkloads(request)
        assert len(page.workloads) <= page_size
        found += page.workloads
        token = page.next_page_token
        if not token:
            return found


def test_pages_hold_every_workload_once_newest_first(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        names = await _submit_many(service, 25)
        newcomer = ""
        listed: list[str] = []
        token = ""
        while True:
            page = await service.stub.ListWorkloads(messages.ListWorkloadsRequest(page_size=7, page_token=token))
            listed += [workload.workload for workload in page.workloads]
            token = page.next_page_token
            if not newcomer:  # submitted between two pages: in none of the further ones
                newcomer = (await service.submit()).workload
            if not token:
                break
        assert listed == names[::-1]
        assert (await _all_pages(service, 1_000))[0].workload == newcomer

    in_service(database_url, scenario)


def test_a_page_of_large_workloads_ends_early(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        large = _wanted()
        for number in range(30):
            large.jobs[0].environment[f"PART_{number}"] = "x" * 30_000
        names = [(await service.submit(large)).workload for _ in range(12)]
        first = await service.stub.ListWorkloads(messages.ListWorkloadsRequest())
        assert 0 < len(first.workloads) < len(names)
        assert first.next_page_token
        assert [workload.workload for workload in await _all_pages(service, 100)] == names[::-1]

    in_service(database_url, scenario)


def test_filters_choose(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        ads = await _submit_many(service, 3)
        vision = await _submit_many(service, 2, VISION)
        await service.stub.CancelWorkload(messages.CancelWorkloadRequest(workload=ads[0]))
        submitted_s = (await service.get(ads[1])).submitted_s

        async def listed(**wanted: object) -> list[str]:
            return sorted(workload.workload for workload in await _all_pages(service, 2, **wanted))

        assert await listed(tenant="ads") == sorted(ads)
        assert await listed(states=[workload_pb2.WORKLOAD_STATE_CANCELLED]) == ads[:1]
        assert await listed(states=[workload_pb2.WORKLOAD_STATE_PENDING], tenant="ads") == sorted(ads[1:])
        assert await listed(name_contains="n-001") == sorted([ads[1], vision[1]])
        assert await listed(name_contains="%") == []
        assert await listed(submitted_after_s=submitted_s) == sorted(vision)
        assert await listed(submitted_before_s=submitted_s) == []
        assert await listed(region="east") == []

    in_service(database_url, scenario)


def test_page_tokens_of_others_are_refused(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        await _submit_many(service, 3)
        page = await service.stub.ListWorkloads(messages.ListWorkloadsRequest(page_size=1, tenant="ads"))
        forged = [
            base64.urlsafe_b64encode(text.encode()).decode()
            for text in (
                "[1, 2",
                json.dumps([10**400, "w", "x"]),
                "[" * 700,
                json.dumps({"a": 1, "b": 2, "c": 3}),
                '[NaN, "\\ud800", ""]',
            )
        ]
        for token in [page.next_page_token, "x", "é", *forged]:
            request = messages.ListWorkloadsRequest(page_size=1, page_token=token)
            error = await refused(service.stub.ListWorkloads(request))
            assert (error.code(), violated_fields(error)) == (grpc.StatusCode.INVALID_ARGUMENT, ["page_token"])

    in_service(database_url, scenario)


def test_a_workload_shows_its_place_in_the_queue_and_why(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        # 16 GPUs of A100 are the quota: two workloads of 8 are within it.
        names = await _submit_many(service, 3)
        await service.until_ranked(*names)
        within, over = await service.get(names[1]), await service.get(names[2])
        assert (within.queue_position.priority, within.queue_position.within_quota) == (1, True)
        assert within.queue_position.rank == 2
        assert "16 of 16 A100 GPUs" in within.queue_position.reason
        assert (over.queue_position.priority, over.queue_position.within_quota) == (LOWEST_PRIORITY, False)
        assert over.queue_position.rank == 3
        assert "asks for 8 A100 GPUs, but of tenant ads's 16" in over.queue_position.reason
        assert not over.attempts

    in_service(database_url, scenario)


def test_the_queue_shows_its_head_and_counts_the_rest(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        vision = await _submit_many(service, 2, VISION)
        ads = await _submit_many(service, 3)
        await service.until_ranked(*vision, *ads)
        queue = await service.stub.GetQueue(messages.GetQueueRequest(limit=4))
        assert [entry.workload for entry in queue.entries] == [ads[0], ads[1], vision[0], vision[1]]
        assert [entry.position.rank for entry in queue.entries] == [1, 2, 3, 4]
        assert (queue.queued, queue.entries[0].gpus, queue.entries[0].name) == (5, 8, "run-000")
        assert queue.scan_pass > 0
        own = await service.stub.GetQueue(messages.GetQueueRequest(tenant="ads"))
        assert [(entry.workload, entry.position.rank) for entry in own.entries] == [
            (ads[0], 1),
            (ads[1], 2),
            (ads[2], 5),
        ]
        assert own.queued == 3

    in_service(database_url, scenario)


def test_the_queue_shows_for_whom_machines_are_kept_wherever_they_are_in_it(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        ads = await _submit_many(service, 2)
        (vision,) = await _submit_many(service, 1, VISION)
        await service.until_ranked(*ads, vision)
        kept = Reservation(
            WorkloadId(vision),
            EAST,
            (ClusterId("east-a"),),
            (MachineId("east-a-r0-m0"), MachineId("east-a-r0-m1")),
            8,
            Standing(6, 0),
            made_s=100.0,
            expected_start_s=3_700.0,
            expires_s=5_500.0,
        )
        gone = replace(kept, workload=WorkloadId(ads[1]), region=RegionId("gone"))
        async with Database(database_url) as database:
            for one in (kept, gone):
                assert await database.run(partial(make, reservation=one, instead_of=None))
        queue = await service.stub.GetQueue(messages.GetQueueRequest(limit=1))
        (shown,) = queue.reservations
        assert (shown.workload, shown.name, shown.tenant, shown.region) == (vision, "run-000", "vision", "east")
        assert (list(shown.clusters), list(shown.machines)) == (["east-a"], ["east-a-r0-m0", "east-a-r0-m1"])
        position = (await service.get(vision)).queue_position
        assert (shown.gpus, shown.priority, shown.level) == (8, position.priority, position.level)
        assert (shown.made_s, shown.expected_start_s, shown.expires_s) == (100.0, 3_700.0, 5_500.0)
        assert not (await service.stub.GetQueue(messages.GetQueueRequest(tenant="ads"))).reservations
        await service.stub.CancelWorkload(messages.CancelWorkloadRequest(workload=vision))
        assert not (await service.stub.GetQueue(messages.GetQueueRequest())).reservations

    in_service(database_url, scenario)


def test_attempts_are_reported_with_their_placements(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        (name,) = await _submit_many(service, 1)
        await service.until_ranked(name)
        (row,) = await service.rows("SELECT workload FROM queue_entries")
        attempt = attempt_of(name)
        assert row == (name,)
        await service.database.run(lambda connection: dispatch(connection, attempt))
        workload = await service.get(name)
        assert workload.state == workload_pb2.WORKLOAD_STATE_DISPATCHED
        assert (workload.region, workload.HasField("queue_position")) == ("east", False)
        (received,) = workload.attempts
        assert (received.attempt, received.region, received.priority, received.within_quota) == (1, "east", 1, True)
        assert [(p.machine, list(p.gpu_indices)) for p in received.placements] == [("east-b-r0-m0", list(range(8)))]
        status = await service.stub.GetStatus(messages.GetStatusRequest())
        assert [(r.region, r.gpus, r.gpus_in_use, r.live_attempts) for r in status.regions] == [
            ("east", 48, 8, 1),
            ("coast", 8, 0, 0),
        ]

    in_service(database_url, scenario)


def test_the_status_shows_tiers_and_counts(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        names = await _submit_many(service, 3)
        await service.stub.CancelWorkload(messages.CancelWorkloadRequest(workload=names[0]))
        status = await service.stub.GetStatus(messages.GetStatusRequest())
        assert dict(status.workloads) == {"PENDING": 2, "CANCELLED": 1}
        (tier,) = status.tiers
        assert (tier.tier, tier.name, tier.address, tier.alive) == ("global", "", service.address, True)
        assert status.version
        assert abs(status.now_s - tier.lease_expires_s) < 120.0
        assert [region.machines_up for region in status.regions] == [6, 1]

    in_service(database_url, scenario)


def test_the_status_counts_machines_on_loan(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        states = ("on_loan", "on_loan_down", "returning", "serving", "draining", "up")
        async with service.database.transaction() as connection:
            cursor = await connection.execute(
                "SELECT machine FROM machines JOIN clusters c USING (cluster) JOIN regions r USING (region)"
                " ORDER BY r.position, machine"
            )
            for (machine,), state in zip(await cursor.fetchall(), states, strict=False):
                await connection.execute("UPDATE machines SET state = %s WHERE machine = %s", (state, machine))
        status = await service.stub.GetStatus(messages.GetStatusRequest())
        # On loan or up takes work; what is on loan, down or on its way back is lent.
        assert [(r.machines, r.machines_up, r.machines_on_loan) for r in status.regions] == [(6, 2, 3), (1, 1, 0)]

    in_service(database_url, scenario)


def test_without_a_fleet_there_is_an_empty_queue(database_url: str) -> None:
    async def run() -> None:
        configuration = Configuration(scan=ScanConfiguration(debounce_real_s=0.0), lease=CONFIGURATION.lease)
        async with running_service(database_url, configuration=configuration) as service:
            queue = await service.stub.GetQueue(messages.GetQueueRequest())
            assert (list(queue.entries), queue.queued) == ([], 0)
            error = await refused(service.submit())
            assert violated_fields(error)[0] == "specification.tenant"

    asyncio.run(run())


def test_what_is_not_there_is_not_found(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        calls: list[Awaitable[object]] = [
            service.get("w0"),
            service.stub.CancelWorkload(messages.CancelWorkloadRequest(workload="w0")),
            service.stub.WatchWorkload(messages.WatchWorkloadRequest(workload="w0")).read(),
        ]
        for call in calls:
            assert (await refused(call)).code() is grpc.StatusCode.NOT_FOUND

    in_service(database_url, scenario)


def test_a_job_that_nothing_lets_grow_is_told_so(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        wanted = _wanted()
        wanted.jobs[0].max_tasks = wanted.jobs[0].tasks + 2
        accepted = await service.stub.SubmitWorkload(submit_request(wanted))
        (remark,) = accepted.remarks
        assert f"does not grow to {wanted.jobs[0].max_tasks} by itself yet" in remark
        assert list((await service.get(accepted.workload)).remarks) == [remark]
        assert not (await service.submit()).remarks

    in_service(database_url, scenario)


def test_where_jobs_grow_nothing_is_remarked(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        wanted = _wanted()
        wanted.jobs[0].max_tasks = wanted.jobs[0].tasks + 2
        assert not (await service.stub.SubmitWorkload(submit_request(wanted))).remarks

    in_service(database_url, scenario, configuration=CONFIGURATION.model_copy(update={"elastic": "lyra"}))


def test_during_the_pause_after_a_failure_it_stands_where_its_last_attempt_stood(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        workload = (await service.submit()).workload
        await service.until_ranked(workload)
        async with service.database.transaction() as connection:
            await dispatch(connection, attempt_of(workload))
        await service.rows(
            """INSERT INTO queue_entries (workload, tenant, submitted_s, gpu_model, gpus, cpus, not_before_s)
               VALUES (%s, 'ads', 1, 'A100', 8, 0, 9e12) RETURNING 1""",
            workload,
        )
        position = (await service.get(workload)).queue_position
        assert (position.rank, position.next_try_s) == (0, 9e12)
        (attempt,) = (await service.get(workload)).attempts
        stood = (attempt.priority, attempt.level, attempt.within_quota)
        assert (position.priority, position.level, position.within_quota) == stood
        assert position.reason.startswith("it waits for its next try after a failure")

    in_service(database_url, scenario)
