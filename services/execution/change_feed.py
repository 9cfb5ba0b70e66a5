"""Publishes every change to every reader: none is lost, no reader polls, a slow one costs little memory.

A change has a slot, for example the attempt and its phase. While a reader has not yet fetched the change of a slot, a
newer one of the same slot takes its place in the line; changes of different slots are all delivered, in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from types import TracebackType
from typing import Generic, Self, TypeVar

ChangeT = TypeVar("ChangeT")


class ChangeFeed(Generic[ChangeT]):
    """Where changes are published. `slot_of` says which changes may replace each other."""

    def __init__(self, slot_of: Callable[[ChangeT], Hashable]) -> None:
        self._slot_of = slot_of
        self._subscriptions: list[ChangeReader[ChangeT]] = []

    def publish(self, change: ChangeT) -> None:
        slot = self._slot_of(change)
        for subscription in self._subscriptions:
            subscription.put(slot, change)

    def attach(self, subscription: ChangeReader[ChangeT]) -> None:
        self._subscriptions.append(subscription)

    def detach(self, subscription: ChangeReader[ChangeT]) -> None:
        self._subscriptions.remove(subscription)


class ChangeReader(Generic[ChangeT]):
    """What one reader has not fetched yet, of one feed or of several.

    A context manager: leaving it unsubscribes. Only for use on the event loop of the publishers.
    """

    def __init__(self, *feeds: ChangeFeed[ChangeT]) -> None:
        self._feeds = feeds
        self._pending: dict[Hashable, ChangeT] = {}
        self._something = asyncio.Event()
        self._finished = False
        for feed in feeds:
            feed.attach(self)

    def put(self, slot: Hashable, change: ChangeT) -> None:
        # Replaced in place: a reader that lags sees the newest change of a slot where the oldest unread one stood.
        self._pending[slot] = change
        self._something.set()

    async def next(self) -> tuple[ChangeT, ...]:
        """Everything since the last call, oldest first; waits until there is something. Empty: it was finished."""
        await self._something.wait()
        return self.take()

    def finish(self) -> None:
        """Ends the wait of its reader: from now on `next` returns at once."""
        self._finished = True
        self._something.set()

    def take(self) -> tuple[ChangeT, ...]:
        """The same without waiting: empty when nothing has changed."""
        changes = tuple(self._pending.values())
        self._pending.clear()
        if not self._finished:
            self._something.clear()
        return changes

    def close(self) -> None:
        for feed in self._feeds:
            feed.detach(self)
        self._feeds = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
