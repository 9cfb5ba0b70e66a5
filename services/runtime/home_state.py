"""How the service of a home is, as its records, locks and processes tell: also when nothing of it answers."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import psutil

from services.runtime.home import HomeLayout
from services.runtime.host_lock import host_lock_holder, host_lock_is_held
from services.runtime.host_record import HostRecord, HostRecordDamaged, HostState, read_host_record
from services.runtime.part_record import PartRecord
from services.runtime.process_identity import is_halted, lives

_BEFORE_READY = frozenset({HostState.STARTING, HostState.FAILED, HostState.LOST})


@dataclass(frozen=True, slots=True)
class WatcherRecord:
    """What the watcher of a host says."""

    process_id: int
    losses: int
    """How many hosts have died under it."""
    host_ended_s: float | None
    """Since when there is none; None while there is one."""


@dataclass(frozen=True, slots=True)
class HomeState:
    """One look at a home."""

    record: HostRecord | None
    """Of the host that lives, or of the last one."""
    damaged: str
    """Why there is no record that can be read; else ""."""
    host: psutil.Process | None
    """The host, if it lives."""
    watcher_lives: bool
    watcher: WatcherRecord | None
    down: tuple[str, ...]
    """What of a service that was up is not: what, since when, why, and what is done about it; a sentence each."""
    remarks: tuple[str, ...] = ()
    """What else is not as it should be, and does not keep it down."""

    @property
    def was_up(self) -> bool:
        """Whether its service has been up since it was last brought up, and is kept so."""
        if self.host is None and not self.watcher_lives:
            return False
        if self.record is not None and self.record.state is HostState.STOPPING:
            return False
        ready = self.record is not None and self.record.state in {HostState.READY, HostState.LOST}
        return ready or (self.watcher is not None and self.watcher.losses > 0)

    @property
    def is_whole(self) -> bool:
        """Whether it is up, with all its parts."""
        return (
            self.record is not None and self.host is not None and self.record.state is HostState.READY and not self.down
        )


def look_at(layout: HomeLayout) -> HomeState:
    """How it is now. Reads some small files; asks nobody."""
    record, damaged = None, ""
    try:
        record = read_host_record(layout.host_record)
    except HostRecordDamaged as error:
        damaged = str(error)
    host = _host(layout, record)
    watcher_lives = host_lock_is_held(layout.watcher_lock)
    watcher = _watcher_record(layout)
    down = tuple(_down(layout, record, host, watcher if watcher_lives else None))
    remarks = tuple(_remarks(layout, record, damaged, host))
    return HomeState(record, damaged, host, watcher_lives, watcher, down, remarks)


def moment_of(real_s: float) -> str:
    """A moment of today or another day, for people."""
    return datetime.fromtimestamp(real_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _host(layout: HomeLayout, record: HostRecord | None) -> psutil.Process | None:
    if record is not None and (process := record.process) is not None:
        return process
    holder = host_lock_holder(layout.host_lock)
    try:
        return psutil.Process(holder) if holder is not None else None
    except psutil.NoSuchProcess:
        return None


def _watcher_record(layout: HomeLayout) -> WatcherRecord | None:
    try:
        return WatcherRecord(**json.loads(layout.watcher_record.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        # None was ever written, or it is just being begun anew; it is told nothing by it then.
        return None


def _down(
    layout: HomeLayout, record: HostRecord | None, host: psutil.Process | None, watcher: WatcherRecord | None
) -> Iterator[str]:
    lost = watcher is not None and watcher.losses > 0
    if host is None:
        if watcher is not None and lost:
            ended_s = watcher.host_ended_s
            since = f"since {moment_of(ended_s)}" if ended_s is not None else "since a moment ago"
            why = f" ({record.stage})" if record is not None and record.state in _BEFORE_READY and record.stage else ""
            yield f"the host is down {since}{why}; its watcher (process {watcher.process_id}) starts it again"
        elif watcher is not None and record is not None and record.is_ready:
            yield f"the host (process {record.process_id}) has ended a moment ago; its watcher starts it again"
        elif watcher is None and record is not None and record.state is not HostState.FAILED:
            yield (
                f"the host (process {record.process_id}) has ended without taking its service down, and nobody watches over it:"
                " 'topmast up' starts it again"
            )
        return
    if is_halted(host):
        yield (
            f"the host (process {host.pid}) is halted by a signal; its watcher replaces it after a minute, kill -CONT"
            f" {host.pid} lets it go on"
        )
    if record is None:
        return
    if record.state is HostState.LOST:
        since = moment_of(record.since_s)
        yield f"the host is ending since {since} ({record.stage}); its watcher starts it again"
    elif record.state is not HostState.READY:
        if lost and record.state in _BEFORE_READY:
            doing = f", busy with {record.stage}" if record.stage else ""
            yield f"the host is being started again since {moment_of(record.since_s)}{doing}"
    else:
        yield from _parts_down(layout, record)


def _parts_down(layout: HomeLayout, record: HostRecord) -> Iterator[str]:
    for part in record.parts:
        if not part.up:
            yield f"the {part.name} is down since {moment_of(part.since_s)} ({part.why}); it is being started again"
        elif not _lives(layout, part):
            yield f"the {part.name} (process {part.process_id}) has ended a moment ago; it is being started again"


def _remarks(layout: HomeLayout, record: HostRecord | None, damaged: str, host: psutil.Process | None) -> Iterator[str]:
    if damaged:
        yield damaged
    if host is None:
        return
    if os.statvfs(layout.home).f_flag & os.ST_RDONLY:
        yield (
            f"{layout.home} can only be read now: nothing can be stored, and what is shown of its processes may be old; mount"
            " it to be written again"
        )
    if record is not None and record.clock_set_s:
        way = "forward" if record.clock_set_by_s > 0 else "back"
        yield (
            f"the clock of this machine was set {way} by {abs(record.clock_set_by_s):.0f} s, noticed at"
            f" {moment_of(record.clock_set_s)}; what this means for leases and times: docs/operations.md"
        )


def _lives(layout: HomeLayout, part: PartRecord) -> bool:
    if part.name == "database supervisor":
        return host_lock_is_held(layout.database_lock)
    if not part.process_id:
        return True
    try:
        return lives(psutil.Process(part.process_id))
    except psutil.NoSuchProcess:
        return False
