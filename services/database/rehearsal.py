"""What a transaction would come to: done in full, and taken back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from services.database.connection import AnyConnection
from services.database.engine import Database

_Result = TypeVar("_Result")


class _Rehearsed(Exception, Generic[_Result]):
    """Takes the transaction back, and its result out of it."""

    def __init__(self, result: _Result) -> None:
        self.result = result
        super().__init__("a rehearsal")


async def rehearse(
    database: Database,
    operation: Callable[[AnyConnection], Awaitable[_Result]],
    *,
    give_up_after_s: float | None = None,
) -> _Result:
    """The result of the operation, of which nothing stays. Raises what it raises, and DatabaseUnavailable."""

    async def rehearsed(connection: AnyConnection) -> None:
        raise _Rehearsed(await operation(connection))

    try:
        await database.run(rehearsed, give_up_after_s=give_up_after_s)
    except _Rehearsed as done:
        result: _Result = done.result
        return result
    raise AssertionError("a rehearsal always ends by being taken back")
