"""Uploads whose callers leave, or whose tier stops, when all has come."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest

from services.database.engine import Database
from services.global_scheduler.package_uploads import PackageUploads
from services.grpc_errors import PreconditionFailed
from services.storage.package_folder import PackageFolder, PackageWriter
from services.storage.settings import StorageSettings
from tests.global_scheduler_service.test_packages import name_of, sent, stored_files, until

_PATIENCE_REAL_S = 240.0


def _uploads(database: Database, folder: Path, settings: StorageSettings | None = None) -> PackageUploads:
    return PackageUploads(database, settings or StorageSettings(), f"file://{folder / 'packages'}")


def test_an_upload_that_was_left_counts_until_it_is_stored(database_url: str, tmp_path: Path) -> None:
    """So a tenant has no more than it may, however often it leaves."""

    async def scenario() -> None:
        async with Database(database_url) as database, database.transaction() as holding:
            uploads = _uploads(database, tmp_path, StorageSettings(greatest_tenant_package_bytes=100))
            first, second = b"1" * 60, b"2" * 60
            await holding.execute("LOCK TABLE packages IN EXCLUSIVE MODE")
            leaving = asyncio.create_task(uploads.receive(sent(first), {"ads"}))
            await until(lambda: stored_files(tmp_path) == {f"{name_of(first)}.tar"})
            leaving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await leaving
            other = asyncio.create_task(uploads.receive(sent(second), {"ads"}))
            await until(lambda: other.done() or f"{name_of(second)}.tar" in stored_files(tmp_path))
            await holding.commit()
            with pytest.raises(PreconditionFailed):
                await other
            await uploads.close()

    asyncio.run(scenario())
    assert _stored_bytes(database_url) == 60


def _stored_bytes(database_url: str) -> int:
    with psycopg.connect(database_url) as outside:
        row = outside.execute("SELECT sum(size_bytes) FROM packages JOIN package_owners USING (package)").fetchone()
    assert row is not None
    return int(row[0])


def test_what_is_being_finished_when_the_tier_stops_is_written_down(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_finish, go_on = threading.Event(), threading.Event()
    finish = PackageWriter.finish

    def slow(self: PackageWriter) -> None:
        at_finish.set()
        assert go_on.wait(_PATIENCE_REAL_S)
        finish(self)

    monkeypatch.setattr(PackageWriter, "finish", slow)
    content = b"x" * 10

    async def scenario() -> None:
        async with Database(database_url) as database:
            uploads = _uploads(database, tmp_path)
            receiving = asyncio.create_task(uploads.receive(sent(content), {"ads"}))
            await asyncio.to_thread(at_finish.wait)
            receiving.cancel()
            await asyncio.gather(receiving, return_exceptions=True)
            # As a tier stops: its calls are over, then its packages close, then the database.
            closing = asyncio.create_task(uploads.close())
            asyncio.get_running_loop().call_soon(go_on.set)
            await closing

    asyncio.run(scenario())
    assert stored_files(tmp_path) == {f"{name_of(content)}.tar"}
    assert _stored_bytes(database_url) == len(content)


def test_never_is_an_upload_given_up_in_the_middle_of_a_write(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_write, closing = threading.Event(), threading.Event()
    happened: list[str] = []
    ask, close = PackageFolder.ask, PackageWriter.close

    def slow(self: PackageFolder, call: Any, *arguments: Any, **options: Any) -> Any:
        name = getattr(call, "__name__", "")
        if name == "write":
            in_write.set()
            assert closing.wait(_PATIENCE_REAL_S)
        result = ask(self, call, *arguments, **options)
        if name == "write":
            happened.append("written")
        return result

    def told(self: PackageWriter) -> None:
        remove = self._folder.files.rm_file

        def told_remove(path: str) -> None:
            happened.append("removed")
            remove(path)

        monkeypatch.setattr(self._folder.files, "rm_file", told_remove)
        closing.set()
        close(self)

    monkeypatch.setattr(PackageFolder, "ask", slow)
    monkeypatch.setattr(PackageWriter, "close", told)

    async def scenario() -> None:
        async with Database(database_url) as database:
            uploads = _uploads(database, tmp_path)
            receiving = asyncio.create_task(uploads.receive(sent(b"x" * 10), {"ads"}))
            await asyncio.to_thread(in_write.wait)
            receiving.cancel()
            await asyncio.gather(receiving, return_exceptions=True)
            await until(lambda: "removed" in happened)
            await uploads.close()

    asyncio.run(scenario())
    assert happened == ["written", "removed"]
    assert stored_files(tmp_path) == set()
