"""Transactions that cost few round trips: statements are sent while the answers to earlier ones are still on their way.

In a pipelined transaction a statement is sent when it is executed and waited for when its rows are fetched. What must be the
case before the next statement is sent is fetched first; what need not is executed together (`together`), and statements
of which nothing is fetched (most writes) are checked by the commit at the latest. The server carries everything out in the
order in which it was sent, and nothing after the first error.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar, overload

import psycopg
from psycopg.errors import PipelineAborted, ProgrammingError

from services.database.connection import AnyConnection
from services.task_end import end_task

_First = TypeVar("_First")
_Second = TypeVar("_Second")
_Third = TypeVar("_Third")
_Fourth = TypeVar("_Fourth")
_Fifth = TypeVar("_Fifth")
_Sixth = TypeVar("_Sixth")
_Seventh = TypeVar("_Seventh")


@asynccontextmanager
async def pipelined_transaction(connection: AnyConnection) -> AsyncIterator[None]:
    """One transaction on a connection that is in none: sent with it are BEGIN, at the end of the block COMMIT.

    What is executed in it may be neither COPY nor read by a cursor of the server, and must not look at `rowcount`: only what is
    fetched has been waited for. Raises what the server refused, here at the latest; then, and when the block raises, nothing has happened.
    """
    # The driver would wait for the answer to a BEGIN of its own, and to a COMMIT apart from what precedes it.
    await connection.set_autocommit(True)
    try:
        async with connection.pipeline():
            await connection.execute("BEGIN")
            yield
            await connection.execute("COMMIT")
    finally:
        await _leave(connection)


async def _leave(connection: AnyConnection) -> None:
    """As it was before, or closed: the server rolls back what has lost its connection."""
    if connection.closed:
        return
    try:
        if connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            await connection.rollback()
        await connection.set_autocommit(False)
    except psycopg.Error:
        await connection.close()
    except BaseException:
        await connection.close()
        raise


@overload
async def together(
    connection: AnyConnection, first: Coroutine[Any, Any, _First], second: Coroutine[Any, Any, _Second], /
) -> tuple[_First, _Second]: ...
@overload
async def together(
    connection: AnyConnection,
    first: Coroutine[Any, Any, _First],
    second: Coroutine[Any, Any, _Second],
    third: Coroutine[Any, Any, _Third],
    /,
) -> tuple[_First, _Second, _Third]: ...
@overload
async def together(
    connection: AnyConnection,
    first: Coroutine[Any, Any, _First],
    second: Coroutine[Any, Any, _Second],
    third: Coroutine[Any, Any, _Third],
    fourth: Coroutine[Any, Any, _Fourth],
    /,
) -> tuple[_First, _Second, _Third, _Fourth]: ...
@overload
async def together(
    connection: AnyConnection,
    first: Coroutine[Any, Any, _First],
    second: Coroutine[Any, Any, _Second],
    third: Coroutine[Any, Any, _Third],
    fourth: Coroutine[Any, Any, _Fourth],
    fifth: Coroutine[Any, Any, _Fifth],
    /,
) -> tuple[_First, _Second, _Third, _Fourth, _Fifth]: ...
@overload
async def together(
    connection: AnyConnection,
    first: Coroutine[Any, Any, _First],
    second: Coroutine[Any, Any, _Second],
    third: Coroutine[Any, Any, _Third],
    fourth: Coroutine[Any, Any, _Fourth],
    fifth: Coroutine[Any, Any, _Fifth],
    sixth: Coroutine[Any, Any, _Sixth],
    /,
) -> tuple[_First, _Second, _Third, _Fourth, _Fifth, _Sixth]: ...
@overload
async def together(
    connection: AnyConnection,
    first: Coroutine[Any, Any, _First],
    second: Coroutine[Any, Any, _Second],
    third: Coroutine[Any, Any, _Third],
    fourth: Coroutine[Any, Any, _Fourth],
    fifth: Coroutine[Any, Any, _Fifth],
    sixth: Coroutine[Any, Any, _Sixth],
    seventh: Coroutine[Any, Any, _Seventh],
    /,
) -> tuple[_First, _Second, _Third, _Fourth, _Fifth, _Sixth, _Seventh]: ...
async def together(connection: AnyConnection, *work: Coroutine[Any, Any, object]) -> tuple[object, ...]:
    """The results of these, all of whose statements go over the connection: in a pipeline each waits while the others are under way.

    The first statements of all of them are sent in their order, the further ones in the order in which answers come: none
    may need what another one does with its second. All have ended when this returns or raises; of several errors the first
    one's that is the cause.
    """
    # All stand in line with their first statements before any of them does more: else the first would wait for its answer alone.
    gathering: asyncio.Future[list[object | BaseException]] | None = None
    try:
        async with connection.lock:
            gathering = asyncio.gather(*work, return_exceptions=True)
            gathering.add_done_callback(_heard)
            await asyncio.sleep(0)
    except asyncio.CancelledError:
        if gathering is None:
            for one in work:
                one.close()
        else:
            await end_task(gathering)
        raise
    outcomes = await gathering
    failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    if failures:
        raise next((failure for failure in failures if not _follows(failure)), failures[0])
    return tuple(outcomes)


def _heard(gathering: asyncio.Future[list[object | BaseException]]) -> None:
    """It fails by being cancelled alone, and who cancels twice does not ask it."""
    if not gathering.cancelled():
        gathering.exception()


def _follows(failure: BaseException) -> bool:
    """Whether it only says that something else has failed before.

    After an error the server passes over what was sent behind it, which fails with that alone. Of a connection that is lost hears who
    reads from it at that moment: the others, whose answers never came, find no result.
    """
    no_result = isinstance(failure, ProgrammingError) and failure.sqlstate is None
    return no_result or isinstance(failure, PipelineAborted)
