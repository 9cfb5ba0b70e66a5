"""Whatever tiers and tasks say to each other: a clear refusal or a plain answer, and what runs is not disturbed."""

from __future__ import annotations

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

from domain.workload import Emulated
from services.database import migrations_runner
from services.wire.workloads import specification_to_proto
from simulator.validate import validate
from tests.conftest_postgres import SessionServer
from tests.examples import examples
from tests.global_scheduler_service.garbage import damaged
from tests.global_scheduler_service.service import detail
from tests.live.background import BackgroundService, service_in_background
from tests.live.running import is_end
from tests.live.world import A100, FLEET, RANKING, TABLES, TENANTS, one_job
from topmast import Client
from topmast.v1 import cluster_manager_pb2, regional_scheduler_pb2, training_session_pb2, workload_pb2

pytestmark = pytest.mark.live

_ANSWERS = frozenset(
    {
        grpc.StatusCode.OK,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.FAILED_PRECONDITION,
    }
)
_STREAMS = frozenset({"WatchStatus", "ReadLogs"})
_STREAM_REAL_S = 0.2
"""A stream that does not end by itself is read for so long."""

_garbage = settings(
    max_examples=examples(100), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def _as_it_is(data: bytes) -> bytes:
    return data


@dataclass
class TierTarget:
    """A region's scheduler and one of its cluster managers under fire, while a workload runs there."""

    service: BackgroundService
    client: Client
    region: grpc.Channel
    cluster: grpc.Channel
    bystander: str
    codes: Counter[grpc.StatusCode] = field(default_factory=Counter)

    def fire(self, channel: grpc.Channel, service: str, method: str, request: Message) -> grpc.StatusCode:
        """The call's code, which must be an answer; with INVALID_ARGUMENT come the fields at fault."""
        data = request.SerializeToString()
        path = f"/topmast.v1.{service}/{method}"
        call: grpc.Call
        if method in _STREAMS:
            stream = channel.unary_stream(path, _as_it_is, _as_it_is)(data, timeout=_STREAM_REAL_S)
            with suppress(grpc.RpcError):
                for _ in stream:
                    pass
            call = stream
        else:
            call = channel.unary_unary(path, _as_it_is, _as_it_is).future(data)
            call.exception()  # waits
        code = call.code()
        self.codes[code] += 1
        endless = method in _STREAMS and code is grpc.StatusCode.DEADLINE_EXCEEDED
        assert code in _ANSWERS or endless, f"{code}: {call.details()}"
        assert "Traceback" not in (call.details() or "")
        if code is grpc.StatusCode.INVALID_ARGUMENT:
            violations = detail(call, error_details_pb2.BadRequest).field_violations
            assert violations
            assert all(violation.description for violation in violations)
        return code

    def fire_at_region(self, method: str, request: Message) -> None:
        self.fire(self.region, "RegionalScheduler", method, request)

    def fire_at_cluster(self, method: str, request: Message) -> None:
        self.fire(self.cluster, "ClusterManager", method, request)

    def fire_as_task(self, method: str, request: Message) -> None:
        self.fire(self.cluster, "TrainingSession", method, request)

    def check(self) -> None:
        """All servers serve, no tier broke, and the bystander runs in its first attempt."""
        self.service.raise_if_broken()
        for channel in (self.region, self.cluster):
            health: Any = health_pb2_grpc.HealthStub(channel)
            assert health.Check(health_pb2.HealthCheckRequest()).status == health_pb2.HealthCheckResponse.SERVING
        bystander = self.client.get(self.bystander)
        assert (bystander.state, len(bystander.attempts)) == ("RUNNING", 1)


@pytest.fixture(scope="module")
def target(postgres_server: SessionServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TierTarget]:
    name = postgres_server.new_database()
    url = postgres_server.layout.url(name)
    try:
        _give_no_secrets(url)
        with (
            service_in_background(url, tmp_path_factory.mktemp("home")) as service,
            Client(service.address) as client,
        ):
            tiers = {(tier.tier, tier.name): tier.address for tier in client.status().tiers}
            long = one_job("bystander", RANKING, Emulated(1e8), gpus=8, model=A100)
            bystander = client.submit(specification_to_proto(long)).workload
            next(event for event in client.events(follow=True, workload=bystander) if event.event == "started")
            cluster = client.get(bystander).attempts[0].placements[0].cluster
            with (
                grpc.insecure_channel(tiers["regional", cluster.rsplit("-", 1)[0]]) as to_region,
                grpc.insecure_channel(tiers["cluster", cluster]) as to_cluster,
            ):
                target = TierTarget(service, client, to_region, to_cluster, bystander)
                _set_token(url, cluster.rsplit("-", 1)[0])
                yield target
                target.check()
                if target.codes.total() > 300:  # all tests of this module ran: garbage must get past the first check
                    assert set(target.codes) >= _ANSWERS
                _check_nothing_happened(target)
    finally:
        postgres_server.drop_database(name)


def _give_no_secrets(url: str) -> None:
    """Leases are given as the version before gave them: garbage shows the number that it can read and gets past the fence."""
    migrations_runner.upgrade(url)
    with psycopg.connect(url) as connection:
        connection.execute(
            """CREATE FUNCTION without_secret() RETURNS trigger LANGUAGE plpgsql AS
               'BEGIN NEW.secret_hash := NULL; NEW.secret_token := NULL; RETURN NEW; END'"""
        )
        connection.execute(
            "CREATE TRIGGER without_secret BEFORE INSERT OR UPDATE ON leases FOR EACH ROW EXECUTE FUNCTION without_secret()"
        )


def _set_token(url: str, region: str) -> None:
    """The token of the region's present lease goes into the good messages, so that they are taken."""
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT token FROM leases WHERE name = %s", (f"regional/{region}",)).fetchone()
    assert row is not None
    for message in (_PLANS, _STOPS, _RESIZE, _FORGET, _WATCH):
        message.fencing_token = row[0]


def _check_nothing_happened(target: TierTarget) -> None:
    """The log tells of the bystander and of machines, and of nothing else; and it ends when it is cancelled."""
    target.client.cancel(target.bystander)
    target.client.wait(target.bystander)
    events = list(target.client.events())
    assert {event.workload for event in events if event.workload} == {target.bystander}
    assert sum(is_end(event) for event in events) == 1
    report = validate([event.as_json() for event in events], FLEET, TENANTS, tables=TABLES, complete=True)
    assert report.violations == 0, report.shown


def _rogue_specification() -> workload_pb2.WorkloadSpecification:
    """Of a workload that the database has never heard of: its region stops whatever runs of it."""
    message = specification_to_proto(one_job("rogue", RANKING, Emulated(1e6, 1e3), gpus=2, tasks=2, model=A100))
    message.tables.add(table="clicks", fresh=True)
    message.labels["team"] = "none"
    message.retry.max_retries = 2
    message.jobs[0].environment["LEVEL"] = "info"
    return message


def _placements() -> list[workload_pb2.TaskPlacement]:
    return [
        workload_pb2.TaskPlacement(
            job="main",
            task=task,
            cluster="east-a",
            machine="east-a-m1",
            gpu_indices=[task],
            cpus=12.0,
            memory_gib=96.0,
        )
        for task in range(2)
    ]


_REFERENCE = cluster_manager_pb2.AttemptReference(workload="rogue", attempt=1)
_PLANS = cluster_manager_pb2.ExecutePlanRequest(
    plans=[
        cluster_manager_pb2.AttemptPlan(
            workload="rogue", attempt=1, specification=_rogue_specification(), placements=_placements(), progress=5.0
        )
    ]
)
_STOPS = cluster_manager_pb2.StopAttemptRequest(attempts=[_REFERENCE], grace_s=1.0)
_RESIZE = cluster_manager_pb2.ResizeAttemptRequest(workload="rogue", attempt=1, placements=_placements())
_FORGET = cluster_manager_pb2.ForgetAttemptsRequest(attempts=[_REFERENCE])
_WATCH = cluster_manager_pb2.WatchStatusRequest()
_LOGS = cluster_manager_pb2.ReadLogsRequest(workload="rogue", attempt=1, job="main", task=0, tail_lines=3)
_TASK = training_session_pb2.TaskReference(workload="rogue", attempt=1, job="main", task=0)
_HEARTBEAT = training_session_pb2.HeartbeatRequest(task=_TASK, progress=3.0, steps_per_second=1.0)
_CHECKPOINT = training_session_pb2.CheckpointSavedRequest(task=_TASK, progress=3.0, path="/checkpoints/3")
_DRY_RUN = regional_scheduler_pb2.PlanWorkloadRequest(specification=_rogue_specification(), priority=3, level=1)
_DRAIN = regional_scheduler_pb2.DrainMachineRequest(machine="east-a-m3", keep_running=True, reason="garbage")
_DRAINS = regional_scheduler_pb2.DrainMachinesRequest(machines=["east-a-m3"], reason="garbage", deadline_s=1e12)
_UNDRAIN = regional_scheduler_pb2.UndrainMachineRequest(machine="east-a-m3")


@_garbage
@given(request=damaged(_DRY_RUN))
def test_never_does_a_dry_run_break_a_region(
    target: TierTarget, request: regional_scheduler_pb2.PlanWorkloadRequest
) -> None:
    target.fire_at_region("PlanWorkload", request)


@settings(_garbage, max_examples=examples(30))
@given(
    inventory=damaged(regional_scheduler_pb2.GetInventoryRequest(cluster="east-a")),
    drain=damaged(_DRAIN),
    drains=damaged(_DRAINS),
    undrain=damaged(_UNDRAIN),
)
def test_never_do_questions_about_machines_break_a_region(
    target: TierTarget,
    inventory: regional_scheduler_pb2.GetInventoryRequest,
    drain: regional_scheduler_pb2.DrainMachineRequest,
    drains: regional_scheduler_pb2.DrainMachinesRequest,
    undrain: regional_scheduler_pb2.UndrainMachineRequest,
) -> None:
    target.fire_at_region("GetInventory", inventory)
    if drain.keep_running:  # else it may be the bystander's machine, and that would have to leave
        target.fire_at_region("DrainMachine", drain)
    if drains.deadline_s > 1e11:  # for the same reason
        target.fire_at_region("DrainMachines", drains)
    target.fire_at_region("UndrainMachine", undrain)


@_garbage
@given(request=damaged(_PLANS))
def test_never_does_a_plan_disturb_what_runs(
    target: TierTarget, request: cluster_manager_pb2.ExecutePlanRequest
) -> None:
    target.fire_at_cluster("ExecutePlan", request)


@settings(_garbage, max_examples=examples(40))
@given(
    stops=damaged(_STOPS), resize=damaged(_RESIZE), forget=damaged(_FORGET), logs=damaged(_LOGS), watch=damaged(_WATCH)
)
def test_never_do_orders_about_strangers_disturb_what_runs(
    target: TierTarget,
    stops: cluster_manager_pb2.StopAttemptRequest,
    resize: cluster_manager_pb2.ResizeAttemptRequest,
    forget: cluster_manager_pb2.ForgetAttemptsRequest,
    logs: cluster_manager_pb2.ReadLogsRequest,
    watch: cluster_manager_pb2.WatchStatusRequest,
) -> None:
    target.fire_at_cluster("ExecutePlan", _PLANS)
    target.fire_at_cluster("ResizeAttempt", resize)
    target.fire_at_cluster("StopAttempt", stops)
    target.fire_at_cluster("ForgetAttempts", forget)
    target.fire_at_cluster("ReadLogs", logs)
    target.fire_at_cluster("WatchStatus", watch)
    target.fire_at_cluster("GetStatus", cluster_manager_pb2.GetClusterStatusRequest())


@_garbage
@given(heartbeat=damaged(_HEARTBEAT), checkpoint=damaged(_CHECKPOINT))
def test_never_does_what_a_task_says_disturb_what_runs(
    target: TierTarget,
    heartbeat: training_session_pb2.HeartbeatRequest,
    checkpoint: training_session_pb2.CheckpointSavedRequest,
) -> None:
    target.fire_as_task("Heartbeat", heartbeat)
    target.fire_as_task("CheckpointSaved", checkpoint)


@pytest.mark.parametrize("method", ["ExecutePlan", "StopAttempt", "ForgetAttempts"])
def test_a_token_that_nobody_was_given_is_refused_and_locks_nobody_out(target: TierTarget, method: str) -> None:
    good = {"ExecutePlan": _PLANS, "StopAttempt": _STOPS, "ForgetAttempts": _FORGET}[method]
    presumed: Any = type(good)()
    presumed.CopyFrom(good)
    presumed.fencing_token = 2**62
    code = target.fire(target.cluster, "ClusterManager", method, presumed)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert target.fire(target.cluster, "ClusterManager", method, good) in {
        grpc.StatusCode.OK,
        grpc.StatusCode.FAILED_PRECONDITION,  # the attempt is over
    }
    target.check()


@pytest.mark.parametrize("where", ["region", "cluster"])
def test_bytes_that_are_no_message_are_refused(target: TierTarget, where: str) -> None:
    channel, path = {
        "region": (target.region, "/topmast.v1.RegionalScheduler/DrainMachine"),
        "cluster": (target.cluster, "/topmast.v1.ClusterManager/ExecutePlan"),
    }[where]
    call = channel.unary_unary(path, _as_it_is, _as_it_is).future(b"\xff" * 20)
    assert isinstance(call.exception(), grpc.RpcError)
    assert call.code() is grpc.StatusCode.INVALID_ARGUMENT
