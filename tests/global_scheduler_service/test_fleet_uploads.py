"""Fleets that come in parts: over real gRPC, into a real database."""

import asyncio
import contextlib
import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import grpc
import psycopg
import pytest
from pydantic import TypeAdapter
from typer.testing import CliRunner

from domain.fleet import Fleet
from formats.fleet_file import dump_fleet, fleet_document
from services.command_line.main import app
from services.database.revision_store import Subject, lock_revision
from services.global_scheduler import fleet_task
from services.global_scheduler.fleet_task import FleetTask
from services.wire.fleets import fleet_to_proto
from tests.database.small_world import FLEET, until_somebody_waits
from tests.global_scheduler_service.breaking_proxy import breaking_proxy
from tests.global_scheduler_service.fleet_uploads import (
    LARGER,
    PART_OF_SMALL,
    apply,
    begin,
    many_machines,
    small_parts,
    stored_machines,
    upload,
    upload_request,
)
from tests.global_scheduler_service.service import (
    Service,
    in_service,
    refused,
    running_service,
    service_in_background,
)
from topmast import AsyncClient, Client, FleetUploadProgress
from topmast.fleet_parts import LARGEST_SINGLE_BYTES, PART_BYTES, FleetParts
from topmast.v1 import global_scheduler_pb2 as messages

# ---------------------------------------------------------------- what goes well


def test_a_fleet_larger_than_a_message_may_be_goes_in_parts(database_url: str) -> None:
    fleet = fleet_to_proto(many_machines(30_000))
    heard: list[FleetUploadProgress] = []
    with service_in_background(database_url) as address, Client(address) as client:
        applied = client.apply_fleet(fleet, told=heard.append)
        assert (applied.regions, applied.clusters, applied.machines, applied.gpus) == (1, 1, 30_000, 240_000)
        assert client.status().regions[0].machines == 30_000
        size_bytes = messages.ApplyFleetRequest(fleet=fleet).ByteSize()
        assert size_bytes > LARGEST_SINGLE_BYTES
        assert [progress.sent_bytes for progress in heard] == [*range(0, size_bytes, PART_BYTES), size_bytes]
        # The same once more needs no part.
        heard.clear()
        assert client.apply_fleet(fleet, told=heard.append) == applied
        assert heard == [FleetUploadProgress(size_bytes, size_bytes)]


@pytest.mark.parametrize("written", [dump_fleet, lambda fleet: json.dumps(fleet_document(fleet))], ids=["yaml", "json"])
def test_the_command_applies_a_large_list_of_machines(
    database_url: str, tmp_path: Path, written: Callable[[Fleet], str]
) -> None:
    file = tmp_path / "fleet"
    file.write_text(written(many_machines(30_000)))
    with service_in_background(database_url) as address:
        applied = CliRunner(env={"TOPMAST_ADDRESS": address}).invoke(app, ["apply", "-f", str(file)])
        assert applied.exit_code == 0, applied.stderr
        assert "fleet applied: 1 region, 1 cluster, 30,000 machines, 240,000 GPUs" in applied.stdout.splitlines()
        with psycopg.connect(database_url) as connection:
            assert connection.execute("SELECT tried_s IS NOT NULL FROM fleet_uploads").fetchall() == [(True,)]


def test_the_command_shows_on_a_terminal_how_far_it_is(database_url: str, tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text(dump_fleet(many_machines(30_000)))
    command = [sys.executable, "-c", "from services.command_line.main import main; main()", "apply", "-f", str(file)]
    with service_in_background(database_url) as address:
        terminal, its_end = pty.openpty()
        environment = {**os.environ, "TOPMAST_ADDRESS": address, "TERM": "xterm", "COLUMNS": "120"}
        applying = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=its_end, env=environment)
        os.close(its_end)
        shown = b""
        # A terminal whose other end is closed says so by an error.
        with contextlib.suppress(OSError):
            while piece := os.read(terminal, 65_536):
                shown += piece
        os.close(terminal)
        assert applying.wait() == 0
    assert b"sending the fleet" in shown
    assert b"applying the fleet" in shown


def test_a_small_fleet_goes_in_one_message(database_url: str) -> None:
    heard: list[FleetUploadProgress] = []
    with service_in_background(database_url) as address, Client(address) as client:
        assert client.apply_fleet(fleet_to_proto(LARGER), told=heard.append).regions == 3
    assert heard == []


def test_a_fleet_with_tenants_is_applied_as_in_one_message(database_url: str) -> None:
    async def run() -> None:
        async with running_service(database_url) as service:
            request = upload_request(with_tenants=True)
            whole = FleetParts.of(request)
            await upload(service, whole)
            in_parts = await apply(service, whole)
            stored = await stored_machines(service)
            assert in_parts == await service.stub.ApplyFleet(request)
            # What is there already is not written again: the revision stays.
            assert await stored_machines(service) == stored
            assert len(stored) == 15
            assert (await service.submit()).workload

    asyncio.run(run())


def test_two_clients_with_the_same_fleet_and_one_with_another(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        same, other = FleetParts.of(upload_request()), FleetParts.of(upload_request(FLEET))
        await asyncio.gather(begin(service, same), begin(service, other), begin(service, same))
        await asyncio.gather(
            service.stub.UploadFleet(small_parts(same)),
            service.stub.UploadFleet(small_parts(other)),
            service.stub.UploadFleet(small_parts(same)),
        )
        first, second = await asyncio.gather(apply(service, same), apply(service, same))
        assert first == second
        assert [row[0] for row in await service.rows("SELECT region FROM regions ORDER BY position")][-1] == "west"
        assert (await apply(service, other)).regions == 2
        assert len(await stored_machines(service)) == 7

    in_service(database_url, scenario)


# ---------------------------------------------------------------- what breaks off


def test_a_stream_that_breaks_off_changes_nothing_and_is_gone_on_with(database_url: str) -> None:
    """The client is gone, and the scheduler begins anew: the parts that have come stay, the fleet stays as it was."""
    whole = FleetParts.of(upload_request())
    sent = 3 * PART_OF_SMALL

    async def breaks_off() -> list[tuple[object, ...]]:
        async with running_service(database_url) as service:
            await service.apply()
            before = await stored_machines(service)
            await begin(service, whole)
            stream = service.stub.UploadFleet()
            for part in small_parts(whole, until=sent):
                await stream.write(part)
            while await begin(service, whole) < sent:
                pass
            stream.cancel()
            error = await refused(apply(service, whole))
            assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
            assert f"only {sent} of {len(whole.content)} bytes" in str(error.details())
            assert await stored_machines(service) == before
            return before

    async def goes_on(before: list[tuple[object, ...]]) -> None:
        async with running_service(database_url, holder="successor") as service:
            assert await stored_machines(service) == before
            assert await begin(service, whole) == sent
            parts = list(small_parts(whole, after=sent))
            assert (await service.stub.UploadFleet(iter(parts))).received_bytes == len(whole.content)
            assert len(parts) == -(-(len(whole.content) - sent) // PART_OF_SMALL)
            assert (await apply(service, whole)).regions == 3
            assert len(await stored_machines(service)) == 15

    before = asyncio.run(breaks_off())
    assert len(before) == 7
    asyncio.run(goes_on(before))


def test_a_client_goes_on_by_itself_where_its_connection_broke(database_url: str) -> None:
    fleet = fleet_to_proto(many_machines(40_000))
    heard: list[int] = []

    async def run() -> None:
        async with (
            running_service(database_url) as service,
            breaking_proxy(service.address, passed_bytes=7 * PART_BYTES // 2) as proxy,
            AsyncClient(proxy.address, attempts=1) as client,
        ):
            applying = asyncio.create_task(
                client.apply_fleet(fleet, told=lambda progress: heard.append(progress.sent_bytes))
            )
            while await service.rows("SELECT received_bytes FROM fleet_uploads") != [(3 * PART_BYTES,)]:
                assert not applying.done()
            proxy.break_off()
            assert (await applying).machines == 40_000

    asyncio.run(run())
    # What was on its way is lost; what was stored is not sent again.
    assert [now for before, now in pairwise(heard) if now <= before] == [3 * PART_BYTES]


def test_a_scheduler_that_stops_in_the_middle_of_applying_has_applied_nothing(database_url: str) -> None:
    whole = FleetParts.of(upload_request())

    async def run() -> None:
        async with running_service(database_url) as service:
            await service.apply()
            before = await stored_machines(service)
            await upload(service, whole)
            async with service.database.transaction() as connection:
                await lock_revision(connection, Subject.FLEET)
                applying = asyncio.ensure_future(apply(service, whole))
                await until_somebody_waits(service.database)
                service.running.cancel()
                assert (await refused(applying)).code() is grpc.StatusCode.UNAVAILABLE
            assert await stored_machines(service) == before
        async with running_service(database_url, holder="successor") as service:
            assert await stored_machines(service) == before
            assert await begin(service, whole) == len(whole.content)
            assert (await apply(service, whole)).regions == 3

    asyncio.run(run())


def test_the_process_that_applies_ends_with_the_scheduler_that_asked(database_url: str) -> None:
    """However that ends: its input ends then. Nothing is applied."""
    whole = FleetParts.of(upload_request())

    async def scenario(service: Service) -> None:
        before = await stored_machines(service)
        await upload(service, whole)
        task = TypeAdapter(FleetTask).dump_json(FleetTask(database_url, whole.upload, 1.0))
        async with service.database.transaction() as connection:
            await lock_revision(connection, Subject.FLEET)
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", fleet_task.__name__, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            assert process.stdin is not None
            process.stdin.write(task + b"\n")
            await until_somebody_waits(service.database)
            process.stdin.close()
            answered, _ = await process.communicate()
            assert (process.returncode, answered) == (3, b"")
        while await service.rows(
            """SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND xact_start IS NOT NULL
                                               AND pid <> pg_backend_pid()"""
        ):
            pass
        assert await stored_machines(service) == before

    in_service(database_url, scenario)


def test_what_is_being_applied_goes_on_without_its_caller(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        whole = FleetParts.of(upload_request())
        await upload(service, whole)
        async with service.database.transaction() as connection:
            await lock_revision(connection, Subject.FLEET)
            gone = service.stub.ApplyUploadedFleet(messages.ApplyUploadedFleetRequest(upload=whole.upload))
            waiting = asyncio.ensure_future(gone)
            await until_somebody_waits(service.database)
            gone.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        assert (await apply(service, whole)).regions == 3

    in_service(database_url, scenario)
