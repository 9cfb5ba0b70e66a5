"""What clients could fill the disk or the process table with is refused."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import grpc
import pytest

from services.clock import SystemClock
from services.data_placement.moves_look import list_moves
from services.data_placement.planner import Planner
from services.data_placement.server import MOST_FOLDERS, Context, DataPlacementServicer
from services.data_placement.settings import DataSettings
from services.data_placement.warehouse_upload import receive_files
from services.database.engine import Database
from services.global_scheduler.recorded_calls import is_recorded
from services.grpc_errors import CallRefused, InvalidArgument
from services.security.principal import Principal, PrincipalKind
from services.security.roles import Role
from topmast.v1 import data_placement_pb2 as messages


def _chunk(content: bytes) -> messages.ImportWarehouseRequest:
    return messages.ImportWarehouseRequest(chunk=messages.WarehouseFileChunk(file="tables.csv", content=content))


async def _stream(*chunks: bytes) -> AsyncIterator[messages.ImportWarehouseRequest]:
    for content in chunks:
        yield _chunk(content)


def test_never_more_folders_at_a_time_than_stated() -> None:
    async def scenario() -> None:
        database, clock, settings = Database("postgresql://127.0.0.1:1/none"), SystemClock(), DataSettings()
        servicer = DataPlacementServicer(
            database, clock, settings, Planner(database, clock, settings, 3.0), require_ready=lambda: None
        )
        nowhere = cast(Context, None)  # neither call looks at it

        async def stalled(begun: asyncio.Event) -> AsyncIterator[messages.ImportWarehouseRequest]:
            begun.set()
            await asyncio.Event().wait()
            yield _chunk(b"")

        begun = [asyncio.Event() for _ in range(MOST_FOLDERS)]
        imports = [asyncio.create_task(servicer.ImportWarehouse(stalled(each), nowhere)) for each in begun]
        await asyncio.gather(*(each.wait() for each in begun))
        with pytest.raises(CallRefused, match="4 imports and exports are under way") as refused:
            await servicer.ImportWarehouse(_stream(b""), nowhere)
        assert refused.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        with pytest.raises(CallRefused, match="imports and exports are under way"):
            async for _ in servicer.ExportWarehouse(messages.ExportWarehouseRequest(), nowhere):
                pass
        imports[0].cancel()
        await asyncio.gather(imports[0], return_exceptions=True)
        another = asyncio.Event()
        imports[0] = asyncio.create_task(servicer.ImportWarehouse(stalled(another), nowhere))
        await another.wait()
        for each in imports:
            each.cancel()
        await asyncio.gather(*imports, return_exceptions=True)

    asyncio.run(scenario())


def test_an_upload_has_a_largest_size(tmp_path: Path) -> None:
    with pytest.raises(CallRefused, match="more than 5 bytes") as refused:
        asyncio.run(receive_files(_stream(b"abc", b"def"), tmp_path, largest_bytes=5))
    assert refused.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_the_options_of_an_import_are_its_first_part_as_the_audit_log_has_it(tmp_path: Path) -> None:
    async def parts() -> AsyncIterator[messages.ImportWarehouseRequest]:
        yield messages.ImportWarehouseRequest(options=messages.ImportOptions(dry_run=True))
        yield messages.ImportWarehouseRequest(options=messages.ImportOptions())

    with pytest.raises(InvalidArgument, match="options: must be in the first message"):
        asyncio.run(receive_files(parts(), tmp_path))
    admin = Principal("root", Role.ADMIN, None, PrincipalKind.TOKEN)
    for dry_run in (True, False):
        first = messages.ImportWarehouseRequest(options=messages.ImportOptions(dry_run=dry_run))
        assert is_recorded("/topmast.v1.DataPlacement/ImportWarehouse", first, admin) is not dry_run


def test_a_page_token_of_nobody_is_refused(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database, database.transaction() as connection:
            with pytest.raises(InvalidArgument, match="page_token"):
                await list_moves(connection, "", "", 10, "9" * 40)

    asyncio.run(scenario())
