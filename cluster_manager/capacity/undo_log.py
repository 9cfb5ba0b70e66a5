"""How tentative changes are undone: each change notes its inverse, and the inverses run backwards."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TypeAlias

Undo: TypeAlias = Callable[[], None]


class UndoLog:
    """The inverses of the changes made since the outermost tentative stretch began; outside of one, nothing is noted."""

    __slots__ = ("_depth", "_undos", "tentative")

    def __init__(self) -> None:
        self._undos: list[Undo] = []
        self._depth = 0
        self.tentative = False
        """Whether what happens now will be undone, or is the undoing itself. Read only: it is asked at every change."""

    @property
    def length(self) -> int:
        """How many changes are noted."""
        return len(self._undos)

    def note(self, undo: Undo) -> None:
        """Keeps the inverse of a change that was just made, if it is tentative."""
        if self.tentative:
            self._undos.append(undo)

    def begin(self) -> int:
        """A tentative stretch begins; hand the returned mark to `end`."""
        self._depth += 1
        self.tentative = True
        return len(self._undos)

    def end(self, mark: int) -> None:
        """Undoes all changes since the mark, the latest first. Inverses may note their own inverses: these are dropped."""
        undone = self._undos[mark:]
        for undo in reversed(undone):
            undo()
        del self._undos[mark:]
        self._depth -= 1
        self.tentative = self._depth > 0


class Tentatively(AbstractContextManager[None]):
    """A tentative stretch as a context: undone at exit, also after an exception."""

    __slots__ = ("_journal", "_mark")

    def __init__(self, journal: UndoLog) -> None:
        self._journal = journal
        self._mark = 0

    def __enter__(self) -> None:
        self._mark = self._journal.begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._journal.end(self._mark)
