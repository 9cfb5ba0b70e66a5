import asyncio

import grpc
from google.rpc import error_details_pb2

from cluster_manager.attempt_run.actions import RecordEnd
from cluster_manager.attempt_run.events import Eviction
from domain.events import EvictionCause
from domain.identifiers import WorkloadId
from domain.life_cycle import State
from services.database import attempt_store
from services.database.channels import REGION_CHANNEL
from services.database.connection import AnyConnection
from tests.database.small_world import EAST, dispatch
from tests.global_scheduler_service.service import Service, attempt_of, detail, in_service, refused, violated_fields
from topmast.v1 import global_scheduler_pb2 as messages
from topmast.v1 import workload_pb2


async def _cancel(service: Service, workload: str, reason: str = "") -> messages.CancelWorkloadResponse:
    return await service.stub.CancelWorkload(messages.CancelWorkloadRequest(workload=workload, reason=reason))


def test_a_queued_workload_is_cancelled_at_once(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        workload = (await service.submit()).workload
        answer = await _cancel(service, workload, "wrong data — sorry")
        assert answer.state == workload_pb2.WORKLOAD_STATE_CANCELLED
        received = await service.get(workload)
        assert (received.state, received.reason) == (workload_pb2.WORKLOAD_STATE_CANCELLED, "wrong data — sorry")
        assert received.ended_s >= received.submitted_s
        assert await service.rows("SELECT * FROM queue_entries") == []
        assert await service.rows("SELECT event, details ->> 'reason' FROM events WHERE event <> 'ranked'") == [
            ("submitted", None),
            ("cancelled", "wrong data — sorry"),
        ]

    in_service(database_url, scenario)


def test_a_live_workload_is_stopped_by_its_region(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        workload = WorkloadId((await service.submit()).workload)
        attempt = attempt_of(workload)
        await service.database.run(lambda connection: dispatch(connection, attempt))
        async with service.database.listen(REGION_CHANNEL) as region:
            await region.wait()  # it listens
            answer = await _cancel(service, workload)
            assert answer.state == workload_pb2.WORKLOAD_STATE_DISPATCHED
            assert await region.wait(30.0)
        assert (await service.get(workload)).cancel_requested
        requested = await service.database.run(lambda connection: attempt_store.stops_requested(connection, EAST))
        assert requested == [(attempt.key, Eviction(EvictionCause.CANCELLED))]

    in_service(database_url, scenario)


def test_what_has_ended_cannot_be_cancelled_and_shows_its_history(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        cancelled = (await service.submit()).workload
        await _cancel(service, cancelled)
        completed = WorkloadId((await service.submit()).workload)
        attempt = attempt_of(completed)
        end = RecordEnd(attempt.key, "completed", "", attempt.dispatched_s + 1.0, 600.0, 600.0, State.COMPLETED)

        async def run(connection: AnyConnection) -> None:
            await dispatch(connection, attempt)
            await attempt_store.record_ends(connection, [end], {})

        await service.database.run(run)
        for workload, state in ((cancelled, "CANCELLED"), (str(completed), "COMPLETED")):
            error = await refused(_cancel(service, workload))
            assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
            (violation,) = detail(error, error_details_pb2.PreconditionFailure).violations
            assert violation.subject == workload
            assert f"is {state}" in violation.description
            assert "submitted at" in violation.description

    in_service(database_url, scenario)


def test_reasons_that_cannot_be_stored_are_refused(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        workload = (await service.submit()).workload
        for reason in ("a\0b", "x" * 10_000):
            error = await refused(_cancel(service, workload, reason))
            assert (error.code(), violated_fields(error)) == (grpc.StatusCode.INVALID_ARGUMENT, ["reason"])
        assert (await service.get(workload)).state == workload_pb2.WORKLOAD_STATE_PENDING

    in_service(database_url, scenario)


def test_never_ends_twice_however_many_cancel(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        workload = (await service.submit()).workload
        outcomes = await asyncio.gather(*(_cancel(service, workload) for _ in range(20)), return_exceptions=True)
        answered = [outcome for outcome in outcomes if isinstance(outcome, messages.CancelWorkloadResponse)]
        codes = {outcome.code() for outcome in outcomes if isinstance(outcome, grpc.aio.AioRpcError)}
        assert answered
        assert codes <= {grpc.StatusCode.FAILED_PRECONDITION}
        assert await service.rows("SELECT count(*) FROM events WHERE event = 'cancelled'") == [(1,)]

    in_service(database_url, scenario)


def test_never_both_cancelled_and_dispatched(database_url: str) -> None:
    """A region takes an entry out of the queue while its user cancels: one of the two comes first."""

    async def scenario(service: Service) -> None:
        names = [WorkloadId((await service.submit()).workload) for _ in range(12)]

        async def take(name: WorkloadId) -> bool:
            async def dispatch_if_queued(connection: AnyConnection) -> bool:
                query = "SELECT 1 FROM queue_entries WHERE workload = %s FOR UPDATE"
                queued = await (await connection.execute(query, (name,))).fetchone()
                if queued is not None:
                    await dispatch(connection, attempt_of(name))
                return queued is not None

            return await service.database.run(dispatch_if_queued)

        async def cancel(name: WorkloadId) -> bool:
            return (await _cancel(service, name)).state == workload_pb2.WORKLOAD_STATE_CANCELLED

        taken = await asyncio.gather(*(act(name) for name in names for act in (take, cancel)))
        for name, dispatched, cancelled in zip(names, taken[::2], taken[1::2], strict=True):
            assert dispatched != cancelled
            received = await service.get(name)
            assert received.cancel_requested
            assert (received.state == workload_pb2.WORKLOAD_STATE_CANCELLED) == cancelled
            assert len(received.attempts) == int(dispatched)

    in_service(database_url, scenario)
