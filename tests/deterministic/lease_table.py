"""A simulated database that knows the statements of leases, and no other: answers that take their time, are lost, or never come.

What the statements do is written down here a second time; `test_lease_table.py` compares it with PostgreSQL.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import psycopg

from services.database.errors import DatabaseUnavailable
from tests.deterministic.simulation import SimulatedLoop, SimulatedWorld

_LOCK_LOOK_S = 0.005
_RETRY_S = 0.2

ResultT = TypeVar("ResultT")


@dataclass
class Row:
    """One lease, as it is stored."""

    holder: str
    address: str
    token: int
    expires_s: float
    locked_by: object | None = None


@dataclass
class LeaseTable:
    """What is committed; the clock is that of the database's machine."""

    now: Callable[[], float]
    rows: dict[str, Row] = field(default_factory=dict)

    def execute(self, text: str, values: Any, by: object) -> list[tuple[Any, ...]] | None:
        """The rows that the statement returns or changes; None: it has to wait for a transaction."""
        if text.startswith("INSERT INTO leases"):
            return self._acquire(values, by)
        if text.startswith("UPDATE leases SET expires_at = clock_timestamp() + make_interval"):
            return self._changed(values[1], values[2], values[3], by, lambda row: self._extend(row, values[0]))
        if text.startswith("UPDATE leases SET expires_at = clock_timestamp(), holder"):
            return self._changed(values[0], values[1], values[2], by, self._end)
        if text.startswith("SELECT set_config"):
            return self._held(values[0], values[1], values[2], by)
        if text.startswith("SELECT leases.holder, leases.address"):
            row = self.rows.get(next(iter(values.values())))
            return [] if row is None else [(row.holder, row.address, row.expires_s - self.now())]
        if "standbys" in text:  # shown to people, nothing is decided by it
            return []
        raise AssertionError(f"nobody has taught the simulated database this: {text}")

    def _acquire(self, values: Any, by: object) -> list[tuple[Any, ...]] | None:
        row = self.rows.get(values["name"])
        expires_s = self.now() + values["duration_s"]
        if row is None:
            self.rows[values["name"]] = Row(values["holder"], values["address"], 1, expires_s)
            return [(1,)]
        if row.locked_by not in {None, by}:
            return None
        if row.expires_s > self.now() and row.holder != values["holder"]:
            return []
        row.holder, row.address, row.token, row.expires_s = (
            values["holder"],
            values["address"],
            row.token + 1,
            expires_s,
        )
        return [(row.token,)]

    def _changed(
        self, name: str, token: int, holder: str, by: object, change: Callable[[Row], None]
    ) -> list[tuple[Any, ...]] | None:
        row = self.rows.get(name)
        if row is None or (row.token, row.holder) != (token, holder):
            return []
        if row.locked_by not in {None, by}:
            return None
        change(row)
        return [()]

    def _held(self, name: str, token: int, holder: str, by: object) -> list[tuple[Any, ...]] | None:
        row = self.rows.get(name)
        if row is not None and row.locked_by not in {None, by}:
            return None
        if row is None or (row.token, row.holder) != (token, holder) or row.expires_s <= self.now():
            return []
        row.locked_by = by
        return [(1,)]

    def _extend(self, row: Row, duration_s: float) -> None:
        row.expires_s = self.now() + duration_s

    def _end(self, row: Row) -> None:
        row.expires_s, row.holder = self.now(), ""

    def unlock(self, by: object) -> None:
        for row in self.rows.values():
            if row.locked_by is by:
                row.locked_by = None


@dataclass
class Weather:
    """How the way to the database is at present."""

    latency_s: float = 0.002
    loss: float = 0.0
    """The share of answers that never come, of statements that were executed or not."""
    down: bool = False


class SimulatedServer:
    """The database as processes reach it."""

    def __init__(self, world: SimulatedWorld) -> None:
        self.world = world
        self.weather = Weather()
        self.ahead_s = 0.0
        self.table = LeaseTable(lambda: world.now_s + self.ahead_s)
        self.writes: list[tuple[float, int, str]] = []
        """What was committed in the name of leases: when, under which token, by whom."""
        self.connections: list[tuple[object, SimulatedConnection]] = []

    async def connect(self, _url: str, **_options: Any) -> SimulatedConnection:
        await self._travel()
        loop = asyncio.get_running_loop()
        connection = SimulatedConnection(self)
        self.connections.append((loop.process if isinstance(loop, SimulatedLoop) else None, connection))
        return connection

    def disconnect(self, process: object) -> None:
        """The process was killed: the kernel closes what it had open, and the server ends its transactions."""
        for _, connection in [one for one in self.connections if one[0] is process]:
            connection.lose()

    async def _travel(self) -> None:
        rng, weather = self.world.rng, self.weather
        await asyncio.sleep(float(rng.exponential(weather.latency_s)))
        if weather.down or rng.random() < weather.loss:
            raise psycopg.OperationalError("the connection is lost")


class _Cursor:
    def __init__(self, rows: list[tuple[Any, ...]]) -> None:
        self._rows = rows
        self.rowcount = len(rows)

    async def fetchone(self) -> tuple[Any, ...] | None:
        return self._rows[0] if self._rows else None


class SimulatedConnection:
    """One connection; each statement is committed at once, but a lock is held until `commit`."""

    def __init__(self, server: SimulatedServer) -> None:
        self._server = server
        self._pending: list[tuple[int, str]] = []

    async def execute(self, statement: str | bytes, values: Any = ()) -> _Cursor:
        text = statement.decode() if isinstance(statement, bytes) else statement
        try:
            await self._server._travel()
            rows = self._server.table.execute(text, values, self)
            while rows is None:
                await asyncio.sleep(_LOCK_LOOK_S)
                rows = self._server.table.execute(text, values, self)
            await self._server._travel()
        except (psycopg.Error, asyncio.CancelledError):
            self.lose()
            raise
        return _Cursor(rows)

    def write(self, token: int, holder: str) -> None:
        """Part of the transaction."""
        self._pending.append((token, holder))

    async def commit(self) -> None:
        try:
            await self._server._travel()
        except (psycopg.Error, asyncio.CancelledError):
            self.lose()
            raise
        self._server.writes += [(self._server.world.now_s, token, holder) for token, holder in self._pending]
        self.lose()

    async def close(self) -> None:
        self.lose()

    def lose(self) -> None:
        """Ends the transaction."""
        self._pending.clear()
        self._server.table.unlock(self)
        self._server.connections = [one for one in self._server.connections if one[1] is not self]


class SimulatedDatabase:
    """`Database.run`, as far as leases need it."""

    def __init__(self, server: SimulatedServer) -> None:
        self.url = "simulated"
        self._server = server

    async def run(self, operation: Callable[[Any], Awaitable[ResultT]], *, give_up_after_s: float = 30.0) -> ResultT:
        begun_s = self._server.world.now_s
        while True:
            try:
                connection = await self._server.connect("")
                try:
                    result = await operation(connection)
                    await connection.commit()
                finally:
                    await connection.close()
            except psycopg.OperationalError as error:
                if self._server.world.now_s - begun_s > give_up_after_s:
                    raise DatabaseUnavailable("the simulated database is away") from error
                await asyncio.sleep(_RETRY_S)
            else:
                return result
