"""What a service logs, as something to wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import structlog
from structlog.typing import EventDict


@contextmanager
def logged(told: str, *, field: str = "error") -> Iterator[asyncio.Event]:
    """Set when an entry of the log has these words in that field."""
    heard = asyncio.Event()

    def hear(_logger: object, _method: str, entry: EventDict) -> EventDict:
        if told in str(entry.get(field)):
            heard.set()
        return entry

    processors = structlog.get_config()["processors"]
    processors.insert(0, hear)
    try:
        yield heard
    finally:
        processors.remove(hear)
