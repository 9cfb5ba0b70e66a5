"""Long work on an event loop, cut into turns: leases are kept, and calls answered, between two of them."""

from __future__ import annotations

import asyncio
import time
from typing import Final

_LONGEST_REAL_S: Final = 0.01


class Turns:
    """The turns of one piece of work, from its beginning on."""

    __slots__ = ("_began_real_s",)

    def __init__(self) -> None:
        self._began_real_s = time.monotonic()

    async def give_way(self) -> None:
        """Lets everything else on the loop go on, if this turn has taken long; costs next to nothing if not.

        Call it between two steps after each of which others may see what is done so far.
        """
        if time.monotonic() - self._began_real_s > _LONGEST_REAL_S:
            await asyncio.sleep(0)
            self._began_real_s = time.monotonic()
