"""The tasks that run on this machine, in a folder of it: each runner enters its own, and one of the runners watches all.

An entry is a file named after the task's reaper, `<id>.json`; why a task is ended stands beside it, `<id>.why`. Whoever has the
folder's lock watches; the system gives it back when that process ends, and the next one takes it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import gettempdir

from services.execution.task_paths import write_whole

_ENTRY = ".json"
_WHY = ".why"
_TRIES = 10


@dataclass(frozen=True, slots=True)
class WatchedTask:
    """What the watching runner has to know of a task."""

    name: str
    reaper_id: int
    reaper_ticks: int
    """When the reaper began: another process may get its id."""
    process_id: int
    """The main process, which leads its process group."""
    started_real_s: float
    limit_bytes: int | None
    promised_bytes: int
    group: str = ""
    """The folder of its control group, by which the kernel limits it; else "" ."""
    beside: Sequence[Sequence[int]] = ()
    """The reapers of commands beside it, which use its memory: of each the id, and when it began."""


class WatchedTasks:
    """The folder of all tasks of one TOPMAST_HOME on this machine. Every method raises OSError where there can be none."""

    def __init__(self, home: Path) -> None:
        digest = hashlib.sha256(os.fsencode(home.absolute())).hexdigest()[:16]
        # The home may be on a disk of several machines; this is not.
        self.folder = Path(gettempdir()) / f"topmast-tasks-{os.getuid()}-{digest}"
        self._lock: int | None = None

    def enter(self, task: WatchedTask) -> None:
        """Has it watched from now on; entered again, by what it says now."""
        for tries_left in reversed(range(_TRIES)):
            self.folder.mkdir(mode=0o700, exist_ok=True)
            self._require_own()
            try:
                write_whole(self.folder / f"{task.reaper_id}{_ENTRY}", json.dumps(asdict(task)))
            except FileNotFoundError:
                # The last one that left has just removed the folder.
                if not tries_left:
                    raise
            else:
                return

    def leave(self, reaper_id: int) -> str:
        """The task has ended; returns why it was ended, "" when it was not. The last one removes the folder."""
        why = self.why(reaper_id)
        self.remove(reaper_id)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        with suppress(OSError):
            self.folder.rmdir()
        return why

    def lead(self) -> bool:
        """Whether this process is the one that watches, from now on until it leaves or ends."""
        if self._lock is not None:
            return True
        folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(folder)
            return False
        self._lock = folder
        return True

    def entries(self) -> Iterator[WatchedTask]:
        """All that are entered, by the ids of their reapers."""
        for file in sorted(self.folder.glob(f"*{_ENTRY}")):
            with suppress(FileNotFoundError):
                yield WatchedTask(**json.loads(file.read_text(encoding="utf-8")))

    def say_why(self, reaper_id: int, sentence: str) -> None:
        """Tells its runner why it is being ended."""
        write_whole(self.folder / f"{reaper_id}{_WHY}", sentence)

    def why(self, reaper_id: int) -> str:
        """Why it is being ended; "" when it is not."""
        with suppress(FileNotFoundError):
            return (self.folder / f"{reaper_id}{_WHY}").read_text(encoding="utf-8")
        return ""

    def ending_for_s(self, reaper_id: int) -> float | None:
        """For how long it has been ended; None when it is not."""
        with suppress(FileNotFoundError):
            return max(0.0, time.time() - (self.folder / f"{reaper_id}{_WHY}").stat().st_mtime)
        return None

    def remove(self, reaper_id: int) -> None:
        """Forgets it."""
        for ending in (_ENTRY, _WHY):
            (self.folder / f"{reaper_id}{ending}").unlink(missing_ok=True)

    def _require_own(self) -> None:
        """Others may have made a folder of that name, to have us end what they like."""
        found = self.folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            raise OSError(f"{self.folder} is not a folder of ours")
