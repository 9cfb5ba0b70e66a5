"""What former runs of a home's service have left on the disk, and its removal.

Only what this home's own service and simulations have made is looked at, and nothing that its living service uses. What
workloads have written (checkpoints, their logs) and the database are never touched.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from services.database.embedded import EmbeddedLayout
from services.runtime.home import HomeLayout
from services.runtime.host_lock import host_lock
from services.runtime.host_record import HostRecord, read_whole_host_record

_SESSION = "session_"
"""So the folders begin that Ray makes for each of its runs; they end with the id of the process that started it."""

_LATEST = "session_latest"


@dataclass(frozen=True, slots=True)
class Leftover:
    """One file or folder that nobody needs."""

    path: Path
    what: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Cleaning:
    """What there is to remove."""

    leftovers: tuple[Leftover, ...]
    serving: int | None
    """The process of the living service, of which nothing is among them."""

    @property
    def size_bytes(self) -> int:
        return sum(leftover.size_bytes for leftover in self.leftovers)


def clean(home: Path, *, remove: bool) -> Cleaning:
    """What former runs have left in this home, largest first; with `remove` it is gone when this returns.

    Raises HostLockTaken when another process is just beginning to start the service.
    """
    layout = HomeLayout(home)
    if not home.is_dir():
        return Cleaning((), None)
    with ExitStack() as stack:
        serving = _serving(layout)
        if serving is None:
            # Nobody starts it while it is looked at, and cleaned.
            stack.enter_context(host_lock(layout.host_lock))
        found = sorted(_leftovers(layout, serving), key=lambda leftover: (-leftover.size_bytes, str(leftover.path)))
        if remove:
            for leftover in found:
                _remove(leftover.path)
        return Cleaning(tuple(found), None if serving is None else serving.process_id)


def _serving(layout: HomeLayout) -> HostRecord | None:
    """The record of the host that lives, whatever it is busy with."""
    record = read_whole_host_record(layout.host_record)
    return record if record is not None and record.process is not None else None


def _leftovers(layout: HomeLayout, serving: HostRecord | None) -> Iterator[Leftover]:
    for session in _sessions(layout.ray_sessions):
        if serving is None or not session.name.endswith(f"_{serving.process_id}"):
            yield Leftover(session, "a run of Ray that is over", _size_bytes(session))
    of_tiers = layout.host_log.parent / "tiers"
    logs = [*sorted(layout.host_log.parent.glob("host.log*")), *sorted(of_tiers.glob("*.log*"))]
    for log in logs:
        if log.is_file() and not (serving is not None and log.stat().st_mtime >= serving.process_started_s):
            yield Leftover(log, "a log of a service that is down", log.stat().st_size)
    former_log = EmbeddedLayout.of(layout.home).server_log.with_suffix(".log.old")
    if former_log.is_file():
        yield Leftover(former_log, "a former log of the database", former_log.stat().st_size)
    if layout.simulations.is_dir():
        yield Leftover(layout.simulations, "runs of simulations that are kept", _size_bytes(layout.simulations))


def _sessions(folder: Path) -> Sequence[Path]:
    """The folders of Ray's runs there; none where the folder is not ours alone (it may be in /tmp)."""
    if not folder.is_dir() or folder.is_symlink() or folder.stat().st_uid != os.getuid():
        return ()
    return sorted(
        entry
        for entry in folder.iterdir()
        if entry.name.startswith(_SESSION) and entry.name != _LATEST and entry.is_dir() and not entry.is_symlink()
    )


def _size_bytes(folder: Path) -> int:
    """Of all files below; links are not followed."""
    return sum(
        entry.lstat().st_size
        for directory, _, names in os.walk(folder)
        for entry in (Path(directory) / name for name in names)
        if not entry.is_symlink() and entry.exists()
    )


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
