"""Whatever clients send: a clear refusal or a plain answer, nothing stored by halves, and the server stays up."""

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import grpc
import psycopg
import pytest
from google.protobuf.message import Message
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.wire.fleets import fleet_to_proto, tenant_to_proto
from services.wire.workloads import specification_to_proto
from tests.conftest_postgres import SessionServer
from tests.database.small_world import FLEET, TABLES, TENANTS, specification
from tests.examples import examples
from tests.global_scheduler_service.garbage import damaged
from tests.global_scheduler_service.service import SERVING, detail, service_in_background, submit_request
from topmast.v1 import fleet_pb2, fleet_state_pb2, tenant_use_pb2, workload_pb2
from topmast.v1 import global_scheduler_pb2 as messages

_ANSWERS = frozenset(
    {
        grpc.StatusCode.OK,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.ALREADY_EXISTS,
    }
)
_STATES = (workload_pb2.WORKLOAD_STATE_PENDING, workload_pb2.WORKLOAD_STATE_WAITING)
_STREAMS = frozenset({"WatchWorkload", "WatchEvents"})
_STORED = """
    SELECT (SELECT count(*) FROM workloads), (SELECT count(*) FROM workloads WHERE state = 'CANCELLED'),
           (SELECT count(*) FROM queue_entries), (SELECT count(DISTINCT workload) FROM jobs),
           (SELECT count(*) FROM events WHERE event = 'submitted'),
           (SELECT revision FROM revisions WHERE subject = 'fleet'),
           (SELECT revision FROM revisions WHERE subject = 'tenants')"""

_garbage = settings(
    max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def _as_it_is(data: bytes) -> bytes:
    return data


@dataclass
class Target:
    """The server under fire, and a look at what it stores."""

    channel: grpc.Channel
    connection: psycopg.Connection
    health: Any
    codes: Counter[tuple[str, grpc.StatusCode]] = field(default_factory=Counter)

    def stored(self) -> tuple[int, ...]:
        row = self.connection.execute(_STORED).fetchone()
        assert row is not None
        return tuple(row)

    def call(self, method: str, data: bytes, timeout_s: float | None = None) -> grpc.Call:
        """The ended call."""
        path = f"/topmast.v1.GlobalScheduler/{method}"
        if method in _STREAMS:
            stream = self.channel.unary_stream(path, _as_it_is, _as_it_is)(data, timeout=timeout_s)
            with suppress(grpc.RpcError):
                for _ in stream:
                    pass
            return stream
        future = self.channel.unary_unary(path, _as_it_is, _as_it_is).future(data, timeout=timeout_s)
        future.exception()  # waits
        return future

    def fire(self, method: str, request: Message) -> grpc.StatusCode:
        """The call's code, which must be an answer; with INVALID_ARGUMENT come the fields at fault."""
        before = self.stored()
        call = self.call(method, request.SerializeToString())
        code = call.code()
        self.codes[method, code] += 1
        assert code in _ANSWERS, f"{code}: {call.details()}"
        if code is not grpc.StatusCode.OK:
            assert "Traceback" not in call.details()
            assert self.stored() == before, "a refused call left something behind"
        if code is grpc.StatusCode.INVALID_ARGUMENT:
            violations = detail(call, error_details_pb2.BadRequest).field_violations
            assert violations
            assert all(violation.description for violation in violations)
        workloads, cancelled, queued, with_jobs, submitted, *_ = self.stored()
        assert workloads == with_jobs == submitted == queued + cancelled, "something was stored by halves"
        return code


@pytest.fixture(scope="module")
def target(postgres_server: SessionServer) -> Iterator[Target]:
    name = postgres_server.new_database()
    try:
        url = postgres_server.layout.url(name)
        with (
            service_in_background(url) as address,
            grpc.insecure_channel(address) as channel,
            psycopg.connect(url, autocommit=True) as connection,
        ):
            target = Target(channel, connection, health_pb2_grpc.HealthStub(channel))
            yield target
            if target.codes.total() > 300:  # all tests of this module ran: garbage must get past the first check, too
                assert {code for _, code in target.codes} >= {grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT}
            assert target.health.Check(health_pb2.HealthCheckRequest()).status == SERVING
    finally:
        postgres_server.drop_database(name)


def _good_specification() -> workload_pb2.WorkloadSpecification:
    """Something in every field."""
    message = specification_to_proto(specification())
    message.tables.add(table="clicks", fresh=True)
    message.regions.append("east")
    message.labels["team"] = "ads"
    message.retry.max_retries = 2
    message.retry.backoff_s = 1.0
    message.jobs[0].environment["LEVEL"] = "info"
    return message


@_garbage
@given(request=damaged(submit_request(_good_specification(), "key")))
def test_never_stores_a_bad_workload(target: Target, request: messages.SubmitWorkloadRequest) -> None:
    target.fire("SubmitWorkload", request)


@settings(_garbage, max_examples=examples(60))
@given(
    request=damaged(messages.SubmitWorkloadsRequest(requests=[submit_request(_good_specification()) for _ in range(3)]))
)
def test_never_stores_a_part_of_a_batch(target: Target, request: messages.SubmitWorkloadsRequest) -> None:
    workloads = target.stored()[0]
    code = target.fire("SubmitWorkloads", request)
    added = target.stored()[0] - workloads
    assert added <= len(request.requests)
    assert added == 0 or code is grpc.StatusCode.OK


@settings(_garbage, max_examples=examples(80))
@given(
    request=st.one_of(
        damaged(messages.GetWorkloadRequest(workload="w1")),
        damaged(messages.CancelWorkloadRequest(workload="w1", reason="because")),
        damaged(messages.WatchWorkloadRequest(workload="w1")),
        damaged(
            messages.ListWorkloadsRequest(
                page_size=10, tenant="ads", states=_STATES, region="east", name_contains="a", submitted_after_s=1.0
            )
        ),
        damaged(messages.GetQueueRequest(limit=5, tenant="ads")),
        damaged(fleet_state_pb2.GetFleetRequest(region="east", cluster="east-b", gpu_model="A100")),
        damaged(
            fleet_state_pb2.ListMachinesRequest(
                page_size=10, region="east", rack="r", states=["up"], gpu_model="A100", occupied=True
            )
        ),
        damaged(fleet_state_pb2.DrainRequest(names=["nowhere"], kind="region", reason="because", within_s=1.0)),
        damaged(fleet_state_pb2.UndrainRequest(names=["nowhere"], kind="region")),
        damaged(tenant_use_pb2.ListTenantsRequest(page_size=10, tenant="ads")),
        damaged(
            tenant_use_pb2.GetUsageRequest(
                page_size=10, by=["period", "tenant"], period="day", from_s=86_400.0, tenant="ads", gpu_model="A100"
            )
        ),
    )
)
def test_never_fails_to_answer_a_question(target: Target, request: Message) -> None:
    target.fire(request.DESCRIPTOR.name.removesuffix("Request"), request)


@settings(_garbage, max_examples=examples(50))
@given(request=damaged(messages.WatchEventsRequest(after_sequence=1, tenant="ads", events=["submitted"])))
def test_never_fails_to_tell_events(target: Target, request: messages.WatchEventsRequest) -> None:
    request.follow = False  # else it would not end
    target.fire("WatchEvents", request)


@settings(_garbage, max_examples=examples(80))
@given(request=damaged(messages.ApplyFleetRequest(fleet=fleet_to_proto(FLEET, TABLES))))
def test_never_stores_a_bad_fleet(target: Target, request: messages.ApplyFleetRequest) -> None:
    if target.fire("ApplyFleet", request) is grpc.StatusCode.OK:
        target.fire("ApplyFleet", messages.ApplyFleetRequest(fleet=fleet_to_proto(FLEET, TABLES)))


@settings(_garbage, max_examples=examples(80))
@given(request=damaged(messages.ApplyTenantsRequest(tenants=[tenant_to_proto(tenant) for tenant in TENANTS])))
def test_never_stores_bad_tenants(target: Target, request: messages.ApplyTenantsRequest) -> None:
    if target.fire("ApplyTenants", request) is grpc.StatusCode.OK:
        target.fire(
            "ApplyTenants", messages.ApplyTenantsRequest(tenants=[tenant_to_proto(tenant) for tenant in TENANTS])
        )


@settings(_garbage, max_examples=examples(40))
@given(
    data=st.binary(max_size=200), method=st.sampled_from(["SubmitWorkload", "GetWorkload", "WatchEvents", "ApplyFleet"])
)
def test_never_trips_over_bytes_that_are_no_message(target: Target, data: bytes, method: str) -> None:
    # A stream may have been asked to follow the log for ever.
    timeout_s = 0.2 if method in _STREAMS else None
    assert target.call(method, data, timeout_s).code() in _ANSWERS | {grpc.StatusCode.DEADLINE_EXCEEDED}


def test_a_batch_that_is_bad_all_over_is_refused_in_short(target: Target) -> None:
    bad = submit_request(workload_pb2.WorkloadSpecification(name="é" * 5_000, tenant="\0" * 100))
    request = messages.SubmitWorkloadsRequest(requests=[bad] * 1_000)
    assert target.fire("SubmitWorkloads", request) is grpc.StatusCode.INVALID_ARGUMENT


def test_what_is_larger_than_a_message_may_be_is_refused(target: Target) -> None:
    huge = submit_request(workload_pb2.WorkloadSpecification(name="x" * (65 * 2**20)))
    assert target.call("SubmitWorkload", huge.SerializeToString()).code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_a_fleet_of_nothing_but_regions_is_a_fleet(target: Target) -> None:
    request = messages.ApplyFleetRequest(fleet=fleet_pb2.Fleet(regions=[fleet_pb2.Region(region="east")]))
    assert target.fire("ApplyFleet", request) is grpc.StatusCode.OK
    target.fire("ApplyFleet", messages.ApplyFleetRequest(fleet=fleet_to_proto(FLEET, TABLES)))
