"""Ctrl-C as a wish: what runs ends in good order. A second one ends it at once."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Self


class Interruption:
    """While entered, the first SIGINT only sets `asked`; the next one does what it did before. Main thread only."""

    def __init__(self) -> None:
        self.asked = False
        self._before: signal.Handlers | int | None = None

    def __enter__(self) -> Self:
        before = signal.getsignal(signal.SIGINT)
        # None: it was not Python that installed it, so Python cannot put it back.
        self._before = signal.default_int_handler if before is None else before  # type: ignore[assignment]  # a callable is one too
        signal.signal(signal.SIGINT, self._ask)
        return self

    def __exit__(self, *_failure: object) -> None:
        self._restore()

    def _ask(self, _signal: int, _frame: FrameType | None) -> None:
        self.asked = True
        self._restore()

    def _restore(self) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            self._before = None
