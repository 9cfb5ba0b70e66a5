import asyncio

import grpc
import pytest
from google.rpc import error_details_pb2

from domain.identifiers import TenantId
from services.global_scheduler.submission import GREATEST_BATCH, WorkloadNames
from services.wire.workloads import specification_to_proto
from tests.database.proxies import failing_proxy
from tests.database.small_world import ADS, VISION, specification
from tests.global_scheduler_service.service import (
    Service,
    detail,
    in_service,
    refused,
    running_service,
    service_in_background,
    submit_request,
    violated_fields,
)
from topmast import Client, InvalidArgumentError, PartlySubmittedError, PreconditionError, diagnoses
from topmast.requests import LARGEST_BATCH
from topmast.v1 import global_scheduler_pb2 as messages
from topmast.v1 import workload_pb2


def _wanted(name: str = "night-run", tenant: TenantId = ADS, gpus: int = 8) -> workload_pb2.WorkloadSpecification:
    return specification_to_proto(specification(tenant, name=name, gpus=gpus))


async def _stored(service: Service) -> list[str]:
    """Names of all stored workloads, each of which must be complete."""
    rows = await service.rows(
        """SELECT w.name FROM workloads w JOIN queue_entries USING (workload) JOIN jobs USING (workload)
             JOIN events e ON e.workload = w.workload AND e.event = 'submitted' ORDER BY w.name"""
    )
    (counted,) = await service.rows("SELECT count(*) FROM workloads")
    assert counted == (len(rows),), "a workload was stored by halves"
    return [str(row[0]) for row in rows]


def test_an_acknowledged_workload_is_stored(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        answer = await service.submit(_wanted())
        assert await _stored(service) == ["night-run"]
        assert not answer.existed
        workload = await service.get(answer.workload)
        assert workload.specification == _wanted()
        assert workload.state == workload_pb2.WORKLOAD_STATE_PENDING

    in_service(database_url, scenario)


def test_the_same_key_and_body_is_the_same_workload(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        first = await service.submit(_wanted(), "key")
        again = await service.submit(_wanted(), "key")
        assert (again.workload, again.existed) == (first.workload, True)
        other_tenant = await service.submit(_wanted(tenant=VISION), "key")
        assert (other_tenant.workload != first.workload, other_tenant.existed) == (True, False)
        assert len(await _stored(service)) == 2

    in_service(database_url, scenario)


def test_one_key_at_the_same_time_is_one_workload(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        answers = await asyncio.gather(*(service.submit(_wanted(), "key") for _ in range(50)))
        assert len({answer.workload for answer in answers}) == 1
        assert sorted(answer.existed for answer in answers) == [False] + [True] * 49
        assert await _stored(service) == ["night-run"]

    in_service(database_url, scenario)


def test_the_same_key_with_another_body_is_refused(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        first = await service.submit(_wanted("first"), "key")
        error = await refused(service.submit(_wanted("second"), "key"))
        assert error.code() is grpc.StatusCode.ALREADY_EXISTS
        assert detail(error, error_details_pb2.ResourceInfo).resource_name == first.workload
        assert await _stored(service) == ["first"]

    in_service(database_url, scenario)


def test_a_conflict_harms_nobody_who_shares_its_transaction(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        await service.submit(_wanted("first"), "key")
        calls = [
            service.submit(_wanted("second" if n % 5 == 0 else f"good-{n:02}"), "key" if n % 5 == 0 else "")
            for n in range(40)
        ]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        failed = [n for n, answer in enumerate(answers) if isinstance(answer, grpc.aio.AioRpcError)]
        assert failed == list(range(0, 40, 5))
        assert await _stored(service) == ["first", *(f"good-{n:02}" for n in range(40) if n % 5)]

    in_service(database_url, scenario)


def test_a_batch_is_answered_in_order(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        names = [f"run-{number:04}" for number in range(GREATEST_BATCH)]
        request = messages.SubmitWorkloadsRequest(requests=[submit_request(_wanted(name)) for name in names])
        answer = await service.stub.SubmitWorkloads(request)
        rows = await service.rows("SELECT workload, name FROM workloads")
        known = {str(workload): str(name) for workload, name in rows}
        assert [known[response.workload] for response in answer.responses] == names
        assert (await service.stub.SubmitWorkloads(messages.SubmitWorkloadsRequest())).responses == []

    in_service(database_url, scenario)


def test_a_batch_is_all_or_nothing(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        await service.submit(_wanted("first"), "key")
        good = submit_request(_wanted("good"))
        unnamed, unknown = _wanted(""), _wanted("lost", TenantId("nobody"))
        bad = await refused(
            service.stub.SubmitWorkloads(
                messages.SubmitWorkloadsRequest(requests=[good, submit_request(unnamed), good, submit_request(unknown)])
            )
        )
        assert bad.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert violated_fields(bad) == ["requests[1].specification.name", "requests[3].specification.tenant"]
        conflict = await refused(
            service.stub.SubmitWorkloads(
                messages.SubmitWorkloadsRequest(requests=[good, submit_request(_wanted("second"), "key")])
            )
        )
        assert conflict.code() is grpc.StatusCode.ALREADY_EXISTS
        too_many = await refused(
            service.stub.SubmitWorkloads(messages.SubmitWorkloadsRequest(requests=[good] * (GREATEST_BATCH + 1)))
        )
        assert (too_many.code(), violated_fields(too_many)) == (grpc.StatusCode.INVALID_ARGUMENT, ["requests"])
        assert await _stored(service) == ["first"]

    in_service(database_url, scenario)


def test_a_gang_that_no_region_could_host_is_refused_with_the_numbers(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        huge = _wanted()
        huge.jobs[0].tasks = 1_000
        error = await refused(service.submit(huge))
        assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
        (violation,) = detail(error, error_details_pb2.PreconditionFailure).violations
        assert violation.subject == "specification.jobs[0].tasks"
        assert "1000" in violation.description
        assert await _stored(service) == []

    in_service(database_url, scenario)


def test_never_is_a_refused_submission_without_its_diagnosis_at_the_client(database_url: str) -> None:
    """Over real gRPC, with the synchronous client: alone, and in the second batch of many."""
    wide = diagnoses.Diagnosis(
        "too_many_tasks",
        "east",
        "east-b",
        "",
        "jobs[0].tasks",
        (diagnoses.DiagnosisNumbers("tasks", 1_000, 4),),
        (),
        None,
    )
    huge = _wanted()
    huge.jobs[0].tasks = 1_000
    with service_in_background(database_url) as address, Client(address) as client:
        with pytest.raises(PreconditionError) as alone:
            client.submit(huge)
        assert alone.value.diagnosis == wide
        assert [violation.field for violation in alone.value.violations] == ["specification.jobs[0].tasks"]
        with pytest.raises(PartlySubmittedError) as among:
            client.submit_many([*[_wanted()] * LARGEST_BATCH, huge])
        assert (among.value.diagnosis, len(among.value.accepted)) == (wide, LARGEST_BATCH)
        with pytest.raises(InvalidArgumentError) as unnamed:
            client.submit(_wanted(name=""))
        assert unnamed.value.diagnosis is None


def test_who_gives_up_waiting_is_not_stored_unless_it_is_too_late(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        calls = [asyncio.ensure_future(service.submit(_wanted(f"run-{number}"))) for number in range(20)]
        await asyncio.sleep(0)
        for call in calls[::2]:
            call.cancel()
        answers = await asyncio.gather(*calls, return_exceptions=True)
        kept = {f"run-{number}" for number in range(1, 20, 2)}
        assert kept <= set(await _stored(service))
        assert all(isinstance(answer, messages.SubmitWorkloadResponse) for answer in answers[1::2])

    in_service(database_url, scenario)


@pytest.mark.parametrize("delivers", [True, False])
def test_a_lost_commit_is_neither_doubled_nor_forgotten(database_url: str, delivers: bool) -> None:
    async def run() -> None:
        async with failing_proxy(database_url) as proxy, running_service(proxy.url) as service:
            await service.apply()
            proxy.break_next_commit(delivers=delivers)
            answers = await asyncio.gather(*(service.submit(_wanted(f"run-{number}")) for number in range(10)))
            await proxy.broken.wait()
            rows = await service.rows("SELECT workload FROM workloads ORDER BY workload")
            assert [str(row[0]) for row in rows] == sorted(answer.workload for answer in answers)
            assert len(await _stored(service)) == 10

    asyncio.run(run())


def test_names_are_unique_and_in_the_order_of_time() -> None:
    names = WorkloadNames()
    made = [names.next() for _ in range(20_000)]
    assert made == sorted(set(made))
    assert {len(name) for name in made} == {13}
