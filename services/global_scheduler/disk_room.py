"""Whether there is room on the disks to take anything in: that of the home, which is looked at, and that of the database, which
says so itself.

A server of PostgreSQL that finds no room for its log stops altogether. So some is kept for what runs already: while
the home has less left, nothing more is accepted.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import structlog
from pydantic import Field

from domain.clock import Clock
from formats.schema import Schema
from services.database.engine import Database
from services.grpc_errors import DATABASE_IS_FULL, DiskFull

_MIB = 2**20

_log = structlog.get_logger(__name__)


class DiskSettings(Schema):
    """What is kept of the disk of TOPMAST_HOME for what runs already."""

    reserve_mib: float = Field(default=256.0, ge=0, le=1e9)
    """While it has less left, submissions and uploads are refused; 0: they never are."""
    look_every_real_s: float = Field(default=1.0, ge=0.01, le=3_600.0)


@dataclass(frozen=True, slots=True)
class FullDisk:
    """A disk that is full, in a sentence with the remedy, and since when (on the clock of the service)."""

    sentence: str
    since_s: float


class DiskRoom:
    """`run` until cancelled: looks again and again, so that what was refused is accepted as soon as there is room."""

    def __init__(
        self, database: Database, clock: Clock, home: Path, settings: DiskSettings, told: Callable[[], None]
    ) -> None:
        """`told` is called at each change."""
        self._database = database
        self._clock = clock
        self._home = home
        self._settings = settings
        self._told = told
        self.full: FullDisk | None = None

    def require_room(self) -> None:
        """Raises DiskFull when nothing can be taken in."""
        if self.full is None and self._database.full:
            # It has just said so.
            raise DiskFull(DATABASE_IS_FULL)
        if self.full is not None:
            raise DiskFull(self.full.sentence)

    async def run(self) -> None:
        while True:
            sentence = await asyncio.to_thread(self._home_is_full)
            if self._database.full:
                await self._database.look_for_room()
            if self._database.full:
                sentence = sentence or DATABASE_IS_FULL
            self._take(sentence)
            await asyncio.sleep(self._settings.look_every_real_s)

    def _take(self, sentence: str | None) -> None:
        before = self.full
        if sentence is None:
            self.full = None
        else:
            self.full = FullDisk(sentence, self._clock.now() if before is None else before.since_s)
        if (before is None) is not (sentence is None):
            if sentence is None:
                _log.info("there is room on the disk again")
            else:
                _log.warning("nothing is accepted: a disk is full", said=sentence)
            self._told()

    def _home_is_full(self) -> str | None:
        """Why nothing more should be written there, if so."""
        if not self._settings.reserve_mib or not self._home.is_dir():
            return None
        room = os.statvfs(self._home)
        left_mib = room.f_bavail * room.f_frsize / _MIB
        if left_mib >= self._settings.reserve_mib:
            return None
        return (
            f"the disk of TOPMAST_HOME ({self._home}) has {left_mib:,.0f} MiB left, and {self._settings.reserve_mib:,.0f} MiB are"
            " kept for what runs (disk.reserve_mib): submissions and uploads are refused until there is more; make room there"
        )
