"""Every method of every service, called by every role about own, foreign and missing things, in a live service.

What is to come out stands in `expected_access`; what is called comes from the descriptors, so that a new method without a line there fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from tests.security.expected_access import EXPECTED, ROLES
from tests.security.guarded_service import FOREIGN, FOREIGN_NAME, OWN, GuardedService, guarded_service
from tests.security.request_samples import MISSING, sample
from tests.security.test_access_rules import all_methods, path_of, short

_SERVED_BY = {
    "GlobalScheduler": "global",
    "DataPlacement": "global",
    "Packages": "global",
    "Access": "global",
    "RegionalScheduler": "regional",
    "ClusterManager": "cluster",
    "TrainingSession": "cluster",
    "Health": "global",
    "ServerReflection": "global",
}
"""No server of a service has the others (`InferenceScheduler`): their rules are tested by themselves."""

_REFUSED = {grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED}
_PATIENCE_S = 30.0

Outcome = tuple[grpc.StatusCode, str, bytes]
"""The code, the sentence, and all that was told."""


async def _called(channel: grpc.aio.Channel, method: MethodDescriptor, request: Message, token: str | None) -> Outcome:
    """Of a stream the first answer counts."""
    answer_class = message_factory.GetMessageClass(method.output_type)
    metadata = () if token is None else (("authorization", f"Bearer {token}"),)
    streams = method.client_streaming, method.server_streaming
    make: Callable[..., Any] = {
        (False, False): channel.unary_unary,
        (False, True): channel.unary_stream,
        (True, False): channel.stream_unary,
        (True, True): channel.stream_stream,
    }[streams]
    callable_ = make(
        path_of(method),
        request_serializer=lambda one: one.SerializeToString(),
        response_deserializer=answer_class.FromString,
    )
    given = iter([request]) if method.client_streaming else request
    try:
        call = callable_(given, metadata=metadata, timeout=_PATIENCE_S)
        if method.server_streaming:
            told = b""
            async for answer in call:
                told += answer.SerializeToString()
                if method.name != "WatchEvents":
                    break
            call.cancel()
        else:
            told = (await call).SerializeToString()
    except grpc.aio.AioRpcError as error:
        trailer = b"".join(
            value if isinstance(value, bytes) else str(value).encode() for _, value in error.trailing_metadata() or ()
        )
        return error.code(), error.details() or "", trailer
    return grpc.StatusCode.OK, "", told


def _alike(outcome: Outcome, foreign: list[str]) -> tuple[grpc.StatusCode, str]:
    """The answer, whatever it calls what was asked for."""
    code, sentence, _ = outcome
    for name in foreign:
        sentence = sentence.replace(name, "...")
    return code, sentence


def _foreign_names(guarded: GuardedService) -> list[str]:
    return [guarded.running[FOREIGN], guarded.waiting[FOREIGN], FOREIGN, FOREIGN_NAME]


async def _check_role(guarded: GuardedService, role: str, method: MethodDescriptor, channel: grpc.aio.Channel) -> None:
    expected, token = EXPECTED[short(method)][role], guarded.tokens[role]

    async def outcome(tenant: str | None) -> Outcome:
        return await _called(channel, method, sample(method, guarded, tenant), token)

    own, place = await outcome(OWN), f"{short(method)} by {role}"
    if expected == "-":
        assert own[0] is grpc.StatusCode.PERMISSION_DENIED, (place, own)
        assert role in own[1], (place, own)
        assert method.name in own[1], (place, own)
        return
    assert own[0] not in _REFUSED, (place, own)
    if method.full_name.startswith("topmast."):
        assert own[0] not in {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN}, (place, own)
    if expected != "o":
        return
    foreign, missing = await outcome(FOREIGN), await outcome(None)
    names = [*_foreign_names(guarded), f"{FOREIGN_NAME}space.clicks", MISSING, "nowhere.clicks", "nobody"]
    longest_first = sorted(names, key=len, reverse=True)
    assert _alike(foreign, longest_first) == _alike(missing, longest_first), place
    asked = sample(method, guarded, FOREIGN).SerializeToString()
    for answer in (own, foreign):
        for name in _foreign_names(guarded):
            # What the caller said itself may come back.
            if name.encode() not in asked:
                assert name.encode() not in answer[2], (place, name)
    if "workload" in method.input_type.fields_by_name and method.name not in {"GetUsage", "WatchEvents"}:
        assert foreign[0] is grpc.StatusCode.NOT_FOUND, (place, foreign)


async def _check_no_token(guarded: GuardedService, method: MethodDescriptor, channel: grpc.aio.Channel) -> None:
    code, sentence, _ = await _called(channel, method, sample(method, guarded, OWN), None)
    if "*" in EXPECTED[short(method)].values():
        assert code not in _REFUSED, (short(method), code, sentence)
    else:
        assert code is grpc.StatusCode.UNAUTHENTICATED, (short(method), code, sentence)
        assert "no token came with this call" in sentence


@pytest.mark.live
def test_never_does_a_caller_see_or_touch_what_is_not_theirs(database_url: str, tmp_path: Path) -> None:
    async def run() -> None:
        async with guarded_service(database_url, tmp_path) as guarded:
            channels = {tier: guarded.channel(tier) for tier in ("global", "regional", "cluster")}
            served = [method for method in all_methods() if method.containing_service.name in _SERVED_BY]
            try:
                for method in served:
                    channel = channels[_SERVED_BY[method.containing_service.name]]
                    await _check_no_token(guarded, method, channel)
                    # The least first: admins end what the others look at.
                    for role in reversed(ROLES):
                        await _check_role(guarded, role, method, channel)
            finally:
                for channel in channels.values():
                    await channel.close()
            assert len(served) * len(ROLES) > 350

    asyncio.run(run())
