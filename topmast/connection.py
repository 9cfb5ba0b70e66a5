# Generated from async_connection.py by `make client`; never edited.
"""One way of calling servers, for programs that wait: channels, errors, streams that are taken up again."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from typing import Protocol, TypeVar

import grpc

from topmast.authorized_channel import authorized
from topmast.busy_server import BusyServer
from topmast.channel import channel_options
from topmast.errors import NotFoundError, TopmastError, UnavailableError, error_from_call
from topmast.messages import refused, shown
from topmast.reconnection import Patience, Reconnection, may_resume
from topmast.targets import channel_target
from topmast.token import TokenSource
from topmast.waiting import ChannelClosed, ClosedFlag, Lock

Request = TypeVar("Request")
Response = TypeVar("Response")
Message = TypeVar("Message")
Received = TypeVar("Received", covariant=True)


class MessageStream(Protocol[Received]):
    """A call that answers with many messages."""

    def __iter__(self) -> Iterator[Received]: ...

    def cancel(self) -> object: ...


class Connection:
    """Channels to servers, each opened when it is first needed. Threads may share it."""

    def __init__(self, credentials: grpc.ChannelCredentials | None, patience: Patience, token: TokenSource) -> None:
        """`token` is sent with each call."""
        if credentials is not None and not isinstance(credentials, grpc.ChannelCredentials):
            raise refused("credentials", f"must be grpc.ChannelCredentials, not {shown(credentials)}")
        self._credentials = credentials
        self._patience = patience
        self._token = token
        self._channels: dict[str, grpc.Channel] = {}
        self._lock = Lock()
        self._closed = ClosedFlag()

    def sibling(self, attempts: int | None = None) -> Connection:
        """Another connection of the same kind, which can be closed by itself; `attempts`: each call is tried so often."""
        patience = self._patience if attempts is None else replace(self._patience, attempts=attempts)
        return Connection(self._credentials, patience, self._token)

    def close(self) -> None:
        """Ends all calls that are under way."""
        with self._lock:
            self._closed.set()
            channels = tuple(self._channels.values())
            self._channels.clear()
        for channel in channels:
            channel.close()

    def refuse_when_closed(self) -> None:
        """Raises TopmastError when the connection was closed."""
        if self._closed.is_set():
            raise TopmastError("the client is closed", code=grpc.StatusCode.CANCELLED)

    def channel(self, address: str) -> grpc.Channel:
        """The channel to a server, or to whichever of several serves; raises TopmastError when the connection was closed."""
        with self._lock:
            self.refuse_when_closed()
            channel = self._channels.get(address)
            if channel is None:
                options = channel_options(address, self._patience.attempts, secured=self._credentials is not None)
                target = channel_target(address)
                channel = (
                    grpc.secure_channel(target, self._credentials, options)
                    if self._credentials
                    else grpc.insecure_channel(target, options)
                )
                channel = authorized(channel, self._token)
                self._channels[address] = channel
            return channel

    def call(self, method: grpc.UnaryUnaryMultiCallable[Request, Response], request: Request, peer: str) -> Response:
        """The answer; raises the TopmastError that says what went wrong. `peer` is the server's name in its sentence.

        A server that has too much to do, and says when to come back, is asked again then, as often as a call is tried.
        """
        busy = BusyServer(self._patience)
        while True:
            try:
                return method(request, timeout=self._patience.timeout_s)
            except grpc.RpcError as error:
                failure = error_from_call(error, peer)
                wait_s = busy.next_wait_s(failure)
                if wait_s is None:
                    raise busy.told(failure) from error
            except ChannelClosed:
                self.refuse_when_closed()
                raise
            # Closing the connection ends the wait, too.
            if self._closed.wait(wait_s):
                raise busy.told(failure)

    def persist(self, attempt: Callable[[Reconnection], Response]) -> Response:
        """What the attempt returns, which is made again while the server is away. It raises TopmastError.

        The attempt says when it came further than the one before: then the patience begins anew.
        """
        reconnection = Reconnection(self._patience.patience_s)
        while True:
            try:
                return attempt(reconnection)
            except TopmastError as failure:
                wait_s = reconnection.next_wait_s() if may_resume(failure) else None
                # Closing the connection ends the wait, too.
                if wait_s is None or self._closed.wait(wait_s):
                    raise

    def stream(
        self,
        begin: Callable[[], MessageStream[Message]],
        peer: str,
        *,
        endless: bool,
        may_come: bool = False,
    ) -> Generator[Message, None, None]:
        """Messages of a stream. `begin` opens it, and opens it again when it broke off.

        Each time, `begin` asks for what has not arrived yet. An endless stream is also taken up again when the server
        ended it in order; one that `may_come` when the server does not know yet what is asked for.
        """
        reconnection = Reconnection(self._patience.patience_s)
        while True:
            stream: MessageStream[Message] | None = None
            try:
                stream = begin()
                for message in stream:
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
            except ChannelClosed:
                self.refuse_when_closed()
                raise
            finally:
                if stream is not None:
                    stream.cancel()
            resumes = may_resume(failure) or (may_come and isinstance(failure, NotFoundError))
            wait_s = reconnection.next_wait_s() if resumes else None
            # Closing the connection ends the wait, too.
            if wait_s is None or self._closed.wait(wait_s):
                raise failure
