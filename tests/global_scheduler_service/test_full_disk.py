"""A full disk is said at once, shown where people and programs look, and over by itself when there is room again."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2
from psycopg import sql

from services.configuration import Configuration
from services.global_scheduler.disk_room import DiskSettings
from services.global_scheduler.tier import SUBMISSIONS
from tests.conftest_postgres import SessionServer
from tests.global_scheduler_service.service import CONFIGURATION, Service, detail, in_service, refused, submit_request
from topmast.v1 import global_scheduler_pb2 as messages

_MIB = 2**20
_DISK_MIB = 96
_RESERVE_MIB = 24

_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A disk of its own, which is small."""
    # Not below `tmp_path`, where the user that the server of PostgreSQL runs as may not look.
    if shutil.which("mount") is None:
        pytest.skip("there is no mount command here")
    place = Path(tempfile.mkdtemp(prefix="topmast-disk-"))
    mounting = ["mount", "-t", "tmpfs", "-o", f"size={_DISK_MIB}m", "tmpfs", str(place)]
    try:
        mounted = subprocess.run(mounting, capture_output=True, text=True, check=False)
        if mounted.returncode != 0:
            pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
        try:
            place.chmod(0o755)
            yield place
        finally:
            subprocess.run(["umount", "-l", str(place)], check=True)
    finally:
        place.rmdir()


@contextmanager
def _database_on(disk: Path, server: SessionServer) -> Iterator[str]:
    """The URL of a database of which all tables are on that disk; the log of its server is not."""
    files = disk / "database"
    files.mkdir()
    owner = server.layout.data.stat()
    os.chown(files, owner.st_uid, owner.st_gid)
    server.execute(sql.SQL("CREATE TABLESPACE small LOCATION {}").format(sql.Literal(str(files))))
    name = server.new_database()
    try:
        server.execute(sql.SQL("ALTER DATABASE {} SET TABLESPACE small").format(sql.Identifier(name)))
        yield server.layout.url(name)
    finally:
        server.drop_database(name)
        server.execute(sql.SQL("DROP TABLESPACE {}").format(sql.Identifier("small")))


def _fill(disk: Path, left_mib: int) -> Path:
    """Only so much is left; the file goes when it is removed."""
    room = os.statvfs(disk)
    with (disk / "filler").open("wb") as filler:
        for _ in range(room.f_bavail * room.f_frsize // _MIB - left_mib):
            filler.write(bytes(_MIB))
    return disk / "filler"


def _configuration(reserve_mib: float) -> Configuration:
    settings = DiskSettings(reserve_mib=reserve_mib, look_every_real_s=0.05)
    return CONFIGURATION.model_copy(update={"disk": settings})


async def _until_submissions(service: Service, status: int) -> None:
    watching = service.health.Watch(health_pb2.HealthCheckRequest(service=SUBMISSIONS))
    async for received in watching:
        if received.status == status:
            break
    watching.cancel()


async def _check_refused(service: Service, error: grpc.aio.AioRpcError, said: str) -> None:
    assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert said in str(error.details())
    info = detail(error, error_details_pb2.ErrorInfo)
    assert (info.reason, info.domain) == ("DISK_FULL", "topmast")
    await _until_submissions(service, _NOT_SERVING)
    await service.until_health(_SERVING)  # everything else goes on
    (shown,) = (await service.stub.GetStatus(messages.GetStatusRequest())).health
    assert shown.kind == "DISK_FULL"
    assert said in shown.sentence
    assert shown.since_s > 0


def test_a_full_disk_is_said_at_once_and_over_by_itself(small_disk: Path, postgres_server: SessionServer) -> None:
    home = small_disk / "home"
    home.mkdir()

    async def home_is_full(service: Service) -> None:
        await service.submit()
        filler = _fill(small_disk, _RESERVE_MIB - 4)
        await _until_submissions(service, _NOT_SERVING)
        await _check_refused(
            service, await refused(service.submit()), "24 MiB are kept for what runs (disk.reserve_mib)"
        )
        filler.unlink()
        await _until_submissions(service, _SERVING)
        await service.submit()
        assert not (await service.stub.GetStatus(messages.GetStatusRequest())).health

    async def database_is_full(service: Service) -> None:
        filler = _fill(small_disk, 0)
        many = messages.SubmitWorkloadsRequest(requests=[submit_request()] * 1_000)
        error = None
        while error is None:  # what is left within the files of the database
            try:
                await service.stub.SubmitWorkloads(many)
            except grpc.aio.AioRpcError as failed:
                error = failed
        await _check_refused(service, error, "the disk of the database is full")
        filler.unlink()
        await _until_submissions(service, _SERVING)
        await service.submit()

    with _database_on(small_disk, postgres_server) as url:
        in_service(url, home_is_full, configuration=_configuration(_RESERVE_MIB), home=home)
        in_service(url, database_is_full, configuration=_configuration(0.0), home=home)
