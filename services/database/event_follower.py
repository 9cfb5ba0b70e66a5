"""Follows the event log: what is in it already, then whatever is added, without gap or repetition."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from functools import partial

from services.database import event_store
from services.database.channels import EVENT_CHANNEL
from services.database.engine import Database
from services.database.event_store import EVERYTHING, EventFilter, EventPage

_PAGE = 1_000
_LOOK_INTERVAL_REAL_S = 1.0
"""The writer may have ended before it could wake its listeners."""


async def follow(
    database: Database, after_sequence: int, wanted: EventFilter = EVERYTHING
) -> AsyncGenerator[EventPage]:
    """Pages of the log after a place in it, for ever; pages without events are left out.

    Goes on after interruptions; raises DatabaseUnavailable when one lasts too long. Close it when done
    (`contextlib.aclosing`).
    """
    async with database.listen(EVENT_CHANNEL) as subscription:
        while True:
            read_on = partial(event_store.read, after_sequence=after_sequence, limit=_PAGE, wanted=wanted)
            page = await database.run(read_on)
            after_sequence = page.through
            if page.events:
                yield page
            if page.complete:
                await subscription.wait(_LOOK_INTERVAL_REAL_S)
