"""The gRPC face of data placement. What takes long runs in processes of their own; the loop of this one stays free."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeAlias, TypeVar

import grpc

from data_placement.copy_choices import CorrelatedFailure, SpareShare
from data_placement.plan_choices import PlanChoices
from domain.clock import Clock
from formats.problems import suggestion
from services.data_placement import applying, capacity
from services.data_placement.folder_task import FolderRequest, run_folder_task
from services.data_placement.messages import (
    community_message,
    plan_message,
    proposal_message,
    reader_message,
    table_message,
)
from services.data_placement.moves_look import list_moves, moves_under_way
from services.data_placement.planner import Planner
from services.data_placement.settings import DataSettings
from services.data_placement.warehouse_upload import receive_files
from services.database import plan_store, table_reader
from services.database.community_store import load_community
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.lease_store import LeaseLost
from services.database.plan_store import PlanState, PlanUnderWay, StoredPlan
from services.database.warehouse_import import ImportChoices
from services.global_scheduler.visible import owners
from services.grpc_errors import Exhausted, InvalidArgument, NotFound, PreconditionFailed, Unavailable
from services.security.audit import audited
from topmast.v1 import data_placement_pb2 as messages
from topmast.v1 import data_placement_pb2_grpc

_PATIENCE_REAL_S = 10.0
_LOOK_INTERVAL_REAL_S = 0.2
"""At a plan that is being made."""
_CHUNK_BYTES = 2**20
MOST_FOLDERS = 4
"""Imports and exports at a time: each is a process, and a folder on the disk."""
_RETRY_FOLDER_AFTER_S = 10.0
_LARGEST_PAGE = 10_000
_USUAL_PAGE = 100

Context: TypeAlias = "grpc.aio.ServicerContext[object, object]"
_Result = TypeVar("_Result")


class DataPlacementServicer(data_placement_pb2_grpc.DataPlacementServicer):
    """The catalog, plans, and what becomes of them."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        settings: DataSettings,
        planner: Planner,
        *,
        require_ready: Callable[[], None],
    ) -> None:
        """`require_ready` raises Unavailable while calls cannot be answered."""
        self._database = database
        self._clock = clock
        self._settings = settings
        self._planner = planner
        self._require_ready = require_ready
        self._folders = 0

    # ------------------------------------------------------------ the catalog

    async def ImportWarehouse(
        self, request: AsyncIterator[messages.ImportWarehouseRequest], context: Context
    ) -> messages.ImportWarehouseResponse:
        self._require_ready()
        with self._folder("import") as folder:
            options = await receive_files(request, Path(folder))
            choices = ImportChoices(options.keep_others, options.take_places)
            answer = await run_folder_task(self._folder_request(folder, choices, dry_run=options.dry_run))
        return messages.ImportWarehouseResponse(**dict(answer))  # type: ignore[arg-type]  # fields by name

    async def ExportWarehouse(
        self, request: messages.ExportWarehouseRequest, context: Context
    ) -> AsyncIterator[messages.WarehouseFileChunk]:
        self._require_ready()
        with self._folder("export") as folder:
            await run_folder_task(self._folder_request(folder, None))
            for path in await asyncio.to_thread(_files, Path(folder)):
                with path.open("rb") as file:
                    while content := await asyncio.to_thread(file.read, _CHUNK_BYTES):
                        yield messages.WarehouseFileChunk(file=path.name, content=content)

    async def ListTables(self, request: messages.ListTablesRequest, context: Context) -> messages.ListTablesResponse:
        _check_texts(region=request.region, namespace=request.namespace, page_token=request.page_token)
        limit = _page_size(request.page_size)
        load = partial(
            table_reader.load_page,
            region=request.region,
            namespace=request.namespace,
            after=request.page_token,
            limit=limit + 1,
            owners=owners(),
        )
        found = await self._snapshot(load)
        if request.region and not found:
            await self._snapshot(partial(_require_region, region=request.region))
        more = found[limit - 1].table if len(found) > limit else ""
        return messages.ListTablesResponse(tables=map(table_message, found[:limit]), next_page_token=more)

    async def ExplainTable(self, request: messages.ExplainTableRequest, context: Context) -> messages.TableExplanation:
        _check_texts(table=request.table)
        return await self._snapshot(partial(self._explained, table=request.table))

    async def DeclareDataCapacity(
        self, request: messages.DeclareDataCapacityRequest, context: Context
    ) -> messages.DeclareDataCapacityResponse:
        return await self._run(partial(capacity.declare_capacity, request=request))

    # ------------------------------------------------------------ plans

    async def PlanPlacement(
        self, request: messages.PlanPlacementRequest, context: Context
    ) -> AsyncIterator[messages.PlacementPlanProgress]:
        self._require_ready()
        choices = chosen(request.settings, self._settings.choices())
        try:
            number = await self._planner.begin(choices)
        except PlanUnderWay as busy:
            raise PreconditionFailed("PLAN_UNDER_WAY", "plan", str(busy)) from busy
        except LeaseLost as lost:
            raise Unavailable("the process that places data changes at the moment; try again") from lost
        said = ("", -1.0)
        while True:
            plan = await self._snapshot(partial(plan_store.load_plan, plan=number))
            if plan is None or plan.state is not PlanState.RUNNING:
                break
            if (plan.stage, plan.done) != said:
                said = (plan.stage, plan.done)
                yield messages.PlacementPlanProgress(plan=number, stage=plan.stage, done=plan.done)
            await self._planner.wait(_LOOK_INTERVAL_REAL_S)
        result = await self._snapshot(partial(_plan_answer, plan=number, moves=_USUAL_PAGE))
        yield messages.PlacementPlanProgress(plan=number, done=1.0, result=result)

    async def GetPlacementPlan(
        self, request: messages.GetPlacementPlanRequest, context: Context
    ) -> messages.PlacementPlan:
        return await self._snapshot(
            partial(_plan_answer, plan=request.plan or None, moves=_page_size(request.moves, "moves"))
        )

    async def ApplyPlacementPlan(
        self, request: messages.ApplyPlacementPlanRequest, context: Context
    ) -> messages.ApplyPlacementPlanResponse:
        apply = partial(
            applying.apply_plan,
            plan=request.plan or None,
            now_s=self._clock.now(),
            tables_move=self._settings.moves,
        )
        return await self._run(apply)

    async def ListTableMoves(
        self, request: messages.ListTableMovesRequest, context: Context
    ) -> messages.ListTableMovesResponse:
        _check_texts(state=request.state, table=request.table)
        limit = _page_size(request.page_size)
        return await self._snapshot(
            partial(list_moves, state=request.state, table=request.table, limit=limit, page_token=request.page_token)
        )

    # ------------------------------------------------------------ the database

    async def _explained(self, connection: AnyConnection, table: str) -> messages.TableExplanation:
        visible = owners()
        record = await table_reader.load_table(connection, table, visible)
        if record is None and visible is not None:
            # Names that are alike may be others'.
            raise NotFound("table", table)
        if record is None:
            alike = await table_reader.names_alike(connection, table)
            raise NotFound("table", table, suggestion(table, alike, "table of that beginning"))
        readers, count = await table_reader.load_readers(
            connection, table, self._clock.now(), self._settings.history_days
        )
        plan = await plan_store.load_plan(connection)
        proposed = [] if plan is None else await plan_store.moves_of_table(connection, plan.plan, table)
        community = await load_community(connection, table)
        return messages.TableExplanation(
            table=table_message(record),
            # Readers have names, and no tenants: who is limited to some gets to know how many there are.
            readers=map(reader_message, readers) if visible is None else (),
            all_readers=count,
            proposed=[proposal_message(0 if plan is None else plan.plan, move) for move in proposed],
            moves=await moves_under_way(connection, table),
            community=None if community is None or visible is not None else community_message(community),
        )

    @contextmanager
    def _folder(self, what: str) -> Iterator[str]:
        """An empty folder for one call. Raises Exhausted while MOST_FOLDERS calls have theirs."""
        if self._folders >= MOST_FOLDERS:
            raise Exhausted(
                f"{MOST_FOLDERS} imports and exports are under way; try again when one has ended", _RETRY_FOLDER_AFTER_S
            )
        self._folders += 1
        try:
            with tempfile.TemporaryDirectory(prefix=f"topmast-{what}-") as folder:
                yield folder
        finally:
            self._folders -= 1

    def _folder_request(self, folder: str, choices: ImportChoices | None, *, dry_run: bool = False) -> FolderRequest:
        return FolderRequest(self._database.url, folder, self._settings.history_days, choices, dry_run)

    async def _run(self, operation: Callable[[AnyConnection], Awaitable[_Result]]) -> _Result:
        self._require_ready()
        return await self._database.run(audited(operation), give_up_after_s=_PATIENCE_REAL_S)

    async def _snapshot(self, operation: Callable[[AnyConnection], Awaitable[_Result]]) -> _Result:
        self._require_ready()
        return await self._database.run(operation, snapshot=True, give_up_after_s=_PATIENCE_REAL_S)


def chosen(asked: messages.PlacementSettings, usual: PlanChoices) -> PlanChoices:
    """What was asked for, and else what is usual. Raises InvalidArgument naming the field."""
    for index, failure in enumerate(asked.correlated_failures):
        path = f"settings.correlated_failures[{index}]"
        _check_texts(**{f"{path}.region": failure.region, f"{path}.other": failure.other})
    for index, spare in enumerate(asked.spare_gpu_shares):
        _check_texts(**{f"settings.spare_gpu_shares[{index}].region": spare.region})
    changes: dict[str, object] = {field.name: value for field, value in asked.ListFields()}
    if asked.correlated_failures:
        changes["correlated_failures"] = tuple(
            [CorrelatedFailure(each.region, each.other, each.probability) for each in asked.correlated_failures]
        )
    if asked.spare_gpu_shares:
        changes["spare_gpu_shares"] = tuple([SpareShare(each.region, each.share) for each in asked.spare_gpu_shares])
    try:
        return replace(usual, **changes)  # type: ignore[arg-type]  # fields by name
    except ValueError as error:
        field = str(error).partition(" ")[0]
        raise InvalidArgument.of(f"settings.{field}", str(error).removeprefix(f"{field} ")) from error


async def _plan_answer(connection: AnyConnection, plan: int | None, moves: int) -> messages.PlacementPlan:
    stored: StoredPlan | None = await plan_store.load_plan(connection, plan)
    if stored is None:
        raise applying.no_such_plan(plan)
    return plan_message(
        stored,
        await plan_store.count_moves(connection, stored.plan),
        await plan_store.load_moves(connection, stored.plan, -1, moves),
    )


async def _require_region(connection: AnyConnection, region: str) -> None:
    """Raises NotFound for a region that the fleet does not have."""
    regions = [str(each) for each in await table_reader.region_names(connection)]
    if region not in regions:
        raise NotFound("region", region, suggestion(region, regions, "region"))


def _files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def _check_texts(**texts: str) -> None:
    """Raises InvalidArgument for text that no name has, and that a database does not take."""
    for field, text in texts.items():
        if "\0" in text:
            raise InvalidArgument.of(field, "has a NUL character; remove it")


def _page_size(asked: int, field: str = "page_size") -> int:
    """Raises InvalidArgument for a page that is too large."""
    if not 0 <= asked <= _LARGEST_PAGE:
        raise InvalidArgument.of(field, f"is {asked}; it must be from 1 to {_LARGEST_PAGE}, or 0 for {_USUAL_PAGE}")
    return asked or _USUAL_PAGE
