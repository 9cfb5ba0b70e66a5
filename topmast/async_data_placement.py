"""Tables of the data warehouse, for asyncio: the catalog, plans of where they should be, moves. data_placement.py is generated from it."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Iterator

import grpc

from topmast.async_connection import AsyncConnection
from topmast.errors import error_from_call
from topmast.messages import local_path, mapping, message_of, whole_number
from topmast.v1 import data_placement_pb2 as messages
from topmast.v1 import data_placement_pb2_grpc
from topmast.warehouse_files import import_requests, readable_folder, received_folder
from topmast.warehouses import (
    AppliedPlan,
    ImportedWarehouse,
    PlacementChoices,
    PlacementPlan,
    PlanProgress,
    TableExplanation,
    TableMove,
    WarehouseTable,
    applied_from_proto,
    explanation_from_proto,
    imported_from_proto,
    link_to_proto,
    move_from_proto,
    plan_from_proto,
    progress_from_proto,
    settings_to_proto,
    table_from_proto,
)

_LARGEST_PAGE = 1_000


class AsyncDataPlacement:
    """What a client can do with tables; `client.data` is one. Every method raises TopmastError, and TypeError for unknown keywords."""

    def __init__(self, connection: AsyncConnection, address: str, peer: str) -> None:
        self._connection = connection
        self._address = address
        self._peer = peer

    @property
    def _stub(self) -> data_placement_pb2_grpc.DataPlacementAsyncStub:
        return data_placement_pb2_grpc.DataPlacementStub(self._connection.channel(self._address))

    async def import_folder(
        self,
        folder: str | os.PathLike[str],
        *,
        dry_run: bool = False,
        keep_others: bool = False,
        take_places: bool = False,
    ) -> ImportedWarehouse:
        """Brings a warehouse folder (Parquet or CSV) into the catalog, all or nothing; a dry run only says what would change.

        `keep_others`: tables of earlier imports that this folder lacks stay. `take_places`: known tables are where the
        folder says, and not where the catalog does.
        """
        options = message_of(messages.ImportOptions, dry_run=dry_run, keep_others=keep_others, take_places=take_places)
        requests: Iterator[messages.ImportWarehouseRequest] = import_requests(readable_folder(folder), options)
        try:
            return imported_from_proto(await self._stub.ImportWarehouse(requests))
        except grpc.RpcError as error:
            raise error_from_call(error, self._peer) from error

    async def export_folder(self, folder: str | os.PathLike[str]) -> None:
        """Writes the catalog into a folder, which is made; files that are there under the same names are replaced, all or none.

        Raises PreconditionError, and leaves the folder alone, where it has files of another warehouse beside them.
        """
        with received_folder(local_path("folder", folder)) as received:
            try:
                async for chunk in self._stub.ExportWarehouse(messages.ExportWarehouseRequest()):
                    received.add(chunk)
            except grpc.RpcError as error:
                raise error_from_call(error, self._peer) from error

    async def tables(
        self, *, region: str = "", namespace: str = "", limit: int | None = None
    ) -> AsyncGenerator[WarehouseTable, None]:
        """Tables by name; of a region, those that it holds a copy of."""
        limit = whole_number("limit", limit, least=0)
        listed, token = 0, ""
        while limit is None or listed < limit:
            size = _LARGEST_PAGE if limit is None else min(limit - listed, _LARGEST_PAGE)
            request = message_of(
                messages.ListTablesRequest, region=region, namespace=namespace, page_size=size, page_token=token
            )
            page = await self._connection.call(self._stub.ListTables, request, self._peer)
            for table in page.tables:
                yield table_from_proto(table)
            listed += len(page.tables)
            token = page.next_page_token
            if not token:
                return

    async def explain(self, table: str) -> TableExplanation:
        """Where a table is, who reads it, what the last plan says of it, which moves are on the way."""
        request = message_of(messages.ExplainTableRequest, table=table)
        return explanation_from_proto(await self._connection.call(self._stub.ExplainTable, request, self._peer))

    async def make_plan(self, choices: PlacementChoices | None = None) -> AsyncGenerator[PlanProgress, None]:
        """Makes a plan; yields how far it is, and at last the plan."""
        request = messages.PlanPlacementRequest(settings=settings_to_proto(choices))
        try:
            async for message in self._stub.PlanPlacement(request):
                yield progress_from_proto(message)
        except grpc.RpcError as error:
            raise error_from_call(error, self._peer) from error

    async def plan(self, number: int = 0, *, moves: int = 0) -> PlacementPlan:
        """A plan, or the newest (0), with so many of its first moves (0: 100)."""
        request = message_of(messages.GetPlacementPlanRequest, plan=number, moves=moves)
        return plan_from_proto(await self._connection.call(self._stub.GetPlacementPlan, request, self._peer))

    async def apply_plan(self, number: int = 0) -> AppliedPlan:
        """Hands the moves of a plan, or of the newest (0), to the migrations."""
        request = message_of(messages.ApplyPlacementPlanRequest, plan=number)
        return applied_from_proto(await self._connection.call(self._stub.ApplyPlacementPlan, request, self._peer))

    async def moves(self, *, state: str = "", table: str = "", limit: int = 100) -> tuple[TableMove, ...]:
        """Moves of tables, newest first."""
        request = message_of(messages.ListTableMovesRequest, state=state, table=table, page_size=limit)
        page = await self._connection.call(self._stub.ListTableMoves, request, self._peer)
        return tuple(move_from_proto(move) for move in page.moves)

    async def declare_capacity(
        self,
        storage_bytes: dict[str, int] | None = None,
        link_bytes_per_day: dict[tuple[str, str], float] | None = None,
    ) -> None:
        """Says what regions can store, and what can be copied in a day from one to another; the rest stays as it is."""
        regions = [
            message_of(messages.RegionStorage, region=region, storage_bytes=size)
            for region, size in mapping("storage_bytes", storage_bytes or {}).items()
        ]
        links = [
            link_to_proto(link, amount)
            for link, amount in mapping("link_bytes_per_day", link_bytes_per_day or {}).items()
        ]
        request = messages.DeclareDataCapacityRequest(
            regions=sorted(regions, key=lambda one: one.region),
            links=sorted(links, key=lambda one: (one.source, one.target)),
        )
        await self._connection.call(self._stub.DeclareDataCapacity, request, self._peer)
