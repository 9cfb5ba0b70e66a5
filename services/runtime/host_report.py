"""What the host says of itself in its record, for as long as it lives: state, stage and the parts that it keeps running."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import psutil
import structlog

from services.runtime.host_options import HostOptions
from services.runtime.host_record import HostRecord, HostState
from services.runtime.option_differences import digests_of
from services.runtime.part_record import PartRecords
from services.runtime.process_identity import ProcessIdentity

_log = structlog.get_logger(__name__)


class HostReport:
    """The record in its file. To be used on one event loop."""

    def __init__(self, path: Path, options: HostOptions) -> None:
        self._path = path
        self._identity = ProcessIdentity.of(psutil.Process())
        self._options = options.model_dump(mode="json")
        if options.database_url is not None:
            # It may hold a password, and the record is for everybody to read.
            self._options["database_url"] = "one that was named"
        self._digests = digests_of(options)
        self._state, self._stage, self._address, self._since_s = HostState.STARTING, "", "", time.time()
        self._clock_set_s, self._clock_set_by_s = 0.0, 0.0
        self._text, self._unwritten = "", False
        self.watcher_id = 0
        self.parts = PartRecords(self._write)

    def say(self, state: HostState, stage: str = "", address: str = "") -> None:
        """How far it is; `stage`: what it is busy with, or why it failed. The address stays until another one is said."""
        if state is not self._state:
            self._since_s = time.time()
        self._state, self._stage, self._address = state, stage, address or self._address
        self._write()

    def clock_jumped(self, jumped_s: float) -> None:
        """Somebody has set the clock of this machine by that much."""
        self._clock_set_s, self._clock_set_by_s = time.time(), jumped_s
        self._write()

    def mend(self) -> None:
        """Writes the record anew when somebody has removed or damaged it, or when it could not be written before."""
        with suppress(OSError):
            if self._path.read_text(encoding="utf-8", errors="replace") == self._text:
                return
        if not self._unwritten:
            _log.warning("the record of the host was not as it had been left; it is written anew")
        self._write()

    def _write(self) -> None:
        record = HostRecord(
            self._identity.process_id,
            self._identity.started_s,
            self._state,
            self._stage,
            self._address,
            options=self._options,
            digests=self._digests,
            process_started_ticks=self._identity.started_ticks,
            watcher_id=self.watcher_id,
            since_s=self._since_s,
            parts=self.parts.all,
            clock_set_s=self._clock_set_s,
            clock_set_by_s=self._clock_set_by_s,
        )
        self._text = record.as_text()
        try:
            record.write(self._path)
        except OSError as error:
            # A disk that is full, or can only be read: what runs goes on, and the next look tries again.
            if not self._unwritten:
                _log.error("the record of the host cannot be written", error=str(error))
            self._unwritten = True
        else:
            self._unwritten = False
