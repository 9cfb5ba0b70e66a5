"""What the host process of a home says of itself, and whether it is still there."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import psutil


class HostState(StrEnum):
    STARTING = "starting"
    READY = "ready"
    STOPPING = "stopping"
    FAILED = "failed"


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

    def write(self, path: Path) -> None:
        """Replaces the record as a whole."""
        path.parent.mkdir(parents=True, exist_ok=True)
        written = path.with_suffix(".new")
        written.write_text(json.dumps(asdict(self)), encoding="utf-8")
        written.replace(path)

    @property
    def process(self) -> psutil.Process | None:
        """The process, if it still runs."""
        try:
            process = psutil.Process(self.process_id)
            if process.is_running() and abs(process.create_time() - self.process_started_s) < 1.0:
                return process
        except psutil.NoSuchProcess:
            return None
        return None


def read_host_record(path: Path) -> HostRecord | None:
    """The record; None when there is none."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return HostRecord(**{**document, "state": HostState(document["state"])})
