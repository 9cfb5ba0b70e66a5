"""Workloads that ended long ago leave the database whole; whom anybody may still need stays."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import grpc
import pyarrow.parquet
import pytest
from sqlalchemy import Table as SqlTable

from domain.dependencies import ANY, Dependency
from domain.identifiers import TableId
from domain.life_cycle import State
from domain.notification import Notification
from domain.workload import TableInput, WorkloadSpecification
from services.database import event_store, use_store
from services.database.engine import Database
from services.retention import pruning
from services.retention.archive import Archive, ArchiveUnusable
from services.retention.pruning import Pruned, prune
from services.wire.workloads import specification_to_proto
from tests.database.small_world import specification, submission, submit
from tests.global_scheduler_service.service import Service, in_service, refused
from topmast.v1 import global_scheduler_pb2 as messages
from topmast.v1 import workload_pb2

_LATER_S = 4e9
"""Of a time by which all that has ended was over for long."""

_SECRET = "https://hooks.example.org/s3cret"  # noqa: S105 -- to be found nowhere

_TABLES = """
    SELECT table_name FROM information_schema.columns WHERE table_schema = 'public' AND column_name = 'workload'
     ORDER BY table_name"""


async def _submit(service: Service, wanted: WorkloadSpecification, key: str = "") -> str:
    return (await service.submit(specification_to_proto(wanted), key)).workload


async def _cancel(service: Service, workload: str) -> None:
    await service.stub.CancelWorkload(messages.CancelWorkloadRequest(workload=workload))


async def _tell_nobody(service: Service) -> None:
    """As if all notifications had been delivered."""
    await service.rows(
        """INSERT INTO notification_progress (one, through_sequence) VALUES (true, 1000000000)
           ON CONFLICT (one) DO UPDATE SET through_sequence = excluded.through_sequence RETURNING one"""
    )


async def _prune(database: Database, archive: Path | None = None, *, dry_run: bool = False) -> Pruned:
    """Everything that has ended is old; what is to be counted is."""
    newest = await database.run(event_store.newest_sequence) + 100
    await database.run(lambda connection: use_store.count_uses(connection, [], 0, newest))
    take_out = partial(prune, database, _LATER_S, None if archive is None else Archive(archive))
    return await take_out(workloads_cutoff_s=_LATER_S, dry_run=dry_run)


async def _tables_with(service: Service, workload: str) -> set[object]:
    """All in which there is anything of it, whatever tables there are."""
    tables = [row[0] for row in await service.rows(_TABLES)]
    assert len(tables) > 15
    found = set()
    for table in tables:
        if await service.rows(f"SELECT FROM {table} WHERE workload = %s", workload):
            found.add(table)
    return found


def _rich() -> WorkloadSpecification:
    """One that has something in every table that it can."""
    return replace(
        specification(),
        labels=(("team", "ads"),),
        tables=(TableInput(TableId("clicks")),),
        notify=Notification(_SECRET, ("ended",)),
    )


def test_a_workload_that_ended_long_ago_leaves_nothing_behind(database_url: str, tmp_path: Path) -> None:
    async def scenario(service: Service) -> None:
        await _tell_nobody(service)
        first = await _submit(service, _rich(), "key")
        gone = await _submit(service, replace(_rich(), after=(Dependency(ANY, first),)))
        stays = await _submit(service, _rich())
        assert {"workloads", "jobs", "workload_labels", "workload_tables", "notified_workloads"} <= await _tables_with(
            service, first
        )
        assert "workload_dependencies" in await _tables_with(service, gone)
        for workload in (first, gone):
            await _cancel(service, workload)
        would_go = await _prune(service.database, dry_run=True)
        went = await _prune(service.database, tmp_path)
        assert would_go.rows == went.rows
        assert went.rows["workloads"] == went.rows["jobs"] == 2
        for workload in (first, gone):
            assert await _tables_with(service, workload) == set()
            error = await refused(service.get(workload))
            assert error.code() is grpc.StatusCode.NOT_FOUND
        assert (await service.get(stays)).state == workload_pb2.WORKLOAD_STATE_PENDING
        assert (await _prune(service.database, tmp_path)).total == 0
        # A key against repetition goes with its workload.
        assert await _submit(service, _rich(), "key") not in {first, gone, stays}

    in_service(database_url, scenario)
    archived = [
        row
        for file in (tmp_path / "workloads").glob("*.parquet")
        for row in pyarrow.parquet.read_table(file).to_pylist()
    ]
    assert [row["state"] for row in archived] == ["CANCELLED", "CANCELLED"]


def test_never_is_the_address_of_a_notification_in_an_archive(database_url: str, tmp_path: Path) -> None:
    async def scenario(service: Service) -> None:
        await _tell_nobody(service)
        await _cancel(service, await _submit(service, _rich()))
        assert (await _prune(service.database, tmp_path)).rows["workloads"] == 1

    in_service(database_url, scenario)
    files = list(tmp_path.glob("*/*.parquet"))
    assert len(files) > 3
    for file in files:
        assert "s3cret" not in str(pyarrow.parquet.read_table(file).to_pylist()), file


def test_a_workload_for_which_another_one_waits_stays(database_url: str) -> None:
    """It has ended, and nobody has looked yet what that means for the other one."""

    async def scenario() -> None:
        async with Database(database_url) as database:
            needed = submission(1)
            waiting = submission(2, replace(specification(), after=(Dependency(ANY, needed.workload),)))
            await database.run(lambda connection: submit(connection, [needed, waiting]))
            async with database.transaction() as connection:
                await connection.execute(
                    "UPDATE workloads SET state = 'CANCELLED', ended_s = 1 WHERE workload = %s", [needed.workload]
                )
            assert "workloads" not in (await _prune(database)).rows
            async with database.transaction() as connection:
                await connection.execute("UPDATE workload_dependencies SET settled = true")
            assert (await _prune(database)).rows["workloads"] == 1

    asyncio.run(scenario())


def test_an_array_goes_when_all_of_it_is_over(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        array = await _submit(service, replace(specification(), array="0-2%2"))
        for index in (0, 2):
            await _cancel(service, f"{array}-{index:06}")
        assert "workloads" not in (await _prune(service.database)).rows
        await _cancel(service, f"{array}-000001")
        assert (await _prune(service.database)).rows["workloads"] == 3
        assert await service.rows("SELECT FROM workload_arrays") == []
        assert (await refused(service.get(array))).code() is grpc.StatusCode.NOT_FOUND

    in_service(database_url, scenario)


async def _ended(
    database: Database, wanted: WorkloadSpecification | None = None, state: State = State.CANCELLED
) -> None:
    """w000001, which ended long ago in that state, after a minute of work."""
    await database.run(lambda connection: submit(connection, [submission(1, wanted)]))
    async with database.transaction() as connection:
        await connection.execute("DELETE FROM queue_entries")
        await connection.execute("UPDATE workloads SET state = %s, ended_s = 1, attained_s = 60", [state])


async def _ended_array(database: Database, elements: int) -> None:
    """w000001, all of whose elements were cancelled long ago."""
    await _ended(database, replace(specification(), array=f"0-{elements - 1}"))


async def _all_workloads(database: Database) -> list[str]:
    async with database.transaction() as connection:
        cursor = await connection.execute("SELECT workload FROM workloads ORDER BY workload")
        return [row[0] for row in await cursor.fetchall()]


def test_an_element_that_has_to_stay_keeps_its_array(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            await _ended_array(database, 3)
            async with database.transaction() as connection:
                await connection.execute(
                    """INSERT INTO notification_deliveries (workload, sequence, host, body, made_real_s, due_real_s)
                       VALUES ('w000001-000001', 1, 'h', 'b', 0, 0)"""
                )
            await _prune(database)
            assert len(await _all_workloads(database)) == 3
            async with database.transaction() as connection:
                await connection.execute("DELETE FROM notification_deliveries")
            assert (await _prune(database)).rows["workloads"] == 3

    asyncio.run(scenario())


def test_never_is_an_array_there_in_part(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is longer than what is read at once, and the archive takes no more in its middle."""
    monkeypatch.setattr(pruning, "EVENTS_AT_ONCE", 2)
    written = 0
    write = Archive.write

    def full(self: Archive, table: SqlTable, rows: Sequence[Sequence[object]]) -> None:
        nonlocal written
        if table.name == "workloads":
            written += 1
            if written == 2:
                raise ArchiveUnusable("there is no room")
        write(self, table, rows)

    async def scenario() -> None:
        async with Database(database_url) as database:
            await _ended_array(database, 5)
            monkeypatch.setattr(Archive, "write", full)
            with pytest.raises(ArchiveUnusable):
                await _prune(database, tmp_path)
            assert len(await _all_workloads(database)) == 5
            assert (await _prune(database, tmp_path)).rows["workloads"] == 5
            assert await _all_workloads(database) == []

    asyncio.run(scenario())
    assert written == 5


def test_a_dry_run_counts_nothing_that_would_stay(database_url: str) -> None:
    """Events stay that are not counted yet, for the use of tables, and with them their workloads."""

    async def scenario() -> None:
        async with Database(database_url) as database:
            await _ended(database)
            take_out = partial(prune, database, _LATER_S, None, workloads_cutoff_s=_LATER_S)
            assert (await take_out(dry_run=True)).total == (await take_out()).total == 0
            assert (await _prune(database, dry_run=True)).rows == (await _prune(database)).rows
            assert await _all_workloads(database) == []

    asyncio.run(scenario())


def test_the_run_time_of_a_workload_that_goes_is_counted(database_url: str) -> None:
    """Also where nothing goes by run times, so that no scan pass counts them."""

    async def scenario() -> None:
        async with Database(database_url) as database:
            await _ended(database, state=State.COMPLETED)
            assert (await _prune(database)).rows["workloads"] == 1
            async with database.transaction() as connection:
                cursor = await connection.execute("SELECT runs, total_s FROM run_times_of_names")
                assert await cursor.fetchall() == [(1, 60.0)]

    asyncio.run(scenario())


def test_workloads_stay_unless_it_is_said(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        workload = await _submit(service, specification())
        await _cancel(service, workload)
        newest = await service.database.run(event_store.newest_sequence) + 100
        await service.database.run(lambda connection: use_store.count_uses(connection, [], 0, newest))
        assert (await prune(service.database, _LATER_S, None)).total > 0
        assert (await service.get(workload)).state == workload_pb2.WORKLOAD_STATE_CANCELLED

    in_service(database_url, scenario)
