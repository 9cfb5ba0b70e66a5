"""Every method of every service has a rule, and the rules are those that are written out in `expected_access`."""

import asyncio
import importlib
import pkgutil
from collections.abc import Iterator

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

import topmast.v1
from services.grpc_errors import CallRefused
from services.security.access_rules import ACCESS_RULES, rule_of
from services.security.authorization import require_role
from services.security.principal import Principal, PrincipalKind, present_principal
from services.security.roles import Role
from services.tiers.grpc_server import TierServer
from tests.security.expected_access import EXPECTED, ROLES
from topmast.v1 import inference_scheduler_pb2, inference_scheduler_pb2_grpc


def all_methods() -> Iterator[MethodDescriptor]:
    """Of every proto of ours, and of what every server has besides."""
    ours = [found.name for found in pkgutil.iter_modules(topmast.v1.__path__) if found.name.endswith("_pb2")]
    for module in (health_pb2, reflection_pb2, *(importlib.import_module(f"topmast.v1.{name}") for name in ours)):
        for service in module.DESCRIPTOR.services_by_name.values():
            yield from service.methods


def path_of(method: MethodDescriptor) -> str:
    return f"/{method.containing_service.full_name}/{method.name}"


def short(method: MethodDescriptor) -> str:
    return f"{method.containing_service.name}.{method.name}"


def principal(role: Role) -> Principal:
    return Principal("somebody", role, None, PrincipalKind.TOKEN)


def test_every_method_has_a_rule_and_no_rule_is_of_nothing() -> None:
    methods = list(all_methods())
    assert {path_of(method) for method in methods} == set(ACCESS_RULES)
    assert {short(method) for method in methods} == set(EXPECTED)


@pytest.mark.parametrize("role", Role)
def test_rules_are_as_they_are_written_out(role: Role) -> None:
    assert tuple(Role) == ROLES
    for method in all_methods():
        expected = EXPECTED[short(method)][role.value]
        rule = rule_of(path_of(method))
        assert rule is not None
        assert rule.unasked == (expected == "*"), method.full_name
        assert (role in rule.roles) == (expected != "-"), method.full_name
        if expected != "*":
            scoped = "o" in EXPECTED[short(method)].values()
            assert rule.tenant_scoped == scoped, method.full_name


def test_never_is_a_method_without_a_rule_called() -> None:
    for role in Role:
        with pytest.raises(CallRefused, match="nobody may call Shutdown: no rule says who may") as refused:
            require_role("/topmast.v1.GlobalScheduler/Shutdown", None, principal(role))
        assert refused.value.code is grpc.StatusCode.PERMISSION_DENIED


def test_a_server_refuses_what_has_no_rule_to_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where nobody is asked who is calling."""
    service = inference_scheduler_pb2.DESCRIPTOR.services_by_name["InferenceScheduler"]

    class Answers(inference_scheduler_pb2_grpc.InferenceSchedulerServicer):
        async def GetDemand(
            self,
            request: inference_scheduler_pb2.GetDemandRequest,
            context: "grpc.aio.ServicerContext[object, object]",
        ) -> inference_scheduler_pb2.GetDemandResponse:
            return inference_scheduler_pb2.GetDemandResponse()

    async def call() -> grpc.aio.AioRpcError:
        server = TierServer(
            [service],
            lambda to: inference_scheduler_pb2_grpc.add_InferenceSchedulerServicer_to_server(Answers(), to),
        )
        port = await server.start("127.0.0.1:0")
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                stub = inference_scheduler_pb2_grpc.InferenceSchedulerStub(channel)
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await stub.GetDemand(inference_scheduler_pb2.GetDemandRequest())
                return refused.value
        finally:
            await server.stop(0)

    monkeypatch.setattr("services.security.authorization.rule_of", lambda path: None)
    error = asyncio.run(call())
    assert (error.code(), error.details()) == (
        grpc.StatusCode.PERMISSION_DENIED,
        "nobody may call GetDemand: no rule says who may",
    )


def test_outside_of_calls_there_is_no_principal() -> None:
    with pytest.raises(LookupError):
        present_principal()
