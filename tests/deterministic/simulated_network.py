"""gRPC between the processes of a simulation: the tiers' own servers, interceptors and stubs, and messages that travel by a seed.

Put in the place of `grpc.aio.server` and `grpc.aio.insecure_channel`. Requests and responses travel as bytes. What goes from one
process to another arrives in the order in which it was sent, or the connection breaks. What was sent before it broke may still
lie in the receiver's socket, and is read long after its caller, or another one, has sent other requests on another connection.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, NoReturn, Self

import grpc
import numpy as np

from tests.deterministic.simulation import Moment, SimulatedLoop, SimulatedWorld

_SILENCE_S = 10.0
"""After so long a caller that hears nothing, because the network swallows everything, takes the connection for broken."""

_LATEST_S = 12.0
"""So long after it was sent a request may be read whose connection broke: leases have changed hands by then."""

_LATE_SHARE_OF_INTERRUPTED = 0.7
"""Of requests whose caller is halted or killed, so that somebody else takes over meanwhile."""

_IN_ORDER_S = 1e-6
"""Loops do not say what comes first of what is due at the same moment."""

_PEER = "ipv4:127.0.0.1:1"


@dataclass
class NetworkWeather:
    """What the simulation does to all calls at the moment."""

    latency_s: float = 0.001
    apart: frozenset[str] = frozenset()
    """The names of processes that hear nothing of the others, and the others nothing of them."""
    late: float = 0.0
    """The share of requests whose connection breaks at once, and that are read, and carried out, later all the same."""


class _HandlerCallDetails(NamedTuple):
    method: str
    invocation_metadata: tuple[tuple[str, str], ...]


@dataclass
class SimulatedNetwork:
    """Who listens where, and which calls are on their way."""

    world: SimulatedWorld
    rng: np.random.Generator
    weather: NetworkWeather = field(default_factory=NetworkWeather)
    reached: Callable[[SimulatedLoop, Moment], bool] = lambda _loop, _moment: False
    """Told whenever a process comes to a moment at which it may be interrupted; says whether it was."""
    servers: dict[str, SimulatedGrpcServer] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    came_late: Counter[str] = field(default_factory=Counter)
    """By method: requests that were carried out when nobody waited for them."""

    def server(self, interceptors: Sequence[Any] = (), **_options: Any) -> SimulatedGrpcServer:
        """In the place of `grpc.aio.server`."""
        return SimulatedGrpcServer(self, tuple(interceptors))

    def channel(self, address: str, **_options: Any) -> SimulatedChannel:
        """In the place of `grpc.aio.insecure_channel`."""
        return SimulatedChannel(self, address)

    def are_apart(self, one: SimulatedLoop, other: SimulatedLoop) -> bool:
        names = {str(one.process), str(other.process)}
        return len(names) == 2 and len(names & self.weather.apart) == 1

    def latency_s(self) -> float:
        return float(self.rng.exponential(self.weather.latency_s))

    def disconnect(self, loops: Sequence[SimulatedLoop]) -> None:
        """These processes were killed: nobody listens there, and their calls break."""
        self.servers = {address: server for address, server in self.servers.items() if server.loop not in loops}
        for call in list(self.calls):
            if call.client_loop in loops:
                call.caller_left()
            elif call.server is not None and call.server.loop in loops:
                call.break_off("the connection was closed")

    def cut(self) -> None:
        """All connections break."""
        for call in list(self.calls):
            call.break_off("the connection was cut")


class SimulatedGrpcServer:
    """The server of one tier."""

    def __init__(self, network: SimulatedNetwork, interceptors: tuple[Any, ...]) -> None:
        self.network = network
        self._interceptors = interceptors
        self._generic: list[Any] = []
        self._methods: dict[str, Any] = {}
        self._address = ""
        self.loop: SimulatedLoop
        self.answering: set[asyncio.Task[None]] = set()

    def add_generic_rpc_handlers(self, handlers: Sequence[Any]) -> None:
        self._generic += handlers

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        self._methods |= {f"/{service}/{name}": handler for name, handler in handlers.items()}

    def add_insecure_port(self, listen: str) -> int:
        if listen in self.network.servers:
            raise RuntimeError(f"{listen} is taken")
        self._address = listen
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        self.loop = loop
        return int(listen.rpartition(":")[2])

    async def start(self) -> None:
        self.network.servers[self._address] = self

    async def stop(self, grace_s: float | None) -> None:
        if self.network.servers.get(self._address) is self:
            del self.network.servers[self._address]
        if self.answering and grace_s:
            await asyncio.wait(self.answering, timeout=grace_s)
        for call in list(self.network.calls):
            if call.server is self:
                call.break_off("the server stops")
        if self.answering:
            for task in list(self.answering):
                task.cancel()
            await asyncio.wait(self.answering)

    async def handler(self, details: _HandlerCallDetails) -> Any:
        """The method with everything that stands before it; None: there is none."""

        async def find(asked: _HandlerCallDetails) -> Any:
            found = self._methods.get(asked.method)
            return found or next((it for one in self._generic if (it := one.service(asked)) is not None), None)

        continuation: Callable[[Any], Any] = find
        for interceptor in reversed(self._interceptors):
            continuation = partial(interceptor.intercept_service, continuation)
        return await continuation(details)


class _Context:
    """What a method is told of its call."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._code: grpc.StatusCode | None = None
        self._details = ""
        self.trailing: tuple[tuple[str, Any], ...] = ()

    def peer(self) -> str:
        return _PEER

    def auth_context(self) -> dict[str, Any]:
        return {}

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return self._call.metadata

    def time_remaining(self) -> float | None:
        return None if self._call.until_s is None else max(0.0, self._call.until_s - self._call.network.world.now_s)

    def code(self) -> Any:
        return self._code

    def details(self) -> str:
        return self._details

    def set_trailing_metadata(self, trailing: tuple[tuple[str, Any], ...]) -> None:
        self.trailing = trailing

    def cancelled(self) -> bool:
        return self._call.is_over

    def done(self) -> bool:
        return self._call.is_over

    def add_done_callback(self, _callback: Callable[..., None]) -> None:
        """Nobody is told: calls end with their task."""

    async def write(self, response: Any) -> None:
        self._call.respond(response)

    async def abort_with_status(self, status: Any) -> NoReturn:
        await self.abort(status.code, status.details, status.trailing_metadata)

    async def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: Any = ()) -> NoReturn:
        self._code, self._details, self.trailing = code, details, tuple(trailing_metadata)
        raise grpc.aio.AbortError


class SimulatedChannel:
    """To one address."""

    def __init__(self, network: SimulatedNetwork, address: str) -> None:
        self._network = network
        self._address = address

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.close()

    async def close(self, _grace_s: float | None = None) -> None:
        """What is open goes on until its caller leaves."""

    def unary_unary(self, method: str, **serializers: Any) -> Callable[..., Call]:
        return self._caller(method, streams=False, **serializers)

    def unary_stream(self, method: str, **serializers: Any) -> Callable[..., Call]:
        return self._caller(method, streams=True, **serializers)

    def stream_unary(self, method: str, **_serializers: Any) -> Callable[..., NoReturn]:
        return partial(_not_simulated, method)

    def stream_stream(self, method: str, **_serializers: Any) -> Callable[..., NoReturn]:
        return partial(_not_simulated, method)

    def _caller(
        self,
        method: str,
        *,
        streams: bool,
        request_serializer: Callable[[Any], bytes],
        response_deserializer: Callable[[bytes], Any],
        **_options: Any,
    ) -> Callable[..., Call]:
        def call(request: Any, timeout: float | None = None, metadata: Any = (), **_more: Any) -> Call:
            made = Call(
                self._network, self._address, method, request_serializer(request), response_deserializer, streams
            )
            made.metadata = tuple(metadata or ())
            made.begin(timeout)
            return made

        return call


def _not_simulated(method: str, *_arguments: Any, **_options: Any) -> NoReturn:
    raise NotImplementedError(f"{method}: requests that are streams are not simulated")


class Call:
    """One call, as its caller has it: awaited, or read as a stream."""

    def __init__(
        self,
        network: SimulatedNetwork,
        address: str,
        method: str,
        request: bytes,
        deserialize: Callable[[bytes], Any],
        streams: bool,
    ) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        self.network, self.client_loop = network, loop
        self.metadata: tuple[tuple[str, str], ...] = ()
        self.until_s: float | None = None
        self.server: SimulatedGrpcServer | None = None
        self.is_over = False
        self._address, self._method, self._request, self._deserialize = address, method, request, deserialize
        self._streams = streams
        self._ended: asyncio.Future[None] = loop.create_future()
        self._responses: list[bytes] = []
        self._changed = asyncio.Event()
        self._error: grpc.aio.AioRpcError | None = None
        self._task: asyncio.Task[None] | None = None
        self._arrives_s = 0.0
        self._serialize: Callable[[Any], bytes] = bytes

    # ------------------------------------------------------------ its way

    def begin(self, timeout_s: float | None) -> None:
        self.network.calls.append(self)
        if timeout_s is not None:
            self.until_s = self.network.world.now_s + timeout_s
            self.client_loop.call_later(timeout_s, self._fail, grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")
        server = self.network.servers.get(self._address)
        if server is None or server.loop not in self.network.world.loops:
            later_s = self.network.latency_s()
            self.client_loop.call_later(later_s, self._fail, grpc.StatusCode.UNAVAILABLE, "connection refused")
            return
        self.server = server
        late = self.network.weather.late
        if self.network.reached(self.client_loop, Moment.CALL):
            late = max(late, _LATE_SHARE_OF_INTERRUPTED)
        if not self._streams and late and self.network.rng.random() < late:
            server.loop.call_later(float(self.network.rng.uniform(0.0, _LATEST_S)), self._answer_late, server)
            self.client_loop.call_later(
                self.network.latency_s(), self._fail, grpc.StatusCode.UNAVAILABLE, "the connection was closed"
            )
            return
        self._send(server.loop, partial(self._answer, server))

    def _send(self, to: SimulatedLoop, deliver: Callable[[], None]) -> None:
        """In order; what the network swallows breaks the connection after a while."""
        assert self.server is not None
        world = self.network.world
        if self.network.are_apart(self.client_loop, self.server.loop):
            self.client_loop.call_later(_SILENCE_S, self._fail, grpc.StatusCode.UNAVAILABLE, "keepalive timeout")
            return
        self._arrives_s = max(self._arrives_s + _IN_ORDER_S, world.now_s + self.network.latency_s())
        if not to.is_closed():
            to.call_at(self._arrives_s, deliver)

    def _answer(self, server: SimulatedGrpcServer) -> None:
        if not self.is_over:
            self._task = self._begin_to_handle(server)

    def _answer_late(self, server: SimulatedGrpcServer) -> None:
        """Nobody waits for it, and nobody can take it back."""
        if self.network.servers.get(self._address) is server:
            self.network.came_late[self._method.rpartition("/")[2]] += 1
            _ = self._begin_to_handle(server)

    def _begin_to_handle(self, server: SimulatedGrpcServer) -> asyncio.Task[None]:
        task = server.loop.create_task(self._handle(server))
        server.answering.add(task)
        task.add_done_callback(server.answering.discard)
        return task

    async def _handle(self, server: SimulatedGrpcServer) -> None:
        context = _Context(self)
        try:
            handler = await server.handler(_HandlerCallDetails(self._method, self.metadata))
            if handler is None:
                self._finish(grpc.StatusCode.UNIMPLEMENTED, "Method not found!", ())
                return
            request = handler.request_deserializer(self._request)
            self._serialize = handler.response_serializer
            if not self._streams:
                self.respond(await handler.unary_unary(request, context))
            else:
                responses = handler.unary_stream(request, context)
                if inspect.isawaitable(responses):
                    await responses
                else:
                    async for response in responses:
                        self.respond(response)
            self._finish(grpc.StatusCode.OK, "", ())
        except grpc.aio.AbortError:
            self._finish(context.code(), context.details(), context.trailing)
        except asyncio.CancelledError:
            self._finish(grpc.StatusCode.UNAVAILABLE, "the server stops", ())
            raise

    def respond(self, response: Any) -> None:
        self._send(self.client_loop, partial(self._take, self._serialize(response)))

    def _finish(self, code: grpc.StatusCode, details: str, trailing: Any) -> None:
        if not self.is_over:
            self._send(self.client_loop, partial(self._end, code, details, trailing))

    def break_off(self, details: str) -> None:
        """The connection is gone: the caller sees it now, and the server too."""
        if not self.client_loop.is_closed():
            self.client_loop.call_soon(self._fail, grpc.StatusCode.UNAVAILABLE, details)
        self._cancel_at_server()

    def caller_left(self) -> None:
        """Nobody waits for an answer any more."""
        self._over()
        self._cancel_at_server()

    def _cancel_at_server(self) -> None:
        task = self._task
        if task is not None and not task.done() and not task.get_loop().is_closed():
            task.get_loop().call_soon(task.cancel)

    # ------------------------------------------------------------ at the caller

    def _take(self, response: bytes) -> None:
        if not self.is_over:
            self._responses.append(response)
            self._changed.set()

    def _fail(self, code: grpc.StatusCode, details: str) -> None:
        if not self.is_over:
            self._end(code, details, ())
            self._cancel_at_server()

    def _end(self, code: grpc.StatusCode, details: str, trailing: Any) -> None:
        if self.is_over:
            return
        if code is not grpc.StatusCode.OK:
            metadata = grpc.aio.Metadata(*((key, value) for key, value in trailing or ()))
            self._error = grpc.aio.AioRpcError(code, grpc.aio.Metadata(), metadata, details)
        self._over()
        self._changed.set()
        if not self._ended.done():
            self._ended.set_result(None)

    def _over(self) -> None:
        self.is_over = True
        if self in self.network.calls:
            self.network.calls.remove(self)

    def cancel(self) -> bool:
        if self.is_over:
            return False
        self.caller_left()
        self._error = grpc.aio.AioRpcError(grpc.StatusCode.CANCELLED, grpc.aio.Metadata(), grpc.aio.Metadata(), "")
        self._changed.set()
        if not self._ended.done():
            self._ended.set_result(None)
        return True

    def __await__(self) -> Generator[Any, None, Any]:
        return self._response().__await__()

    async def _response(self) -> Any:
        try:
            await self._ended
        except asyncio.CancelledError:
            self.cancel()
            raise
        if self._error is not None:
            raise self._error
        return self._deserialize(self._responses[0])

    async def __aiter__(self) -> AsyncIterator[Any]:
        try:
            while True:
                while self._responses:
                    yield self._deserialize(self._responses.pop(0))
                if self.is_over:
                    if self._error is not None:
                        raise self._error
                    return
                self._changed.clear()
                await self._changed.wait()
        except asyncio.CancelledError:
            self.cancel()
            raise
