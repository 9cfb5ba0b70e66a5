"""No request, however absurd, is an internal error of the service: each is answered, or refused with its field."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from services.wire.fleets import fleet_to_proto, tenant_to_proto
from tests.live.background import service_in_background
from tests.live.world import FLEET, TABLES, TENANTS
from topmast import Client, Emulated
from topmast.v1 import (
    cluster_manager_pb2,
    cluster_manager_pb2_grpc,
    data_placement_pb2,
    global_scheduler_pb2,
    workload_pb2,
)

NEVER = frozenset(
    {
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.DATA_LOSS,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
    }
)

_NOT_ASKED = {
    "SaveSnapshot": "it takes nothing",
    "GetStatus": "it takes nothing",
    "UploadFleet": "a stream of parts, which tests of uploads cut and mix",
    "ImportWarehouse": "a stream of files, which tests of warehouses damage",
    "ExportWarehouse": "it takes nothing",
}

_WHOLE = {
    FieldDescriptor.TYPE_INT32: (-(2**31), -1, 2**31 - 1),
    FieldDescriptor.TYPE_INT64: (-(2**63), -1, 2**62, 2**63 - 1),
    FieldDescriptor.TYPE_UINT32: (2**32 - 1,),
    FieldDescriptor.TYPE_UINT64: (2**64 - 1,),
    FieldDescriptor.TYPE_ENUM: (-1, 99),
}
_REAL = (math.nan, math.inf, -math.inf, -1.0, 1e308, 5e-324, -0.0)
_TEXT = ("", "a\0b", "x" * 100_000, "\x1b[31mü\U0001f600", "../../etc; drop table workloads")
_BYTES = (b"", b"\xff" * 100)


def _extremes(field: Any) -> tuple[Any, ...]:
    if field.type in _WHOLE:
        return _WHOLE[field.type]
    if field.type in (FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FLOAT):
        return _REAL
    if field.type == FieldDescriptor.TYPE_STRING:
        return _TEXT
    if field.type == FieldDescriptor.TYPE_BYTES:
        return _BYTES
    return (True, False)


def _usual(message: Message, known: dict[str, Any], depth: int = 0) -> None:
    """Fills a message in with one of everything, so that each field is reached."""
    for field in message.DESCRIPTOR.fields:
        if field.containing_oneof is not None and field.name not in known:
            continue
        if field.message_type is not None:
            if field.message_type.GetOptions().map_entry or depth > 6:
                continue
            part = getattr(message, field.name)
            _usual(part.add() if field.is_repeated else part, known, depth + 1)
            if not field.is_repeated:
                part.SetInParent()
        elif field.name in known:
            if field.is_repeated:
                getattr(message, field.name).append(known[field.name])
            else:
                setattr(message, field.name, known[field.name])


def _changed(message: Message, path: str = "") -> Iterator[tuple[str, Any]]:
    """Each field of it at each extreme, one at a time; what is yielded says which."""
    for field in message.DESCRIPTOR.fields:
        here = f"{path}.{field.name}"
        if field.message_type is not None:
            if field.message_type.GetOptions().map_entry:
                yield from _changed_map(message, field, here)
            elif field.is_repeated:
                for part in list(getattr(message, field.name))[:2]:
                    yield from _changed(part, here)
            elif message.HasField(field.name):
                yield from _changed(getattr(message, field.name), here)
            continue
        before = message.__class__()
        before.CopyFrom(message)
        for value in _extremes(field):
            if field.is_repeated:
                getattr(message, field.name).append(value)
            else:
                setattr(message, field.name, value)
            yield here, value
            message.CopyFrom(before)


def _changed_map(message: Message, field: Any, here: str) -> Iterator[tuple[str, Any]]:
    keys, values = field.message_type.fields_by_name["key"], field.message_type.fields_by_name["value"]
    if values.message_type is not None:
        return
    usual_key: Any = "any" if keys.type == FieldDescriptor.TYPE_STRING else 1
    usual_value: Any = "x" if values.type == FieldDescriptor.TYPE_STRING else 1
    for key, value in [
        *((key, usual_value) for key in _extremes(keys)),
        *((usual_key, value) for value in _extremes(values)),
    ]:
        before = message.__class__()
        before.CopyFrom(message)
        getattr(message, field.name)[key] = value
        yield here, (key, value)
        message.CopyFrom(before)


KNOWN: dict[str, Any] = {
    "cells": 1,
    "cluster": "east-a",
    "count": 1,
    "level": "machine",
    "machine": "east-a-m0",
    "name": "x",
    "page_size": 1,
    "region": "east",
    "source": "east",
    "target": "west",
    "table": "clicks",
    "tenant": "vision",
}

JOB = workload_pb2.JobSpecification(
    name="main",
    tasks=1,
    max_tasks=2,
    resources=workload_pb2.TaskResources(gpus=1, gpu_model="A100", cpus=1.0, memory_gib=1.0),
    environment={"A": "b"},
    profile=workload_pb2.ModelProfile(skew=0.5),
    scaling=[workload_pb2.ScalingPoint(tasks=tasks, throughput=float(tasks)) for tasks in (1, 2)],
    emulated=workload_pb2.Emulated(duration_s=1e6, checkpoint_interval_s=1e5),
)
WORKLOAD = workload_pb2.WorkloadSpecification(
    name="x",
    tenant="vision",
    jobs=[JOB],
    tables=[workload_pb2.TableInput(table="clicks", max_age_s=1e6)],
    regions=["east"],
    labels={"a": "b"},
    retry=workload_pb2.RetryPolicy(max_retries=1, backoff_s=1.0, backoff_cap_s=2.0),
    stop_grace_s=1.0,
    priority=2,
)
VALID: dict[str, Any] = {
    "SubmitWorkload": global_scheduler_pb2.SubmitWorkloadRequest(specification=WORKLOAD),
    "ApplyTenants": global_scheduler_pb2.ApplyTenantsRequest(tenants=map(tenant_to_proto, TENANTS)),
    "ApplyFleet": global_scheduler_pb2.ApplyFleetRequest(fleet=fleet_to_proto(FLEET, TABLES)),
}
"""Where something of everything would only be refused: what is right, and then wrong in one field."""


def test_no_request_is_an_internal_error(database_url: str, tmp_path: Path) -> None:
    with service_in_background(database_url, tmp_path / "home", FLEET) as service, Client(service.address) as client:
        workload = client.submit(tenant="vision", gpus=1, emulated=Emulated(duration_s=1e6)).workload
        known = KNOWN | {"workload": workload}
        wrong: list[str] = []
        answers: Counter[str] = Counter()
        with grpc.insecure_channel(service.address) as channel:
            for method in _methods(global_scheduler_pb2, data_placement_pb2):
                kind, answer = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
                call = (channel.unary_stream if method.server_streaming else channel.unary_unary)(
                    f"/{method.containing_service.full_name}/{method.name}",
                    request_serializer=kind.SerializeToString,
                    response_deserializer=answer.FromString,
                )
                for where, value, request in _requests(kind, VALID.get(method.name), known):
                    code = _code(call, request, streaming=method.server_streaming)
                    answers[code.name] += 1
                    if where == "as it is":
                        assert code is grpc.StatusCode.OK, method.name
                    if code in NEVER:
                        wrong.append(f"{method.name}{where} = {str(value)[:40]!r}: {code.name}")
        # What was taken is carried out, too: the service goes on.
        client.apply_fleet(VALID["ApplyFleet"].fleet)
        client.apply_tenants(VALID["ApplyTenants"].tenants)
        last = client.submit(tenant="vision", gpus=1, emulated=Emulated(duration_s=1.0)).workload
        assert client.wait(last).state == "COMPLETED"
        service.raise_if_broken()
        assert min(answers["INVALID_ARGUMENT"], answers["OK"]) > 100, answers
        assert not wrong, "\n".join(wrong)


SESSION = cluster_manager_pb2.OpenSessionRequest(
    opening=cluster_manager_pb2.SessionOpening(
        workload="w",
        command=cluster_manager_pb2.SessionCommand(
            arguments=["true"],
            terminal=cluster_manager_pb2.SessionTerminal(size=cluster_manager_pb2.TerminalSize(rows=1, columns=1)),
        ),
    )
)


def test_no_session_is_an_internal_error_or_holds_the_manager_up(database_url: str, tmp_path: Path) -> None:
    with service_in_background(database_url, tmp_path / "home", FLEET) as service, Client(service.address) as client:
        workload = client.submit(tenant="vision", gpus=1, emulated=Emulated(duration_s=1e6)).workload
        next(now for now in client.watch(workload) if now.state == "RUNNING")
        (cluster,) = client.get(workload).attempts[-1].clusters
        address = client.status().cluster_address(cluster)
        assert address is not None
        SESSION.opening.workload = workload
        port = cluster_manager_pb2.OpenSessionRequest()
        port.opening.CopyFrom(SESSION.opening)
        port.opening.port = 1
        codes: Counter[str] = Counter()
        with grpc.insecure_channel(address) as channel:
            stub = cluster_manager_pb2_grpc.ClusterManagerStub(channel)

            def code_of(*requests: cluster_manager_pb2.OpenSessionRequest) -> grpc.StatusCode:
                try:
                    list(stub.OpenSession(iter(requests), timeout=60))
                except grpc.RpcError as error:
                    return error.code()
                return grpc.StatusCode.OK

            wrong = []
            for valid in (SESSION, port):
                for where, value in _changed(valid):
                    code = code_of(valid)
                    codes[code.name] += 1
                    if code in NEVER:
                        wrong.append(f"{where} = {str(value)[:40]!r}: {code.name}")
            resized = cluster_manager_pb2.OpenSessionRequest(resized=cluster_manager_pb2.TerminalSize(rows=-1))
            chunk = cluster_manager_pb2.OpenSessionRequest(input=b"x" * 2**20)
            for requests in (
                (),
                (resized,),
                (SESSION, SESSION),
                (SESSION, resized),
                (chunk,) * 50,
                (SESSION, *(chunk,) * 50),
            ):
                code = code_of(*requests)
                codes[code.name] += 1
                if code in NEVER:
                    wrong.append(f"{len(requests)} messages: {code.name}")
            # Many who say nothing: others are answered meanwhile.
            enough = threading.Event()
            silent = [stub.OpenSession(_nothing_until(enough), timeout=60) for _ in range(50)]
            assert stub.GetStatus(cluster_manager_pb2.GetClusterStatusRequest(), timeout=30).cluster == cluster
            for call in silent:
                call.cancel()
            enough.set()
        service.raise_if_broken()
        assert min(codes["INVALID_ARGUMENT"], codes["FAILED_PRECONDITION"]) > 3, codes
        assert not wrong, "\n".join(wrong)


def _nothing_until(enough: threading.Event) -> Iterator[cluster_manager_pb2.OpenSessionRequest]:
    enough.wait()
    yield from ()


def _requests(kind: type[Message], valid: Message | None, known: dict[str, Any]) -> Iterator[tuple[str, Any, Message]]:
    """The message empty, with something everywhere (or as it is valid), and that with each field changed."""
    yield "", "empty", kind()
    filled = kind()
    _usual(filled, known)
    for where, request in (("with everything", filled), ("as it is", valid)):
        if request is not None:
            yield where, "", request
            for field, value in _changed(request):
                yield field, value, request


def _methods(*files: Any) -> Iterator[Any]:
    for file in files:
        for service in file.DESCRIPTOR.services_by_name.values():
            yield from (method for method in service.methods if method.name not in _NOT_ASKED)


def _code(call: Any, request: Message, *, streaming: bool) -> grpc.StatusCode:
    """How the call ends; of a stream, how its first answer comes."""
    try:
        if streaming:
            stream = call(request, timeout=60)
            next(iter(stream), None)
            stream.cancel()
        else:
            call(request, timeout=60)
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK
