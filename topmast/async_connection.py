"""One way of calling servers, for asyncio: channels, errors, streams that are taken up again.

connection.py is the same for the client that waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Protocol, TypeVar

import grpc

from topmast.channel import channel_options
from topmast.connection import Patience, may_resume
from topmast.errors import TopmastError, UnavailableError, error_from_call
from topmast.reconnection import Reconnection

Request = TypeVar("Request")
Response = TypeVar("Response")
Message = TypeVar("Message")
Received = TypeVar("Received", covariant=True)


class AsyncMessageStream(Protocol[Received]):
    """A call that answers with many messages."""

    def __aiter__(self) -> AsyncIterator[Received]: ...

    def cancel(self) -> object: ...


class AsyncConnection:
    """Channels to servers, each opened when it is first needed, on the event loop that is running then."""

    def __init__(self, credentials: grpc.ChannelCredentials | None, patience: Patience) -> None:
        self._credentials = credentials
        self._patience = patience
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._closed = False

    async def close(self) -> None:
        """Ends all calls that are under way."""
        self._closed = True
        channels = list(self._channels.values())
        self._channels.clear()
        for channel in channels:
            await channel.close()

    def refuse_when_closed(self) -> None:
        """Raises TopmastError when the connection was closed."""
        if self._closed:
            raise TopmastError("the client is closed", code=grpc.StatusCode.CANCELLED)

    def channel(self, address: str) -> grpc.aio.Channel:
        """The channel to a server; raises TopmastError when the connection was closed."""
        self.refuse_when_closed()
        channel = self._channels.get(address)
        if channel is None:
            options = channel_options(address, self._patience.attempts)
            channel = (
                grpc.aio.secure_channel(address, self._credentials, options)
                if self._credentials
                else grpc.aio.insecure_channel(address, options)
            )
            self._channels[address] = channel
        return channel

    async def call(
        self, method: grpc.aio.UnaryUnaryMultiCallable[Request, Response], request: Request, peer: str
    ) -> Response:
        """The answer; raises the TopmastError that says what went wrong. `peer` is the server's name in its sentence."""
        try:
            return await method(request, timeout=self._patience.timeout_s)
        except grpc.RpcError as error:
            raise error_from_call(error, peer) from error

    async def stream(
        self, begin: Callable[[], Awaitable[AsyncMessageStream[Message]]], peer: str, *, endless: bool
    ) -> AsyncGenerator[Message, None]:
        """Messages of a stream. `begin` opens it, and opens it again when it broke off.

        Whoever opens it again sees to it that it continues where it was. An endless stream is also taken up again
        when the server ended it in order.
        """
        reconnection = Reconnection(self._patience.patience_s)
        while True:
            stream: AsyncMessageStream[Message] | None = None
            try:
                stream = await begin()
                async for message in stream:
                    reconnection.succeeded()
                    yield message
                failure: TopmastError = UnavailableError(f"{peer} ended the stream")
                if not endless:
                    return
            except grpc.RpcError as error:
                failure = error_from_call(error, peer)
                failure.__cause__ = error
            except UnavailableError as error:
                failure = error
            finally:
                if stream is not None:
                    stream.cancel()
            wait_s = reconnection.next_wait_s() if may_resume(failure) and not self._closed else None
            if wait_s is None:
                raise failure
            await asyncio.sleep(wait_s)
