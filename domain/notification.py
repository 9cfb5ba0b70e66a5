"""Whom a workload wants to be told of what happens to it, and of which events that is (decision 095)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from urllib.parse import urlsplit

from domain.events import Event, EventKind, EvictionCause


class Occasion(StrEnum):
    """Of what users may want to be told."""

    STARTED = "started"
    """An attempt has started; each one."""
    ENDED = "ended"
    """The workload completed, failed for good, or was cancelled."""
    PREEMPTED = "preempted"
    """An attempt had to leave, for whatever cause, and the workload goes on."""


@dataclass(frozen=True, slots=True)
class Notification:
    """One receiver; `events` empty: it is told of all occasions."""

    url: str
    events: tuple[str, ...] = ()

    @property
    def occasions(self) -> tuple[str, ...]:
        """Of what it is told."""
        return self.events or tuple(Occasion)


TOLD_KINDS: Final = (
    EventKind.STARTED,
    EventKind.EVICTED,
    EventKind.COMPLETED,
    EventKind.FAILED,
    EventKind.CANCELLED,
)
"""No other event is ever an occasion."""

_ENDS: Final = frozenset({EventKind.COMPLETED, EventKind.CANCELLED})
_ENDS_IT: Final = frozenset({EvictionCause.CANCELLED.value, EvictionCause.TIME_LIMIT.value})
"""Causes after which the workload does not go on: another event says that it has ended."""


def occasion_of(event: Event) -> Occasion | None:
    """What the event is to who wants to be told; None: nothing."""
    if event.event is EventKind.STARTED:
        return Occasion.STARTED
    if event.event in _ENDS or (event.event is EventKind.FAILED and event.details.get("final") is True):
        return Occasion.ENDED
    if event.event is EventKind.EVICTED and event.details.get("cause") not in _ENDS_IT:
        return Occasion.PREEMPTED
    return None


def host_of(url: str) -> str:
    """The host of an acceptable URL, with the port that it says."""
    return urlsplit(url).netloc.rpartition("@")[2].lower()


def shown_url(url: str) -> str:
    """What may be shown of an acceptable URL: who it is, but neither user, path nor query, any of which may be a secret."""
    return f"{urlsplit(url).scheme}://{host_of(url)}/..."
