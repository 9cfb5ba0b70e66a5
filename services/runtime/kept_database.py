"""The embedded database of a host: that its server runs is its supervisor's care, that the supervisor does is ours."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import structlog

from services.database.embedded import EmbeddedLayout, EmbeddedServerFailed, start_embedded
from services.runtime.host_lock import host_lock_holder, host_lock_is_held
from services.runtime.part_record import PartRecords
from services.runtime.process_identity import is_halted

_PART = "database supervisor"
_FIRST_PAUSE_LOOKS = 1
_LONGEST_PAUSE_LOOKS = 30
_HALTED_LOOKS = 30
"""So many looks at a supervisor that is halted (SIGSTOP) while the database is lost, and another one takes its place."""

_log = structlog.get_logger(__name__)


class KeptDatabase:
    """Looks after the supervisor; to be asked about once a second."""

    def __init__(self, home: Path, settings: Sequence[str], parts: PartRecords) -> None:
        self._home = home
        self._layout = EmbeddedLayout.of(home)
        self._settings = settings
        self._parts = parts
        self._process_id = 0
        self._pause_looks = 0
        self._next_pause_looks = _FIRST_PAUSE_LOOKS
        self._halted_looks = 0

    async def look(self, *, database_answers: bool) -> None:
        """Starts another supervisor, and with it the server, when there is none. Returns when that has worked, or has failed."""
        if host_lock_is_held(self._layout.lock):
            self._process_id = host_lock_holder(self._layout.lock) or self._process_id
            self._parts.says_up(_PART, self._process_id)
            self._next_pause_looks = _FIRST_PAUSE_LOOKS
            self._end_if_halted(database_answers)
            return
        self._parts.says_down(_PART, f"process {self._process_id} has ended")
        if self._pause_looks > 0:
            self._pause_looks -= 1
            return
        _log.warning("the supervisor of the database has ended; another one is started", process=self._process_id)
        self._collect()
        try:
            await asyncio.to_thread(start_embedded, self._home, settings=self._settings)
        except (EmbeddedServerFailed, OSError):
            _log.exception("the database cannot be started again")
            self._parts.says_why(
                _PART, f"it does not start; see {self._layout.supervisor_log} and {self._layout.server_log}"
            )
            self._pause_looks = self._next_pause_looks
            self._next_pause_looks = min(2 * self._next_pause_looks, _LONGEST_PAUSE_LOOKS)

    def _collect(self) -> None:
        """Nothing is left of a child of ours that has ended."""
        with suppress(ChildProcessError):
            if self._process_id:
                os.waitpid(self._process_id, os.WNOHANG)

    def _end_if_halted(self, database_answers: bool) -> None:
        if database_answers or not self._process_id or not _is_halted(self._process_id):
            self._halted_looks = 0
            return
        self._halted_looks += 1
        if self._halted_looks >= _HALTED_LOOKS:
            self._halted_looks = 0
            _log.warning("the supervisor of a lost database is halted; it is killed", process=self._process_id)
            with suppress(ProcessLookupError):
                os.kill(self._process_id, signal.SIGKILL)


def _is_halted(process_id: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return is_halted(psutil.Process(process_id))
    return False
