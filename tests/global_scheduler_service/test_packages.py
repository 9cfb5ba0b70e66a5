"""Packages of working directories: over real gRPC, into a real store and a real database."""

import asyncio
import hashlib
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import grpc
import psycopg
import pytest

from services.configuration import Configuration
from services.database import package_store
from services.database.engine import Database
from services.global_scheduler.package_uploads import PackageUploads
from services.grpc_errors import PreconditionFailed
from services.storage.settings import StorageSettings
from services.wire.workloads import specification_to_proto
from tests.data_placement_service.object_store import SECRET_KEY, object_store
from tests.database.small_world import specification, until_somebody_waits
from tests.global_scheduler_service.service import CONFIGURATION, Service, in_service, refused
from topmast.v1 import global_scheduler_pb2 as messages
from topmast.v1 import package_pb2, package_pb2_grpc, workload_pb2

CONTENT = b"a package, as far as the store is concerned"


def name_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def configured(**settings: object) -> Configuration:
    return CONFIGURATION.model_copy(update={"storage": StorageSettings.model_validate(settings)})


def naming(package: str) -> workload_pb2.WorkloadSpecification:
    wanted = specification_to_proto(specification())
    wanted.package = package
    return wanted


class Packages:
    """A client of the store of packages."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.stub: package_pb2_grpc.PackagesAsyncStub = package_pb2_grpc.PackagesStub(channel)

    async def has(self, package: str) -> bool:
        return (await self.stub.FindPackage(package_pb2.FindPackageRequest(package=package))).stored

    async def upload(self, *contents: bytes, package: str = "") -> str:
        name = package or name_of(b"".join(contents))
        parts = [package_pb2.PackagePart(package=name, content=content) for content in contents]
        await self.stub.UploadPackage(iter(parts))
        return name


@asynccontextmanager
async def packages_of(service: Service) -> AsyncIterator[Packages]:
    async with grpc.aio.insecure_channel(service.address) as channel:
        yield Packages(channel)


def stored_files(home: Path) -> set[str]:
    return {path.name for path in (home / "packages").glob("*")}


async def until(condition: Callable[[], bool]) -> None:
    await asyncio.to_thread(_look_until, condition)


def _look_until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 60.0
    while not condition():
        assert time.monotonic() < deadline_s, "it did not become true"
        time.sleep(0.01)


def test_a_package_is_stored_by_its_content_and_workloads_name_it(database_url: str, tmp_path: Path) -> None:
    async def scenario(service: Service) -> None:
        async with packages_of(service) as packages:
            name = name_of(CONTENT)
            assert not await packages.has(name)
            early = await refused(service.submit(naming(name)))
            assert early.code() is grpc.StatusCode.FAILED_PRECONDITION
            assert name in (early.details() or "")
            assert await packages.upload(CONTENT[:10], CONTENT[10:]) == name
            assert await packages.has(name)
            assert stored_files(tmp_path) == {f"{name}.tar"}
            submitted = await service.submit(naming(name), key="nightly")
            assert (await service.get(submitted.workload)).specification.package == name
            # The package belongs to the content of a key.
            again = await service.submit(naming(name), key="nightly")
            assert (again.workload, again.existed) == (submitted.workload, True)
            other = await packages.upload(CONTENT, b"!")
            changed = await refused(service.submit(naming(other), key="nightly"))
            assert changed.code() is grpc.StatusCode.ALREADY_EXISTS
            # Those who name none go on as before.
            assert (await service.submit()).workload
            # One of a batch that is refused takes the others with it.
            requests = [messages.SubmitWorkloadRequest(specification=naming(one)) for one in (name, "0" * 64)]
            before = await service.rows("SELECT count(*) FROM workloads")
            batch = await refused(service.stub.SubmitWorkloads(messages.SubmitWorkloadsRequest(requests=requests)))
            assert batch.code() is grpc.StatusCode.FAILED_PRECONDITION
            assert await service.rows("SELECT count(*) FROM workloads") == before

    in_service(database_url, scenario, home=tmp_path)


def test_what_is_refused_leaves_nothing_behind(database_url: str, tmp_path: Path) -> None:
    async def scenario(service: Service) -> None:
        async with packages_of(service) as packages:
            limits = await packages.stub.GetPackageLimits(package_pb2.GetPackageLimitsRequest())
            assert (limits.greatest_bytes, limits.greatest_entries) == (100, 7)
            calls = {
                "SHA-256": packages.upload(CONTENT, package=name_of(b"something else")),
                "100 bytes": packages.upload(b"x" * 60, b"x" * 60),
                "at most 4194304": packages.upload(b"x" * (4 * 2**20 + 1)),
                "at least one part": packages.upload(),
                "64 hexadecimal digits": packages.upload(CONTENT, package="../../etc/passwd"),
                "must be a SHA-256": packages.has("no digest"),
            }
            for words, call in calls.items():
                error = await refused(call)
                assert (error.code(), words in (error.details() or "")) == (grpc.StatusCode.INVALID_ARGUMENT, True), (
                    words
                )
            bad = await refused(service.submit(naming("../../secrets")))
            assert (bad.code(), "specification.package" in (bad.details() or "")) == (
                grpc.StatusCode.INVALID_ARGUMENT,
                True,
            )

            # Nor does one that breaks off.
            async def endless() -> AsyncIterator[package_pb2.PackagePart]:
                yield package_pb2.PackagePart(package=name_of(CONTENT), content=CONTENT[:5])
                await asyncio.Event().wait()

            broken = packages.stub.UploadPackage(endless())
            await until(lambda: len(stored_files(tmp_path)) == 1)
            broken.cancel()
            await until(lambda: not stored_files(tmp_path))
            assert await packages.upload(CONTENT)

    settings = configured(greatest_package_bytes=100, greatest_package_entries=7)
    in_service(database_url, scenario, home=tmp_path, configuration=settings)
    assert stored_files(tmp_path) == {f"{name_of(CONTENT)}.tar"}


def test_all_packages_of_a_tenant_are_bounded_together(database_url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            settings = StorageSettings(greatest_tenant_package_bytes=100)
            uploads = PackageUploads(database, settings, f"file://{tmp_path / 'packages'}")
            first, second = b"1" * 60, b"2" * 41
            assert await uploads.receive(sent(first), {"ads"}) == 60
            assert await uploads.receive(sent(first), {"ads"}) == 60, "the same again takes nothing more"
            with pytest.raises(PreconditionFailed, match=r"tenant ads has 0\.0 MiB of packages and may have 0\.0 MiB"):
                await uploads.receive(sent(second), {"ads"})
            with pytest.raises(PreconditionFailed, match="tenant ads"):
                await uploads.receive(sent(second), {"ads", "vision"})
            assert await uploads.receive(sent(second), {"vision"}) == 41, "another tenant has its own share"
            assert await uploads.receive(sent(second)) == 41, "who is limited to no tenant is not counted"
            # What two are sending at a time counts together, and is given back when one breaks off.
            half_sent = asyncio.Event()
            breaking_off = asyncio.create_task(uploads.receive(sent(b"3" * 30, half_sent), {"ads"}))
            await half_sent.wait()
            with pytest.raises(PreconditionFailed, match="tenant ads"):
                await uploads.receive(sent(b"4" * 30), {"ads"})
            breaking_off.cancel()
            with pytest.raises(asyncio.CancelledError):
                await breaking_off
            assert await uploads.receive(sent(b"4" * 30), {"ads"}) == 30
            await uploads.close()

    asyncio.run(scenario())


def test_what_another_upload_of_a_tenant_has_stored_meanwhile_counts(database_url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            settings = StorageSettings(greatest_tenant_package_bytes=100)
            uploads = PackageUploads(database, settings, f"file://{tmp_path / 'packages'}")
            half_sent, goes_on = asyncio.Event(), asyncio.Event()
            slow = asyncio.create_task(uploads.receive(slowly_sent(b"1", b"2" * 60, half_sent, goes_on), {"ads"}))
            await half_sent.wait()
            assert await uploads.receive(sent(b"3" * 60), {"ads"}) == 60
            goes_on.set()
            with pytest.raises(PreconditionFailed, match="tenant ads"):
                await slow
            # Nothing of it is left, and nothing of what was stored meanwhile counts twice.
            assert await uploads.receive(sent(b"4" * 40), {"ads"}) == 40
            await uploads.close()

    asyncio.run(scenario())


async def slowly_sent(
    first: bytes, second: bytes, half_sent: asyncio.Event, goes_on: asyncio.Event
) -> AsyncIterator[package_pb2.PackagePart]:
    """A package in two parts; the second one comes when that event is set."""
    name = name_of(first + second)
    yield package_pb2.PackagePart(package=name, content=first)
    half_sent.set()
    await goes_on.wait()
    yield package_pb2.PackagePart(package=name, content=second)


async def sent(content: bytes, half_sent: asyncio.Event | None = None) -> AsyncIterator[package_pb2.PackagePart]:
    """The parts of a package; with an event it never ends, and the event is set once a part was taken."""
    yield package_pb2.PackagePart(package=name_of(content), content=content)
    if half_sent is not None:
        half_sent.set()
        await asyncio.Event().wait()


def test_packages_that_nobody_needs_are_removed_and_no_others(database_url: str, tmp_path: Path) -> None:
    async def scenario(service: Service) -> None:
        async with packages_of(service) as packages:
            needed, ended, unused, young = [await packages.upload(CONTENT, bytes([number])) for number in range(4)]
            await service.submit(naming(needed))
            over = (await service.submit(naming(ended))).workload
            await service.rows(
                "UPDATE packages SET used_at = now() - interval '8 days' WHERE package <> %s RETURNING package", young
            )
            uploads = PackageUploads(service.database, StorageSettings(), f"file://{tmp_path / 'packages'}")
            assert await uploads.clean() == 1
            assert stored_files(tmp_path) == {f"{name}.tar" for name in (needed, ended, young)}
            assert not await packages.has(unused)
            gone = await refused(service.submit(naming(unused)))
            assert "upload its folder again" in (gone.details() or "")
            await service.stub.CancelWorkload(messages.CancelWorkloadRequest(workload=over))
            # From the end of its workload on it is kept for as long as others.
            assert await uploads.clean() == 0
            await service.rows("UPDATE packages SET used_at = now() - interval '8 days' RETURNING package")
            assert await uploads.clean() == 2
            assert stored_files(tmp_path) == {f"{needed}.tar"}
            await uploads.close()
            # What is gone is uploaded anew.
            assert await packages.upload(CONTENT, bytes([2])) == unused
            assert await packages.has(unused)

    in_service(database_url, scenario, home=tmp_path)


def test_who_leaves_when_all_has_come_leaves_a_package_that_is_written_down(database_url: str, tmp_path: Path) -> None:
    """What is in the store and not written down nobody would ever take out."""

    async def scenario() -> None:
        async with Database(database_url) as database, database.transaction() as holding:
            uploads = PackageUploads(database, StorageSettings(), f"file://{tmp_path / 'packages'}")
            await holding.execute("LOCK TABLE packages IN EXCLUSIVE MODE")
            leaving = asyncio.create_task(uploads.receive(sent(CONTENT), {"ads"}))
            await until(lambda: stored_files(tmp_path) == {f"{name_of(CONTENT)}.tar"})
            leaving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await leaving
            await holding.commit()
            with psycopg.connect(database_url, autocommit=True) as outside:
                owners = "SELECT tenant FROM package_owners"
                await until(lambda: outside.execute(owners).fetchall() == [("ads",)])
            assert await uploads.has(name_of(CONTENT), {"ads"})
            await uploads.close()

    asyncio.run(scenario())


def test_a_package_that_was_taken_out_of_the_store_by_hand_is_asked_for_again(
    database_url: str, tmp_path: Path
) -> None:
    async def scenario(service: Service) -> None:
        async with packages_of(service) as packages:
            name = await packages.upload(CONTENT)
            (tmp_path / "packages" / f"{name}.tar").unlink()
            assert not await packages.has(name)
            await packages.upload(CONTENT)
            assert await packages.has(name)

    in_service(database_url, scenario, home=tmp_path)


@contextmanager
def unwritable(tmp_path: Path) -> Iterator[Path]:
    """A folder in which nothing can be made: a file stands where it would be."""
    blocked = tmp_path / "blocked"
    blocked.write_text("no folder")
    yield blocked


def test_a_store_that_does_not_work_is_said_and_may_work_later(database_url: str, tmp_path: Path) -> None:
    with unwritable(tmp_path) as blocked:

        async def scenario(service: Service) -> None:
            async with packages_of(service) as packages:
                error = await refused(packages.upload(CONTENT))
                assert error.code() is grpc.StatusCode.UNAVAILABLE
                assert f"the store of packages, file://{blocked}" in (error.details() or "")
                blocked.unlink()
                assert await packages.upload(CONTENT)

        in_service(database_url, scenario, configuration=configured(packages=f"file://{blocked}/store"))


def test_packages_are_stored_in_s3(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with object_store(monkeypatch, "east") as store:

        async def scenario(service: Service) -> None:
            async with packages_of(service) as packages:
                content = os.urandom(3 << 20)
                name = await packages.upload(content[: 2 << 20], content[2 << 20 :])
                assert store.files("east") == {f"{name}.tar": content}
                assert await packages.has(name)
                error = await refused(packages.upload(CONTENT, package=name_of(b"something else")))
                assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
                assert SECRET_KEY not in (error.details() or "")
                await until(lambda: store.names("east") == {f"{name}.tar"})

        in_service(database_url, scenario, configuration=configured(packages="s3://east/tables"))


def test_never_is_a_package_removed_that_is_submitted_with_just_then(database_url: str, tmp_path: Path) -> None:
    """Between the moment at which nobody was seen to need it and the moment at which it is locked."""

    async def scenario(service: Service) -> None:
        async with packages_of(service) as packages:
            package = await packages.upload(CONTENT)
            await service.rows("UPDATE packages SET used_at = now() - interval '8 days' RETURNING package")

            async def look() -> str | None:
                async with service.database.transaction() as connection:
                    # Who looks here who uses packages has to wait, in the middle of the statement.
                    await connection.execute(
                        """CREATE TEMP VIEW workload_packages AS SELECT * FROM public.workload_packages
                            WHERE (SELECT true FROM pg_advisory_xact_lock_shared(77))"""
                    )
                    found = await package_store.next_unused(connection, 86_400.0)
                    await connection.execute("DROP VIEW pg_temp.workload_packages")
                    return found

            async with service.database.transaction() as gate:
                await gate.execute("SELECT pg_advisory_xact_lock(77)")
                looking = asyncio.create_task(look())
                await until_somebody_waits(service.database)
                await service.submit(naming(package))
            assert await looking is None

    in_service(database_url, scenario, home=tmp_path)


def test_never_is_a_package_said_to_be_stored_that_is_being_removed(database_url: str, tmp_path: Path) -> None:
    async def scenario(service: Service) -> None:
        async with packages_of(service) as packages:
            package = await packages.upload(CONTENT)
            await service.rows("UPDATE packages SET used_at = now() - interval '8 days' RETURNING package")
            async with service.database.transaction() as removing:
                assert await package_store.next_unused(removing, 86_400.0) == package
                again = asyncio.create_task(packages.upload(CONTENT))
                await until_somebody_waits(service.database)
                (tmp_path / "packages" / f"{package}.tar").unlink()
                await package_store.forget(removing, package)
            error = await refused(again)
            assert error.code() is grpc.StatusCode.UNAVAILABLE
            assert not await packages.has(package)
            await packages.upload(CONTENT)
            assert await packages.has(package)

    in_service(database_url, scenario, home=tmp_path)


def test_who_leaves_while_the_store_is_slow_to_begin_leaves_nothing_behind(database_url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            uploads = PackageUploads(database, StorageSettings(), f"file://{tmp_path / 'packages'}")

            async def parts() -> AsyncIterator[package_pb2.PackagePart]:
                yield package_pb2.PackagePart(package=name_of(CONTENT), content=CONTENT)

            with uploads._opening:
                receiving = asyncio.create_task(uploads.receive(parts()))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                receiving.cancel()
                await asyncio.gather(receiving, return_exceptions=True)
            await until(lambda: (tmp_path / "packages").is_dir() and not stored_files(tmp_path))
            await uploads.close()

    asyncio.run(scenario())
