"""Workloads wait for others outside the queue, and are released or cancelled as these end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import grpc
import pytest
from google.rpc import error_details_pb2

from cluster_manager.attempt_run.actions import RecordEnd
from domain.dependencies import dependency_of
from domain.life_cycle import State
from domain.workload import WorkloadSpecification
from services.database import attempt_store, retention_store
from services.wire.workloads import specification_to_proto, state_from_proto
from tests.database.small_world import VISION, dispatch, specification
from tests.global_scheduler_service.service import (
    Service,
    attempt_of,
    detail,
    in_service,
    refused,
    running_service,
    violated_fields,
)
from topmast.v1 import global_scheduler_pb2 as messages

STORY = "SELECT event, details ->> 'by', details ->> 'reason' FROM events WHERE workload = %s AND event <> 'ranked' ORDER BY sequence"
BY = "its dependencies"


def waiting(*after: str, name: str = "night-run", hold: bool = False) -> WorkloadSpecification:
    return replace(specification(name=name), after=tuple(map(dependency_of, after)), hold=hold)


async def submit(service: Service, *after: str, hold: bool = False) -> str:
    return (await service.submit(specification_to_proto(waiting(*after, hold=hold)))).workload


async def submit_all(service: Service, wanted: Sequence[WorkloadSpecification], key: str = "") -> list[str]:
    requests = [
        messages.SubmitWorkloadRequest(
            specification=specification_to_proto(one), idempotency_key=f"{key}/{number}" if key else ""
        )
        for number, one in enumerate(wanted)
    ]
    answer = await service.stub.SubmitWorkloads(messages.SubmitWorkloadsRequest(requests=requests))
    return [one.workload for one in answer.responses]


async def end(service: Service, workload: str, state: State) -> None:
    """It has run, and ends like that."""
    if state is State.CANCELLED:
        await service.stub.CancelWorkload(messages.CancelWorkloadRequest(workload=workload))
        return
    attempt = attempt_of(workload)
    over = RecordEnd(attempt.key, state.lower(), "told", attempt.dispatched_s + 1.0, 1.0, 1.0, state)
    await service.database.run(lambda connection: dispatch(connection, attempt))
    await service.database.run(lambda connection: attempt_store.record_ends(connection, [over], {}))
    # Its event is what a region would write with it.
    await service.rows(
        "INSERT INTO events (t, event, workload, tenant, details) VALUES (%s, %s, %s, 'ads', '{}') RETURNING 1",
        attempt.dispatched_s + 1.0,
        state.lower(),
        workload,
    )


async def until(service: Service, workload: str, event: str) -> None:
    wanted = messages.WatchEventsRequest(follow=True, events=[event], workload=workload)
    async for _ in service.stub.WatchEvents(wanted):
        return


async def state_of(service: Service, workload: str) -> State:
    return state_from_proto((await service.get(workload)).state)


async def entries(service: Service) -> set[object]:
    return {row[0] for row in await service.rows("SELECT workload FROM queue_entries")}


def test_a_workload_waits_outside_the_queue_until_all_that_it_waits_for_is_so(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        first, second = [await submit(service) for _ in range(2)]
        third = await submit(service, f"ok:{first}", f"any:{second}")
        assert await entries(service) == {first, second}
        now = await service.get(third)
        assert (now.reason, now.held_by) == (f"waits for ok:{first} (pending) and any:{second} (pending)", "")
        assert now.queue_position.reason == now.reason
        assert [(one.condition, one.workload, one.name) for one in now.waits_for] == [
            ("ok", first, "night-run"),
            ("any", second, "night-run"),
        ]
        pending = messages.ListWorkloadsRequest(states=[now.state])
        listed = {one.workload: one.reason for one in (await service.stub.ListWorkloads(pending)).workloads}
        assert listed[third] == now.reason
        await end(service, second, State.CANCELLED)
        await end(service, first, State.COMPLETED)
        await until(service, third, "released")
        await service.until_ranked(third)
        assert await entries(service) == {third}
        assert not (await service.get(third)).waits_for
        assert await service.rows(STORY, third) == [
            ("submitted", None, None),
            ("held", BY, f"waits for ok:{first} and any:{second}"),
            ("released", BY, f"ok:{first}, any:{second}"),
        ]
        # What is so already when it is submitted is nothing to wait for.
        assert await submit(service, f"ok:{first}", f"any:{second}") in await entries(service)

    in_service(database_url, scenario)


@pytest.mark.parametrize(
    ("condition", "how", "words"),
    [
        ("ok", State.FAILED, "it failed"),
        ("ok", State.CANCELLED, "it was cancelled"),
        ("failed", State.COMPLETED, "it completed"),
    ],
)
def test_what_can_never_be_cancels_all_that_wait_for_it(
    database_url: str, condition: str, how: State, words: str
) -> None:
    async def scenario(service: Service) -> None:
        head = await submit(service)
        second = await submit(service, f"{condition}:{head}")
        third, alone = await submit(service, f"ok:{second}"), await submit(service, f"any:{second}")
        await end(service, head, how)
        await until(service, third, "cancelled")
        await until(service, alone, "released")
        assert (await service.get(second)).reason == f"{condition}:{head} can never be: {words}"
        assert (await service.get(third)).reason == f"ok:{second} can never be: it was cancelled"
        assert await entries(service) == {alone}
        error = await refused(submit(service, f"{condition}:{head}"))
        assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
        (violation,) = detail(error, error_details_pb2.PreconditionFailure).violations
        assert violation.description == f"specification.after[0]: {condition}:{head} can never be: {words}"
        # Submitted anew by its user it waits for nobody.
        request = messages.RequeueWorkloadsRequest(workloads=[second])
        (anew,) = (await service.stub.RequeueWorkloads(request)).workloads
        assert anew.submitted_anew_as in await entries(service)

    in_service(database_url, scenario)


def test_who_waits_can_be_held_released_changed_and_cancelled(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        head = await submit(service)
        free, held, asked_held = [await submit(service, f"any:{head}", hold=hold) for hold in (False, False, True)]
        gone = await submit(service, f"any:{head}")
        stub = service.stub
        await stub.HoldWorkloads(messages.HoldWorkloadsRequest(workloads=[free, held], asked_by="ann"))
        assert (await service.get(held)).reason == "held by ann"
        await stub.ReleaseWorkloads(messages.ReleaseWorkloadsRequest(workloads=[free], asked_by="bob"))
        assert (await service.get(free)).reason == f"waits for any:{head} (pending)"
        error = await refused(stub.ReleaseWorkloads(messages.ReleaseWorkloadsRequest(workloads=[free])))
        assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert "which a release does not pass over" in str(error.details())
        await stub.ChangeWorkloads(messages.ChangeWorkloadsRequest(workloads=[free], labels={"note": "x"}))
        await stub.CancelWorkload(messages.CancelWorkloadRequest(workload=gone))
        assert await entries(service) == {head}
        await end(service, head, State.CANCELLED)
        await until(service, free, "released")
        await service.until_ranked(free)
        # Those that somebody holds besides wait until they are released.
        assert await entries(service) == {free}
        assert await state_of(service, gone) is State.CANCELLED
        await stub.ReleaseWorkloads(messages.ReleaseWorkloadsRequest(workloads=[held, asked_held]))
        assert await entries(service) == {free, held, asked_held}
        assert [row[0] for row in await service.rows(STORY, free)] == [
            "submitted", "held", "held", "released", "held", "changed", "released",
        ]  # fmt: skip

    in_service(database_url, scenario)


def test_a_graph_is_submitted_by_names_or_not_at_all(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        graph = [waiting("ok:prepare", name="train"), waiting(name="prepare"), waiting("any:train", name="report")]
        train, prepare, report = await submit_all(service, graph, key="k")
        assert await submit_all(service, graph, key="k") == [train, prepare, report]
        assert await entries(service) == {prepare}
        # A longer file with the same key: what is new waits for what had been accepted.
        *_, further = await submit_all(service, [*graph, waiting("ok:report", name="mail")], key="k")
        found = await service.stub.GetWorkloadGraph(messages.GetWorkloadGraphRequest(workload=train))
        assert {one.workload: list(one.after) for one in found.workloads} == {
            prepare: [],
            train: [f"ok:{prepare}"],
            report: [f"any:{train}"],
            further: [f"ok:{report}"],
        }
        before = await service.rows("SELECT count(*) FROM workloads")
        for wanted, field in (
            ([waiting("ok:b", name="a"), waiting("ok:a", name="b")], "requests[0].specification.after[0]"),
            ([waiting(name="a"), waiting("ok:a", "ok:nosuch", name="b")], "requests[1].specification.after[1]"),
            ([waiting(name="a"), waiting("ok:a", "any:a", name="b")], "requests[1].specification.after[1]"),
            ([waiting("done:a"), waiting(name="a")], "requests[0].specification.after[0]"),
            ([waiting(*(f"ok:w-{n}" for n in range(10_000)))], "requests[0].specification.after"),
        ):
            error = await refused(submit_all(service, wanted))
            assert (error.code(), violated_fields(error)) == (grpc.StatusCode.INVALID_ARGUMENT, [field])
        foreign = replace(specification(VISION), after=(dependency_of(f"ok:{train}"),))
        error = await refused(service.submit(specification_to_proto(foreign)))
        assert violated_fields(error) == ["specification.after[0]"]
        assert await service.rows("SELECT count(*) FROM workloads") == before

    in_service(database_url, scenario)


def test_a_chain_of_a_thousand_ends_with_its_head(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        chain = [waiting(*([f"ok:n{number - 1}"] if number else []), name=f"n{number}") for number in range(1_000)]
        names = await submit_all(service, chain)
        await end(service, names[0], State.CANCELLED)
        await until(service, names[-1], "cancelled")
        assert await service.rows("SELECT count(*) FROM workloads WHERE state <> 'CANCELLED'") == [(0,)]
        found = await service.stub.GetWorkloadGraph(messages.GetWorkloadGraphRequest(workload=names[500]))
        assert len(found.workloads) == 1_000
        assert not found.incomplete

    in_service(database_url, scenario)


def test_what_ended_while_no_global_scheduler_was_there_is_settled_by_the_next(database_url: str) -> None:
    async def run() -> None:
        async with running_service(database_url) as service:
            await service.apply()
            done, lost = [await submit(service) for _ in range(2)]
            released, cancelled = await submit(service, f"ok:{done}"), await submit(service, f"ok:{lost}")
            array = (await service.submit(specification_to_proto(replace(specification(), array="0-1")))).workload
            elements = [f"{array}-{index:06}" for index in range(2)]
            after_array, not_after_array = (
                await submit(service, f"failed:{array}"),
                await submit(service, f"ok:{array}"),
            )
            service.running.cancel()
            await asyncio.gather(service.running, return_exceptions=True)
            await end(service, done, State.COMPLETED)
            await end(service, lost, State.FAILED)
            for element, state in zip(elements, (State.COMPLETED, State.FAILED), strict=True):
                await end(service, element, state)
            # Retention takes what is old of those that have ended, and leaves how they ended.
            keys = retention_store.OF_WORKLOADS
            await service.database.run(lambda connection: retention_store.delete_rows(connection, keys, [done, lost]))
            await service.rows("DELETE FROM events WHERE workload = ANY(%s) RETURNING 1", [done, lost, *elements])
        async with running_service(database_url, holder="another") as service:
            await until(service, released, "released")
            await until(service, cancelled, "cancelled")
            assert (await service.get(cancelled)).reason == f"ok:{lost} can never be: it failed"
            await until(service, after_array, "released")
            await until(service, not_after_array, "cancelled")

    asyncio.run(run())


def test_an_array_is_waited_for_as_a_whole(database_url: str) -> None:
    """Also one of the same submission: until the last of its elements has ended."""

    async def scenario(service: Service) -> None:
        sweep = replace(specification(name="sweep"), array="0-2%1")
        array, after_all, whatever, if_failed = await submit_all(
            service, [sweep, waiting("ok:sweep", name="report"), waiting("any:sweep"), waiting("failed:sweep")]
        )
        elements = [f"{array}-{index:06}" for index in range(3)]
        now = await service.get(after_all)
        assert now.reason == f"waits for ok:{array} (pending)"
        assert [(one.workload, one.name) for one in now.waits_for] == [(array, "sweep")]
        graph = await service.stub.GetWorkloadGraph(messages.GetWorkloadGraphRequest(workload=array))
        assert {one.workload for one in graph.workloads} == {array, after_all, whatever, if_failed}
        for element in elements[:-1]:
            await until(service, element, "ranked")
            await end(service, element, State.COMPLETED)
        later = await submit(service, f"ok:{array}")
        assert (await service.get(later)).reason.startswith("waits for")
        await until(service, elements[-1], "ranked")
        await end(service, elements[-1], State.COMPLETED)
        for workload in (after_all, whatever, later):
            await until(service, workload, "released")
        await until(service, if_failed, "cancelled")
        assert (await service.get(if_failed)).reason == f"failed:{array} can never be: it completed"
        error = await refused(submit(service, f"failed:{array}"))
        assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert not await service.rows("SELECT 1 FROM workload_dependencies WHERE NOT settled")

    in_service(database_url, scenario)


def test_an_element_of_an_array_is_waited_for_as_people_write_it() -> None:
    assert dependency_of("ok:w-1[3]") == dependency_of("ok:w-1-000003")
