"""A real PostgreSQL on the simulated clock: one transaction at a time, and what befalls connections is drawn by a seed.

Every process of the simulation has connections of its own, and its SQL is carried out by the server as it is. While one
transaction is open nobody else begins one: so nothing ever waits inside of the server, and the seed alone decides who comes first.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import psycopg
from psycopg import AsyncPipeline, Notify, pq, sql, waiting
from psycopg.rows import TupleRow

from services.database.connection import PooledConnection
from tests.deterministic.simulation import Moment, SimulatedLoop, SimulatedWorld

_CLOCK = """
    CREATE SCHEMA IF NOT EXISTS simulated;
    CREATE OR REPLACE FUNCTION simulated.clock_timestamp() RETURNS timestamptz LANGUAGE sql STABLE
        AS $$ SELECT to_timestamp(current_setting('simulated.now_s')::float8) $$;
    CREATE OR REPLACE FUNCTION simulated.now() RETURNS timestamptz LANGUAGE sql STABLE
        AS $$ SELECT to_timestamp(current_setting('simulated.now_s')::float8) $$"""
"""The clock of the server, for every statement that asks for it by an unqualified name."""

_SESSION = "SET search_path = simulated, pg_catalog, public; SET plan_cache_mode = force_custom_plan"

_WITH_ROWS = """
    SELECT relname FROM pg_class
     WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND pg_relation_size(oid) > 0
       AND relname <> 'alembic_version' ORDER BY relname"""

_OTHERS_SHARE = 0.2
"""So often others do something between two statements of a transaction; between transactions they always may."""

HANGS_AT_MOST_S = 15.0
"""A transaction that hangs is ended by the server: so soon, as `idle_in_transaction_session_timeout` has it of those in the name of a lease."""


class ConnectionLost(psycopg.OperationalError):
    """What a process sees when its connection breaks."""


@dataclass(slots=True)
class DatabaseWeather:
    """What the simulation does to all who use the database at the moment."""

    down: bool = False
    loss: float = 0.0
    """The chance that a connection breaks before, and that it breaks after, what was asked is carried out."""
    latency_s: float = 0.001


@dataclass
class PostgresByTurns:
    """One database of a real server."""

    world: SimulatedWorld
    url: str
    rng: np.random.Generator
    weather: DatabaseWeather = field(default_factory=DatabaseWeather)
    connections: list[TurnConnection] = field(default_factory=list)
    reached: Callable[[SimulatedLoop, Moment], bool] = lambda _loop, _moment: False
    """Told whenever a process comes to a moment at which it may be interrupted."""
    hung: int = 0
    """Transactions that the server has ended because they hung."""
    lost_in_commit: int = 0
    """Connections that broke when the server had ended a transaction: nobody was told how."""
    _outside: psycopg.Connection[TupleRow] = field(init=False)
    """Of the simulation itself."""
    _opened: list[psycopg.Connection[TupleRow]] = field(default_factory=list)
    _spare: list[pq.abc.PGconn] = field(default_factory=list)
    """Of real connections that nobody has: to make one takes longer than all that most of them are used for."""
    _owner: TurnConnection | None = None
    _owned_since_s: float = 0.0
    _waiting: list[asyncio.Future[None]] = field(default_factory=list)

    def prepare(self) -> None:
        """Makes the clock, and empties all tables."""
        self._outside = connection = psycopg.connect(self.url, autocommit=True)
        connection.execute(_CLOCK)
        connection.execute("SET session_replication_role = replica")
        tables = [str(row[0]) for row in connection.execute(_WITH_ROWS).fetchall()]
        if tables:
            listed = sql.SQL(", ").join(map(sql.Identifier, tables))
            connection.execute(sql.SQL("TRUNCATE {} RESTART IDENTITY CASCADE").format(listed))

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Read from outside, when nothing is being written."""
        return self._outside.execute(query.encode()).fetchall()

    def end_backend(self, process_id: int) -> None:
        """Returns when all is rolled back that it had open."""
        self._outside.execute("SELECT pg_terminate_backend(%s)", [process_id])
        while self._outside.execute("SELECT FROM pg_stat_activity WHERE pid = %s", [process_id]).fetchall():
            pass

    async def connect(self, url: str, *, autocommit: bool = False) -> TurnConnection:
        """What `services.database.connection.connect` is replaced by."""
        await asyncio.sleep(self._latency_s())
        if self.weather.down:
            raise ConnectionLost("the server does not answer")
        connection = TurnConnection.begin(self, self._spare.pop() if self._spare else self._open(url))
        connection._autocommit = autocommit
        self.connections.append(connection)
        return connection

    def _open(self, url: str) -> pq.abc.PGconn:
        connection = psycopg.connect(url, autocommit=True)
        connection.execute(_SESSION)
        self._opened.append(connection)
        return connection.pgconn

    def take_back(self, pgconn: pq.abc.PGconn) -> None:
        """Nobody has it any more, and nothing is open on it."""
        pgconn.exec_(b"DEALLOCATE ALL")
        self._spare.append(pgconn)

    async def enter(self, connection: TurnConnection) -> None:
        """Waits until no other transaction is open. Raises ConnectionLost."""
        if self._owner is not connection:
            self.reached(connection.loop, Moment.BEFORE_TRANSACTION)
        if self._owner is not connection or self.rng.random() < _OTHERS_SHARE:
            await asyncio.sleep(self._latency_s())
        while self._owner is not connection and not connection.closed:
            if self._owner is None:
                self._owner, self._owned_since_s = connection, self.world.now_s
                connection.tell_time(self.world.now_s)
                break
            waiting_for_turn = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting_for_turn)
            await waiting_for_turn
        if self.weather.down or (self.weather.loss and self.rng.random() < self.weather.loss):
            self.break_off(connection)
        if connection.closed:
            self.leave(connection)
            raise ConnectionLost("the connection is lost")

    def carried_out(self, connection: TurnConnection) -> None:
        """What was asked is done; the answer may get lost."""
        ended = connection.has_just_ended_a_transaction()
        if self.weather.loss and self.rng.random() < self.weather.loss:
            self.lost_in_commit += ended
            self.break_off(connection)
            raise ConnectionLost("the connection was lost before the answer came")
        if ended:
            self.reached(connection.loop, Moment.AFTER_TRANSACTION)
        if connection.closed or connection.is_idle:
            self.leave(connection)

    def leave(self, connection: TurnConnection) -> None:
        """The next one may begin."""
        if self._owner is not connection:
            return
        self._owner = None
        waiting_for_turn, self._waiting = self._waiting, []
        for position in self.rng.permutation(len(waiting_for_turn)).tolist():
            future = waiting_for_turn[position]
            if not future.done() and not future.get_loop().is_closed():
                future.get_loop().call_soon(_let_in, future)

    def break_off(self, connection: TurnConnection) -> None:
        """The server rolls back what was open, and the connection is no more."""
        connection.finish_now()
        self.leave(connection)

    def end_what_hangs(self) -> None:
        """After each turn."""
        if self._owner is not None and self.world.now_s > self._owned_since_s + HANGS_AT_MOST_S:
            self.hung += 1
            self.break_off(self._owner)

    def disconnect(self, loops: Sequence[SimulatedLoop]) -> None:
        """These processes were killed: their connections end."""
        for connection in [one for one in self.connections if one.loop in loops]:
            self.break_off(connection)

    def notify(self, channels: Sequence[str]) -> None:
        """All that listen to one of these channels are told a moment later."""
        self.connections = [one for one in self.connections if not one.closed]
        for connection in self.connections:
            for channel in channels:
                if channel in connection.listened:
                    connection.loop.call_later(self._latency_s(), connection.receive, channel)

    def close(self) -> None:
        """Nobody uses it any more."""
        for connection in self.connections:
            connection.finish_now()
        for opened in [self._outside, *self._opened]:
            opened.close()

    def _latency_s(self) -> float:
        return float(self.rng.exponential(self.weather.latency_s))


def _let_in(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class TurnConnection(PooledConnection):
    """A real connection: what it asks is carried out at once, when its turn has come."""

    postgres: PostgresByTurns
    loop: SimulatedLoop

    listened: set[str]
    _received: deque[str]
    _told: asyncio.Future[None] | None
    _is_over: bool
    _was_open: bool

    @classmethod
    def begin(cls, postgres: PostgresByTurns, pgconn: pq.abc.PGconn) -> Self:
        """One of the process that runs at the moment."""
        connection = cls(pgconn)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        connection.postgres, connection.loop = postgres, loop
        connection.channels_to_wake, connection.listened = set(), set()
        connection._received, connection._told = deque(), None
        connection._is_over = connection._was_open = False
        return connection

    @property
    def closed(self) -> bool:
        return self._is_over

    @property
    def is_idle(self) -> bool:
        """Whether no transaction is open, and nothing on its way."""
        return (
            self.pgconn.transaction_status == pq.TransactionStatus.IDLE
            and self.pgconn.pipeline_status == pq.PipelineStatus.OFF
        )

    def has_just_ended_a_transaction(self) -> bool:
        """Whether one was open before what was carried out last, and none is now. To be asked each time."""
        is_open = self.pgconn.transaction_status != pq.TransactionStatus.IDLE
        was_open, self._was_open = self._was_open, is_open
        return was_open and not is_open

    def tell_time(self, now_s: float) -> None:
        """Statements that ask the server's clock are told this."""
        self.pgconn.exec_(f"SET simulated.now_s = '{now_s!r}'".encode())

    async def wait(self, gen: Any, interval: float = 1.0, timeout: float | None = None) -> Any:  # noqa: ASYNC109 -- the driver's own
        """Overrides that of the driver, through which it does everything."""
        await self.postgres.enter(self)
        try:
            result = waiting.wait(gen, self.pgconn.socket, interval)
        except BaseException:
            if self.closed or self.is_idle:
                self.postgres.leave(self)
            raise
        self.postgres.carried_out(self)
        return result

    @asynccontextmanager
    async def pipeline(self) -> AsyncIterator[AsyncPipeline]:
        """The driver leaves it without `wait`."""
        try:
            async with super().pipeline() as pipeline:
                yield pipeline
        finally:
            if self.closed or self.is_idle:
                self.postgres.leave(self)

    async def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
        """Channels are the simulation's: PostgreSQL would tell of them when it likes."""
        text = query.as_string(self) if isinstance(query, sql.Composable) else query
        if isinstance(text, str) and text.startswith("LISTEN "):
            self.listened.add(text.removeprefix("LISTEN ").strip('"'))
            text = "SELECT 1"
        elif isinstance(text, str) and text.startswith("SELECT pg_notify"):
            cursor = await super().execute("SELECT 1")
            self.postgres.notify(params[0])
            return cursor
        return await super().execute(text, params, **options)

    async def notifies(  # type: ignore[override]  # it yields what the driver does
        self,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 -- the driver's own
        stop_after: int | None = None,
    ) -> AsyncIterator[Notify]:
        """Those that come within `timeout` simulated seconds."""
        until_s = float("inf") if timeout is None else self.loop.time() + timeout
        while self.loop.time() < until_s:
            while self._received:
                yield Notify(self._received.popleft(), "", 0)
            self._told = self.loop.create_future()
            await asyncio.wait({self._told}, timeout=until_s - self.loop.time())
            if self.closed:
                raise ConnectionLost("the connection is lost")

    def receive(self, channel: str) -> None:
        """A notification has come."""
        self._received.append(channel)
        if self._told is not None and not self._told.done():
            self._told.set_result(None)

    def finish_now(self) -> None:
        """Ends it, and has whatever is open rolled back before anything else happens."""
        if self._is_over:
            return
        self._is_over = self._closed = True
        if self.pgconn.pipeline_status != pq.PipelineStatus.OFF:
            process_id = self.pgconn.backend_pid
            self.pgconn.finish()
            self.postgres.end_backend(process_id)
        else:
            if not self.is_idle:
                self.pgconn.exec_(b"ROLLBACK")
            self.postgres.take_back(self.pgconn)
        if not self.loop.is_closed():
            self.loop.call_soon(self.receive, "")

    async def close(self) -> None:
        if not self.closed:
            self.finish_now()
            self.postgres.leave(self)
