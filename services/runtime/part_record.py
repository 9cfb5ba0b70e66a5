"""The parts of a home's service, as its host sees them: which run, since when, and how often each was lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class PartRecord:
    """One part: the database, its supervisor, Ray, a process of tiers, the watcher of the host."""

    name: str
    up: bool
    since_s: float
    """By the clock of the machine: since when it is up, or down."""
    process_id: int = 0
    """0: it has none, or several."""
    losses: int = 0
    """How often it went down since the host began."""
    why: str = ""
    """Why it is down, or was the last time."""


class PartRecords:
    """What is known of every part. To be used on one event loop."""

    def __init__(self, changed: Callable[[], None]) -> None:
        """`changed` is called when something of it is otherwise than before."""
        self._changed = changed
        self._records: dict[str, PartRecord] = {}

    @property
    def all(self) -> tuple[PartRecord, ...]:
        """In the order in which they were first known."""
        return tuple(self._records.values())

    def says_up(self, name: str, process_id: int = 0) -> None:
        """It runs, in that process."""
        before = self._records.get(name)
        since_s = before.since_s if before is not None and before.up else time.time()
        losses, why = (before.losses, before.why) if before is not None else (0, "")
        self._take(PartRecord(name, True, since_s, process_id, losses, why))

    def says_down(self, name: str, why: str) -> None:
        """It does not run; the first reason stays until it is up again."""
        before = self._records.get(name)
        if before is None or before.up:
            losses = before.losses + 1 if before is not None else 1
            self._take(PartRecord(name, False, time.time(), 0, losses, why))

    def says_why(self, name: str, why: str) -> None:
        """What keeps it down, as it is known by now."""
        before = self._records.get(name)
        if before is not None and not before.up:
            self._take(replace(before, why=why))

    def _take(self, record: PartRecord) -> None:
        if self._records.get(record.name) != record:
            self._records[record.name] = record
            self._changed()
