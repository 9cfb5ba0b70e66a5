"""What a tier takes on at a time: so many calls, so many bytes of requests, and of each client half of that at most.

gRPC reads a request only when its handler has been found, and runs each call in a task of its own. So a call that is one
too many is refused before its request is read, and what a call holds is given back when its task ends, however it ends.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor

from services.grpc_errors import CallRefused, Exhausted
from services.security.principal import present_principal
from services.security.roles import Role
from services.tiers.request_counts import (
    COUNTED_IN_BYTES,
    CountedFields,
    count_in_bytes,
    count_in_message,
    counted_fields,
)
from services.tiers.request_settings import RequestSettings
from services.tiers.request_sizes import LONGEST_CALL_S, greatest_request_bytes

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")

_RETRY_AFTER_S = 1.0
_MIB = 2**20


@dataclass(slots=True)
class _Call:
    """One that is under way, and what it holds."""

    streams: bool
    request_bytes: int = 0
    client: str = ""
    over: bool = False


@dataclass(frozen=True, slots=True)
class _Method:
    """What is known of a method before it is called."""

    name: str
    streams: bool
    greatest_bytes: int
    counted: CountedFields
    longest_s: float | None
    """None: it may take as long as it likes."""


class Admission(grpc.aio.ServerInterceptor):
    """Lets calls in while there is room for them. Of services that are not named (health, reflection), which are open to everybody,
    calls with one answer always are, and streams up to a bound of their own."""

    def __init__(self, services: Iterable[ServiceDescriptor], settings: RequestSettings) -> None:
        self._settings = settings
        self._methods = {
            f"/{service.full_name}/{method.name}": _method(method, settings)
            for service in services
            for method in service.methods
        }
        self._calls: dict[asyncio.Task[object], _Call] = {}
        self._streams = 0
        self._open_streams = 0
        self._open_streams_by_client: Counter[str] = Counter()
        self._bytes = 0
        self._bytes_by_client: Counter[str] = Counter()
        self._calls_by_client: Counter[tuple[str, bool]] = Counter()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[RequestT, ResponseT] | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[RequestT, ResponseT] | None:
        handler = await continuation(handler_call_details)
        method = self._methods.get(str(handler_call_details.method))
        task = asyncio.current_task()
        if handler is None or task is None:
            return handler
        if method is None:
            return self._open_to_everybody(handler, task)
        refusal = self._refusal(method)
        if refusal is not None:
            return grpc.stream_unary_rpc_method_handler(_refusing(refusal))
        call = self._calls[task] = _Call(method.streams)
        self._streams += method.streams
        task.add_done_callback(self._ended)
        deserializer = self._weighed(handler.request_deserializer, method, call)
        for behaviour, made in (
            (handler.unary_unary, grpc.unary_unary_rpc_method_handler),
            (handler.unary_stream, grpc.unary_stream_rpc_method_handler),
            (handler.stream_unary, grpc.stream_unary_rpc_method_handler),
            (handler.stream_stream, grpc.stream_stream_rpc_method_handler),
        ):
            if behaviour is not None:
                return made(self._admitted(behaviour, method, call), deserializer, handler.response_serializer)
        return handler

    def _open_to_everybody(
        self, handler: grpc.RpcMethodHandler[RequestT, ResponseT], task: asyncio.Task[object]
    ) -> grpc.RpcMethodHandler[RequestT, ResponseT]:
        if not (handler.request_streaming or handler.response_streaming):
            return handler
        # As many again, beside the others: each client that knows several addresses has one to each of them.
        greatest = self._settings.streams_at_once
        if self._open_streams >= greatest:
            refusal = Exhausted(
                f"{greatest:,} streams of health checks and reflection are under way here, the most at a time"
                " (requests.streams_at_once)",
                _RETRY_AFTER_S,
            )
            return grpc.stream_unary_rpc_method_handler(_refusing(refusal))
        self._open_streams += 1
        task.add_done_callback(self._open_stream_ended)
        for behaviour, made in (
            (handler.unary_stream, grpc.unary_stream_rpc_method_handler),
            (handler.stream_stream, grpc.stream_stream_rpc_method_handler),
        ):
            if behaviour is not None:
                shared = self._shared(behaviour, task, greatest // 2)
                return made(shared, handler.request_deserializer, handler.response_serializer)
        return handler

    def _open_stream_ended(self, _task: asyncio.Task[object]) -> None:
        self._open_streams -= 1

    def _shared(self, behaviour: Callable[..., Any], task: asyncio.Task[object], greatest: int) -> Callable[..., Any]:
        """The method itself, for so many streams of one connection: clients with several addresses call nobody of whose health they
        hear nothing."""

        def come_from(client: str) -> None:
            if self._open_streams_by_client[client] >= greatest:
                raise Exhausted(
                    f"this client has {greatest:,} streams of health checks and reflection under way, half of"
                    " requests.streams_at_once and the most for one client",
                    _RETRY_AFTER_S,
                )
            self._open_streams_by_client[client] += 1
            task.add_done_callback(lambda _task: _less(self._open_streams_by_client, client, 1))

        if inspect.isasyncgenfunction(behaviour):

            async def stream(request: Any, context: Any) -> AsyncIterator[Any]:
                come_from(str(context.peer()))
                async for response in behaviour(request, context):
                    yield response

            return stream

        async def answer(request: Any, context: Any) -> Any:
            come_from(str(context.peer()))
            return await behaviour(request, context)

        return answer

    # ------------------------------------------------------------ calls

    def _refusal(self, method: _Method) -> Exhausted | None:
        """Why this call is one too many."""
        if method.streams:
            there, greatest, kind = self._streams, self._settings.streams_at_once, "streams"
        else:
            there, greatest, kind = len(self._calls) - self._streams, self._settings.calls_at_once, "calls"
        if there < greatest:
            return None
        return Exhausted(
            f"{there:,} {kind} are under way here, the most at a time (requests.{kind}_at_once)",
            _RETRY_AFTER_S,
        )

    def _require_share(self, call: _Call) -> None:
        """Raises Exhausted when the client of the call has more than its half."""
        greatest = self._settings.streams_at_once if call.streams else self._settings.calls_at_once
        kind = "streams" if call.streams else "calls"
        if self._calls_by_client[call.client, call.streams] > greatest // 2:
            raise Exhausted(
                f"this client has {greatest // 2:,} {kind} under way, half of requests.{kind}_at_once and the most for one"
                " client",
                _RETRY_AFTER_S,
            )
        if self._bytes_by_client[call.client] > self._settings.bytes_at_once // 2:
            raise Exhausted(
                f"requests of {self._settings.mib_at_once // 2:,} MiB of this client are being answered, half of"
                " requests.mib_at_once and the most for one client",
                _RETRY_AFTER_S,
            )

    def _came_from(self, call: _Call, client: str) -> None:
        if not call.client:
            call.client = client
            self._calls_by_client[client, call.streams] += 1
            self._bytes_by_client[client] += call.request_bytes
            self._require_share(call)

    def _ended(self, task: asyncio.Task[object]) -> None:
        call = self._calls.pop(task)
        self._streams -= call.streams
        self._hold(call, 0)
        call.over = True
        if call.client:
            _less(self._calls_by_client, (call.client, call.streams), 1)

    # ------------------------------------------------------------ bytes

    def _hold(self, call: _Call, request_bytes: int) -> None:
        """From now on the call holds so many; of a stream, those of its newest part."""
        more = request_bytes - call.request_bytes
        self._bytes += more
        if call.client:
            _less(self._bytes_by_client, call.client, -more)
        call.request_bytes = request_bytes

    def _weighed(
        self, deserialize: Callable[[bytes], Any] | None, method: _Method, call: _Call
    ) -> Callable[[bytes], Any] | None:
        """Reads a request when it is not too large, there is room for it, and it has no more elements than it may."""
        if deserialize is None:
            return None

        def deserialized(data: bytes) -> Any:
            size_bytes = len(data)
            if size_bytes > method.greatest_bytes:
                raise CallRefused(
                    grpc.StatusCode.RESOURCE_EXHAUSTED,
                    f"the request has {size_bytes:,} bytes, larger than max: {method.name} takes {method.greatest_bytes:,}"
                    " at a time; send less, or in parts",
                )
            if self._bytes - call.request_bytes + size_bytes > self._settings.bytes_at_once:
                raise Exhausted(
                    f"requests of {self._bytes / _MIB:,.0f} MiB are being answered here, and {self._settings.mib_at_once:,} MiB"
                    " is the most at a time (requests.mib_at_once)",
                    _RETRY_AFTER_S,
                )
            if not call.over:
                self._hold(call, size_bytes)
            if size_bytes > COUNTED_IN_BYTES and method.counted.fields:
                count_in_bytes(data, method.counted)
            request = deserialize(data)
            count_in_message(request, method.counted)
            return request

        return deserialized

    # ------------------------------------------------------------ behaviour

    def _admitted(self, behaviour: Callable[..., Any], method: _Method, call: _Call) -> Callable[..., Any]:
        """The method itself, once it is known whose call it is."""
        if inspect.isasyncgenfunction(behaviour):

            async def stream(request: Any, context: Any) -> AsyncIterator[Any]:
                self._came_from(call, _client_of(context))
                async for response in behaviour(request, context):
                    yield response

            return stream

        async def answer(request: Any, context: Any) -> Any:
            self._came_from(call, _client_of(context))
            if method.longest_s is None:
                return await behaviour(request, context)
            limit = asyncio.timeout(method.longest_s)
            try:
                async with limit:
                    return await behaviour(request, context)
            except TimeoutError:
                if limit.expired():
                    _end_late(method)
                raise

        return answer


def _client_of(context: Any) -> str:
    """Whoever shares a half: all callers of the same tenants, and one who reads everything, however many connections they open. Those who
    run the service (admins, operators, tiers), tasks, and whoever is not asked are told apart by their connections."""
    try:
        principal = present_principal()
    except LookupError:
        return str(context.peer())
    if principal.tenants is not None:
        return f"tenants {' '.join(sorted(principal.tenants))}"
    if principal.role is Role.READ_ONLY:
        return f"{principal.kind.value} {principal.credential}"
    return str(context.peer())


def _method(method: MethodDescriptor, settings: RequestSettings) -> _Method:
    streams = method.client_streaming or method.server_streaming
    return _Method(
        method.name,
        streams,
        greatest_request_bytes(method.full_name, in_parts=method.client_streaming),
        counted_fields(method.input_type),
        None if streams else LONGEST_CALL_S.get(method.full_name, settings.longest_call_real_s),
    )


def _refusing(refusal: Exhausted) -> Callable[..., Any]:
    async def refuse(_requests: object, _context: object) -> NoReturn:
        raise refusal

    return refuse


def _end_late(method: _Method) -> NoReturn:
    raise CallRefused(
        grpc.StatusCode.DEADLINE_EXCEEDED,
        f"{method.name} was not done within {method.longest_s:g} s, the longest that a call may take here"
        " (requests.longest_call_real_s); nothing of it was stored",
    )


_Key = TypeVar("_Key")


def _less(counter: Counter[_Key], key: _Key, amount: int) -> None:
    """So much less; what has come to nothing is forgotten."""
    counter[key] -= amount
    if not counter[key]:
        del counter[key]
