"""How long to wait for a server that has too much to do: as long as it says, and not for ever."""

from __future__ import annotations

import random

from topmast.errors import ResourceExhaustedError, TopmastError
from topmast.reconnection import Patience


class BusyServer:
    """The tries of one call. `next_wait_s` after each refusal, until it returns None.

    Waits as the server advises, up to a quarter longer at random so that clients do not come back at once, and longer with
    each try. Gives up after as many tries as a call has, or when the waits would add up to more than a call may take.
    """

    __slots__ = ("_patience", "_tries", "_waited_s")

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._tries = 1
        self._waited_s = 0.0

    def next_wait_s(self, failure: TopmastError) -> float | None:
        """Seconds to wait before the next try; None when there is to be none, or when another try would not help."""
        if not isinstance(failure, ResourceExhaustedError) or failure.retry_after_s is None:
            return None
        if self._tries >= self._patience.attempts:
            return None
        wait_s = failure.retry_after_s * random.uniform(1.0, 1.25) * self._tries
        if self._waited_s + wait_s > self._patience.timeout_s:
            return None
        self._tries += 1
        self._waited_s += wait_s
        return wait_s

    def told(self, failure: TopmastError) -> TopmastError:
        """The failure, with how long it was tried."""
        if self._tries > 1 and isinstance(failure, ResourceExhaustedError):
            tried = f" (tried {self._tries} times in {self._waited_s:.0f} s)"
            return type(failure)(
                failure.sentence + tried,
                code=failure.code,
                violations=failure.violations,
                retry_after_s=failure.retry_after_s,
                diagnosis=failure.diagnosis,
            )
        return failure
