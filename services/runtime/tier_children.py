"""Tiers in processes that the host starts itself, beside Ray or without one; whichever process dies is started again.

Nothing of a tier is in the host: what makes one hang, or eats its memory, leaves the host, and with it Ray and what runs
there, as they are.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import cast

import structlog

from services.runtime.part_record import PartRecords
from services.runtime.tier_messages import (
    CannotServe,
    ChildMessage,
    ChildSettings,
    EndTiers,
    HostMessage,
    Listening,
    StartTier,
    Surroundings,
    WaitingForPort,
    Warm,
)
from services.runtime.tier_place import TierKind, TierPlace
from services.tiers.free_port import require_port
from topmast_server.processes import module_command

_SHARED = "tiers"
_FIRST_PAUSE_REAL_S = 0.1
_LONGEST_PAUSE_REAL_S = 5.0
_END_PATIENCE_REAL_S = 10.0

_log = structlog.get_logger(__name__)


class TiersNotStarted(Exception):
    """A process of tiers cannot serve, or a tier does not listen in time; says why."""


class TierChildren:
    """The processes of all tiers. To be used on one event loop."""

    def __init__(
        self, settings: ChildSettings, *, shared: bool, group: str = "", parts: PartRecords | None = None
    ) -> None:
        """`settings`: of which name and kernels are set here for each process. `shared`: one process for all tiers. `parts`: where it
        is said which of them run.

        `group` comes before the names of the processes: of each tier there may be several.
        """
        self._group = group
        self._settings = settings
        self._parts = parts if parts is not None else PartRecords(lambda: None)
        self._shared = shared
        self._children: dict[str, _Child] = {}
        self._surroundings: Surroundings | None = None
        self._changed = asyncio.Event()

    def prepare(self) -> None:
        """Has the process that all tiers will share, if they do, get ready while other things are started."""
        if self._shared:
            self._child(_SHARED, kernels=True)

    async def until_prepared(self) -> None:
        """Waits until every process is ready for its tiers. Raises TiersNotStarted."""
        await self._until(lambda: all(child.warm for child in self._children.values()))

    def surround(self, surroundings: Surroundings) -> None:
        """Database and Ray are there now."""
        self._surroundings = surroundings
        for child in self._children.values():
            child.surround(surroundings)

    def start(self, places: Sequence[TierPlace]) -> None:
        """Starts the tiers of these places that are not there yet."""
        for place in places:
            if self._shared:
                child = self._child(_SHARED, kernels=True)
            else:
                child = self._child(place.name.replace("/", "-"), kernels=place.kind is not TierKind.CLUSTER)
            child.start(place)

    async def until_listening(self, patience_real_s: float) -> dict[str, str]:
        """Waits until all tiers listen; returns their addresses by name.

        Raises TiersNotStarted, and PortNotAvailable at once where somebody else has the port of one.
        """
        await self.until_prepared()
        try:
            async with asyncio.timeout(patience_real_s):
                await self._until(self._all_listen)
        except TimeoutError as error:
            silent = ", ".join(name for child in self._children.values() for name in child.silent)
            logs = self._settings.home / "logs" / "tiers"
            raise TiersNotStarted(
                f"these tiers do not listen after {patience_real_s:.0f} s: {silent} (logs: {logs})"
            ) from error
        return {name: address for child in self._children.values() for name, address in child.addresses.items()}

    async def end(self) -> None:
        """Ends all tiers in order, and kills what does not end in time."""
        await asyncio.gather(*(child.end() for child in self._children.values()))

    def _child(self, name: str, *, kernels: bool) -> _Child:
        child = self._children.get(name)
        if child is None:
            settings = replace(self._settings, name=f"{self._group}{name}", kernels=kernels)
            child = self._children[name] = _Child(settings, self._changed.set, self._parts)
            if self._surroundings is not None:
                child.surround(self._surroundings)
            child.begin()
        return child

    def _all_listen(self) -> bool:
        for child in self._children.values():
            if child.silent and child.waits_for_port is not None:
                host, _, port = child.waits_for_port.rpartition(":")
                require_port(host, int(port))
        return all(child.silent == () for child in self._children.values())

    async def _until(self, reached: Callable[[], bool]) -> None:
        while True:
            for child in self._children.values():
                if child.cannot_serve is not None:
                    raise TiersNotStarted(child.cannot_serve)
            if reached():
                return
            self._changed.clear()
            await self._changed.wait()


class _Child:
    """One process at a time, and what it was told: the next one is told the same."""

    def __init__(self, settings: ChildSettings, changed: Callable[[], None], parts: PartRecords) -> None:
        self.warm = False
        self.cannot_serve: str | None = None
        self.waits_for_port: str | None = None
        """Where a tier is to listen and cannot."""
        self.addresses: dict[str, str] = {}
        self._settings = settings
        self._changed = changed
        self._parts = parts
        self._part = settings.name if settings.name.endswith(_SHARED) else f"tier {settings.name}"
        self._surroundings: Surroundings | None = None
        self._places: list[TierPlace] = []
        self._process: asyncio.subprocess.Process | None = None
        self._connection: Connection | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._ending = False

    @property
    def silent(self) -> tuple[str, ...]:
        """The tiers that have never listened."""
        return tuple(place.name for place in self._places if place.name not in self.addresses)

    @property
    def _over(self) -> bool:
        """Whether no other process is to take the place of one that ends."""
        return self._ending or self.cannot_serve is not None

    def begin(self) -> None:
        self._keeping = asyncio.create_task(self._keep_running())

    def surround(self, surroundings: Surroundings) -> None:
        self._surroundings = surroundings
        self._tell(surroundings)

    def start(self, place: TierPlace) -> None:
        if place.name not in {known.name for known in self._places}:
            self._places.append(place)
            self._tell(StartTier(place))

    async def end(self) -> None:
        self._ending = True
        self._tell(EndTiers())
        if self._keeping is None:
            return
        ended, _ = await asyncio.wait({self._keeping}, timeout=_END_PATIENCE_REAL_S)
        if not ended:
            # It hangs: nothing is lost by killing it.
            _log.warning("a process of tiers did not end in order", name=self._settings.name)
            self._kill()
            await asyncio.wait({self._keeping}, timeout=_END_PATIENCE_REAL_S)
        self._keeping.cancel()

    async def _keep_running(self) -> None:
        pause_s = _FIRST_PAUSE_REAL_S
        while not self._ending:
            process = await self._spawn()
            self._parts.says_up(self._part, process.pid)
            status = await process.wait()
            self._process = None
            if self._over:
                return
            _log.warning("a process of tiers has died; another one is started", name=self._settings.name, status=status)
            self._parts.says_down(self._part, f"process {process.pid} has ended with status {status}")
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_REAL_S)

    async def _spawn(self) -> asyncio.subprocess.Process:
        ours, theirs = Pipe()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *module_command("services.runtime.tier_child", str(theirs.fileno())),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
            )
        self._process, self._connection = process, ours
        told: list[HostMessage] = [self._settings]
        if self._surroundings is not None:
            told.append(self._surroundings)
        told += map(StartTier, self._places)
        if self._over:
            # Nobody could tell it so while it was being started.
            told.append(EndTiers())
        for message in told:
            self._tell(message)
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._listen, args=(ours, loop), name=self._settings.name, daemon=True).start()
        return process

    def _listen(self, connection: Connection, loop: asyncio.AbstractEventLoop) -> None:
        """In a thread, until that process has ended."""
        with suppress(EOFError, OSError, RuntimeError), connection:
            while True:
                loop.call_soon_threadsafe(self._take, cast(ChildMessage, connection.recv()))

    def _take(self, message: ChildMessage) -> None:
        match message:
            case Warm(configuration):
                self._settings = replace(self._settings, configuration=configuration)
                self.warm = True
            case Listening(name, address):
                self.addresses[name] = address
            case WaitingForPort(listen):
                self.waits_for_port = listen
            case CannotServe(reason):
                self.cannot_serve = reason
        self._changed()

    def _tell(self, message: HostMessage) -> None:
        if self._connection is not None:
            with suppress(OSError):
                # It has died: the next one is told.
                self._connection.send(message)

    def _kill(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
