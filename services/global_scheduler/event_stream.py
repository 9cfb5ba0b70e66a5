"""The event log as a stream of messages."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial

from services.database import event_store
from services.database.engine import Database
from services.database.event_follower import follow
from services.database.event_store import EventFilter, EventPage
from services.wire.events import event_to_proto
from topmast.v1 import event_pb2

_PAGE = 1_000


async def event_stream(
    database: Database, after_sequence: int, wanted: EventFilter, *, endless: bool
) -> AsyncGenerator[event_pb2.Event]:
    """Events after a place in the log; with `endless` also those still to come.

    At most a page of them is in memory: the next one is read when this one has been sent.
    """
    pages = follow if endless else _until_the_end
    async with aclosing(pages(database, after_sequence, wanted)) as read:
        async for page in read:
            for stored in page.events:
                yield event_to_proto(stored.event, stored.sequence)


async def _until_the_end(database: Database, after_sequence: int, wanted: EventFilter) -> AsyncGenerator[EventPage]:
    complete = False
    while not complete:
        page = await database.run(
            partial(event_store.read, after_sequence=after_sequence, limit=_PAGE, wanted=wanted), snapshot=True
        )
        after_sequence, complete = page.through, page.complete
        yield page
