"""What the host process of a home says of itself, and whether it is still there."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import psutil

from services.runtime.part_record import PartRecord
from services.runtime.process_identity import ProcessIdentity


class HostState(StrEnum):
    STARTING = "starting"
    READY = "ready"
    STOPPING = "stopping"
    FAILED = "failed"
    LOST = "lost"
    """It has lost what it cannot replace while it runs (Ray), and ends for another host to begin anew."""


@dataclass(frozen=True, slots=True)
class HostRecord:
    """One line about the host: which process, how far, where the global scheduler is."""

    process_id: int
    process_started_s: float
    """Together with the id this names the process for good: ids are used again."""
    state: HostState
    stage: str = ""
    """What it is busy with, or why it failed."""
    address: str = ""
    database_url: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    """With which it was started, as JSON; what an URL may say to nobody is not in there."""
    digests: dict[str, str] = field(default_factory=dict)
    """Of the files that it read then, by option."""
    process_started_ticks: int | None = None
    """When the process began, since the machine did: no jump of the clock changes that."""
    watcher_id: int = 0
    """The process that started it, and starts another one when it dies; 0: none."""
    since_s: float = 0.0
    """Since when it is in that state."""
    parts: tuple[PartRecord, ...] = ()
    """What it keeps running."""
    clock_set_s: float = 0.0
    """When it last noticed that the clock of the machine had been set; 0: never."""
    clock_set_by_s: float = 0.0

    def write(self, path: Path) -> None:
        """Replaces the record as a whole."""
        path.parent.mkdir(parents=True, exist_ok=True)
        written = path.with_suffix(".new")
        written.write_text(self.as_text(), encoding="utf-8")
        written.replace(path)

    def as_text(self) -> str:
        """What stands in the file."""
        return json.dumps(asdict(self))

    @property
    def process(self) -> psutil.Process | None:
        """The process, if it still runs."""
        return ProcessIdentity(self.process_id, self.process_started_s, self.process_started_ticks).process

    @property
    def is_ready(self) -> bool:
        return self.state is HostState.READY


class HostRecordDamaged(Exception):
    """There is a record, and it makes no sense; the message says what to do."""


def read_host_record(path: Path) -> HostRecord | None:
    """The record; None when there is none. Raises HostRecordDamaged."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        parts = tuple(PartRecord(**part) for part in document.pop("parts", ()))
        return HostRecord(**{**document, "state": HostState(document["state"]), "parts": parts})
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise HostRecordDamaged(
            f"the record of the host, {path}, is damaged; a host that lives writes it anew within seconds, and 'topmast up' and"
            " 'topmast down' do without it"
        ) from error


def read_whole_host_record(path: Path) -> HostRecord | None:
    """The record; None also when it is damaged: then the locks say what lives."""
    try:
        return read_host_record(path)
    except HostRecordDamaged:
        return None
