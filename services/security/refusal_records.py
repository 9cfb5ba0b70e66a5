"""How many refused calls of one caller are written down: a loop of somebody who may do nothing must not fill the disk."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from services.security.principal import Principal

AT_ONCE: Final = 60
"""So many in a row, and after that one a second."""

_MOST_CALLERS: Final = 4_096


@dataclass(slots=True)
class _Caller:
    left: float
    at_s: float
    skipped: int = 0


class RefusalRecords:
    """Of each caller, since this process has begun."""

    def __init__(self, seconds: Callable[[], float] = time.monotonic) -> None:
        """`seconds` never go back."""
        self._seconds = seconds
        self._callers: OrderedDict[tuple[str, str, str], _Caller] = OrderedDict()

    def admit(self, principal: Principal) -> int | None:
        """None: this one is not written down. Otherwise how many before it were not, since the last that was."""
        key = (principal.kind.value, principal.name, principal.credential)
        now_s = self._seconds()
        caller = self._callers.setdefault(key, _Caller(AT_ONCE, now_s))
        self._callers.move_to_end(key)
        while len(self._callers) > _MOST_CALLERS:
            self._callers.popitem(last=False)
        caller.left = min(float(AT_ONCE), caller.left + now_s - caller.at_s)
        caller.at_s = now_s
        if caller.left < 1.0:
            caller.skipped += 1
            return None
        caller.left -= 1.0
        skipped, caller.skipped = caller.skipped, 0
        return skipped
