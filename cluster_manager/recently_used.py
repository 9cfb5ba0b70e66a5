"""A bounded memory: what was used least recently gives way."""

from __future__ import annotations

from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class RecentlyUsed(Generic[Key, Value]):
    """A mapping that keeps at least the entries that were used last, and at most twice as many.

    In two generations: what is used is young. When there are enough young ones they become the old generation, and
    what is still old by then is forgotten. So a look costs what a look into a dict costs, and no list is kept in order.
    """

    __slots__ = ("_most", "_old", "_young")

    def __init__(self, most: int) -> None:
        """Keeps the `most` entries that were used last."""
        self._most = most
        self._young: dict[Key, Value] = {}
        self._old: dict[Key, Value] = {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def get(self, key: Key) -> Value | None:
        """The value, which is used by that; None when there is none."""
        value = self._young.get(key)
        if value is None and self._old:
            value = self._old.pop(key, None)
            if value is not None:
                self.put(key, value)
        return value

    def put(self, key: Key, value: Value) -> None:
        """Keeps the value from now on."""
        self._old.pop(key, None)
        self._young[key] = value
        if len(self._young) >= self._most:
            self._old, self._young = self._young, {}

    def clear(self) -> None:
        """Forgets everything."""
        self._young.clear()
        self._old.clear()
