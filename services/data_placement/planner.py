"""Has plans made: when somebody asks, and each day at the set time. Only the holder of the lease `data_placement` does."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from functools import partial
from typing import TypeVar

import structlog

from data_placement.plan_choices import PlanChoices
from services.clock import ServiceClock
from services.data_placement.applying import apply_plan
from services.data_placement.plan_process import run_planning
from services.data_placement.planning import PlanRequest
from services.data_placement.settings import DataSettings
from services.data_placement.use_counting import UseCounting
from services.database import plan_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.errors import DatabaseUnavailable
from services.database.lease_store import Lease, LeaseLost
from services.database.plan_store import PlanState, PlanUnderWay
from services.grpc_errors import CallRefused, Unavailable
from services.tiers.fenced_transaction import fenced_transaction
from services.tiers.lease_keeper import LeaseKeeper
from services.tiers.side_by_side import until_one_ends

DATA_LEASE = "data_placement"
_LOOK_INTERVAL_REAL_S = 1.0
LONGEST_PLAN_REAL_S = 4 * 3600.0
"""A plan without a time limit is given up after so long; ..."""
BESIDE_TIME_LIMIT_REAL_S = 1_800.0
"""... one with a time limit after so long more: to read the catalog and to store what was found."""
_log = structlog.get_logger(__name__)
_Result = TypeVar("_Result")


class Planner:
    """Works while it holds its lease: `run` until cancelled."""

    def __init__(
        self, database: Database, clock: ServiceClock, settings: DataSettings, lease_duration_real_s: float
    ) -> None:
        self._database = database
        self._clock = clock
        self._settings = settings
        self._lease_duration_real_s = lease_duration_real_s
        self._counting = UseCounting(database, clock)
        self._lease: Lease | None = None
        self._asked: asyncio.Queue[PlanRequest] = asyncio.Queue()
        self._ended = asyncio.Event()

    async def run(self, address: str) -> None:
        """Serves whenever the lease is ours."""
        holder = f"{socket.gethostname()}:{secrets.token_hex(6)}"
        keeper = LeaseKeeper(self._database, DATA_LEASE, holder, address, self._lease_duration_real_s)
        while True:
            self._lease = lease = await keeper.wait_until_held()
            try:
                # What a predecessor was making nobody waits for any more; its process finds that out and stops.
                await self._fenced(partial(self._abandon, problem="the service that made it stopped; make another one"))
                await until_one_ends(keeper.keep(lease), self._make_plans(), self._make_daily(), self._counting.run())
            except (LeaseLost, DatabaseUnavailable) as error:
                _log.warning("data placement begins anew", reason=str(error))
            finally:
                self._lease = None
                await keeper.release(lease)

    async def begin(self, choices: PlanChoices) -> int:
        """The number of a plan that is being made from now on. Raises PlanUnderWay, and Unavailable without the lease."""
        if self._lease is None:
            raise Unavailable("another process places data at the moment; try again")
        await self._counting.catch_up()
        plan = await self._fenced(
            lambda connection: plan_store.begin_plan(connection, asdict(choices), self._clock.now())
        )
        await self._asked.put(PlanRequest(self._database.url, plan, choices, self._settings.history_days))
        return plan

    async def wait(self, at_most_real_s: float) -> None:
        """Returns when the next plan has ended, or after that time."""
        try:
            async with asyncio.timeout(at_most_real_s):
                await self._ended.wait()
        except TimeoutError:
            return

    async def _make_plans(self) -> None:
        while True:
            request = await self._asked.get()
            try:
                # Where the process could not say itself what went wrong.
                problem = "the process that made it ended without a result; the log of the service may say why"
                longest_real_s = _longest_real_s(request.choices)
                try:
                    async with asyncio.timeout(longest_real_s):
                        await run_planning(request)
                except TimeoutError:
                    problem = (
                        f"it was not ready after {longest_real_s:g} s, and was ended; set a time limit for the solver"
                    )
                await self._fenced(partial(self._abandon, problem=problem, plan=request.plan))
            finally:
                # Whoever waits again waits for the next end: a plan whose maker lost its lease goes on running for a while.
                self._ended.set()
                self._ended = asyncio.Event()

    async def _make_daily(self) -> None:
        """Each day, also where the service was down when it was due."""
        begun_s = self._clock.now()
        while True:
            now_s = self._clock.now()
            last_s = await self._database.run(plan_store.last_asked_s)
            due_s = self._settings.next_plan_s(begun_s if last_s is None else last_s)
            if due_s is None:
                await asyncio.Event().wait()
                return
            if now_s < due_s:
                wait_real_s = self._clock.real_seconds(due_s - now_s)
                await asyncio.sleep(min(wait_real_s, _LOOK_INTERVAL_REAL_S))
                continue
            try:
                plan = await self.begin(self._settings.choices())
            except PlanUnderWay:
                await asyncio.sleep(_LOOK_INTERVAL_REAL_S)
                continue
            if self._settings.apply == "automatic":
                await self._apply_when_ready(plan)

    async def _apply_when_ready(self, plan: int) -> None:
        while True:
            stored = await self._database.run(partial(plan_store.load_plan, plan=plan))
            if stored is None or stored.state not in (PlanState.RUNNING, PlanState.READY):
                return
            if stored.state is PlanState.READY:
                break
            await self.wait(_LOOK_INTERVAL_REAL_S)
        try:
            done = await self._fenced(
                lambda connection: apply_plan(connection, plan, self._clock.now(), tables_move=self._settings.moves)
            )
        except CallRefused as refused:
            _log.warning("a plan was not applied", plan=plan, reason=refused.sentence)
        else:
            _log.info("applied a plan", plan=plan, moves=done.moves, bytes=done.bytes)

    async def _abandon(self, connection: AnyConnection, problem: str, plan: int | None = None) -> None:
        await plan_store.abandon_plan(connection, problem, self._clock.now(), plan)

    async def _fenced(self, operation: Callable[[AnyConnection], Awaitable[_Result]]) -> _Result:
        """In one transaction during which the lease is ours. Raises LeaseLost."""
        lease = self._lease
        if lease is None:
            raise LeaseLost(f"the lease {DATA_LEASE} is not held")
        async with fenced_transaction(self._database, lease) as connection:
            return await operation(connection)


def _longest_real_s(choices: PlanChoices) -> float:
    return LONGEST_PLAN_REAL_S if choices.time_limit_s is None else choices.time_limit_s + BESIDE_TIME_LIMIT_REAL_S
