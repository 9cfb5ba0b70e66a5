"""A channel whose calls say who is calling: each has the token in its metadata.

Not by an interceptor of gRPC: those of asyncio put queues and tasks of their own between a stream and its reader.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self, TypeVar, cast

AUTHORIZATION = "authorization"

_Channel = TypeVar("_Channel")


def authorized(channel: _Channel, token: Callable[[], str | None]) -> _Channel:
    """The channel, with the token that there is at the time of each call; None: it goes without."""
    return cast(_Channel, _AuthorizedChannel(channel, token))


class _AuthorizedChannel:
    """As the channel that it hands everything on to."""

    def __init__(self, channel: Any, token: Callable[[], str | None]) -> None:
        self._channel = channel
        self._token = token

    def unary_unary(self, *args: Any, **options: Any) -> Any:
        return self._with_token(self._channel.unary_unary(*args, **options))

    def unary_stream(self, *args: Any, **options: Any) -> Any:
        return self._with_token(self._channel.unary_stream(*args, **options))

    def stream_unary(self, *args: Any, **options: Any) -> Any:
        return self._with_token(self._channel.stream_unary(*args, **options))

    def stream_stream(self, *args: Any, **options: Any) -> Any:
        return self._with_token(self._channel.stream_stream(*args, **options))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)

    async def __aenter__(self) -> Self:
        await self._channel.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> Any:
        return await self._channel.__aexit__(*error)

    def _with_token(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, metadata: Any = None, **options: Any) -> Any:
            token = self._token()
            if token is not None:
                metadata = (*(metadata or ()), (AUTHORIZATION, f"Bearer {token}"))
            return method(*args, metadata=metadata, **options)

        return call
