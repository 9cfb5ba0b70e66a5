"""Calls plan on the memory of a session in threads of their own, and the session's loop stands still meanwhile.

The loop changes and reads the memory between any two of its waits, on the event loop's thread. What a call's thread places
tentatively it would take for real there, and what it releases would be undone with that. So a call visits: it begins while
the loop waits for something, and the loop goes on when the visit is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

_Result = TypeVar("_Result")


class Visits:
    """Visits to one memory, one at a time. After each the loop goes on before the next one begins."""

    __slots__ = ("_loop_went_on", "_present", "_steady")

    def __init__(self, steady: asyncio.Lock) -> None:
        """`steady`: held during each visit; visits wait for what else is done under it."""
        self._steady = steady
        self._present: asyncio.Future[Any] | None = None
        self._loop_went_on = asyncio.Event()
        self._loop_went_on.set()

    async def visit(self, function: Callable[[], _Result]) -> _Result:
        """The result of the function, which runs in a thread. It runs to its end also when who waits for it does not."""
        await self._steady.acquire()
        try:
            await self._loop_went_on.wait()
            visit = asyncio.get_running_loop().run_in_executor(None, function)
        except BaseException:
            self._steady.release()
            raise
        self._present = visit
        visit.add_done_callback(self._leave)
        return await asyncio.shield(visit)

    def hold_up(self, loop: Coroutine[Any, Any, _Result]) -> Coroutine[Any, Any, _Result]:
        """The loop of the session, which goes on from each of its waits only while nobody visits."""
        return _awaited(_HeldUp(self, loop))

    def _leave(self, _: object) -> None:
        self._present = None
        self._steady.release()

    def until_over(self) -> Generator[Any, Any, None]:
        """Waits until nobody visits."""
        try:
            while self._present is not None:
                self._loop_went_on.clear()
                yield from asyncio.wait([self._present]).__await__()
        finally:
            self._loop_went_on.set()


async def _awaited(held_up: _HeldUp[_Result]) -> _Result:
    return await held_up


class _HeldUp(Generic[_Result]):
    """A coroutine that is held up while somebody visits, also when it is cancelled."""

    __slots__ = ("_coroutine", "_visits")

    def __init__(self, visits: Visits, coroutine: Coroutine[Any, Any, _Result]) -> None:
        self._visits = visits
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, _Result]:
        thrown: BaseException | None = None
        while True:
            try:
                waits_for = self._coroutine.send(None) if thrown is None else self._coroutine.throw(thrown)
            except StopIteration as ended:
                result: _Result = ended.value
                return result
            thrown = None
            try:
                yield waits_for
            except GeneratorExit:
                self._coroutine.close()
                raise
            except BaseException as error:  # noqa: BLE001 - whatever it is, it is for the coroutine
                # What it waited for has failed, or it is cancelled: that is the coroutine's own affair.
                thrown = error
            thrown = yield from self._over(thrown)

    def _over(self, thrown: BaseException | None) -> Generator[Any, Any, BaseException | None]:
        """What is to be thrown into the coroutine when nobody visits any more."""
        while True:
            try:
                yield from self._visits.until_over()
            except asyncio.CancelledError as cancelled:
                thrown = cancelled
            else:
                return thrown
