"""Packages of working directories: taken from clients, put into the store by their content, and taken out when nobody needs them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import ParamSpec, TypeAlias, TypeVar

import grpc
import structlog

from formats.workload_checks import PACKAGE_RULE, is_package_name
from services.database import ownership_store, package_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.errors import DatabaseUnavailable
from services.global_scheduler.package_shares import PackageShare, PackageShares
from services.global_scheduler.visible import owners
from services.grpc_errors import InvalidArgument, Unavailable
from services.storage.package_folder import PackageFolder, PackageMistaken, PackageStoreFailed, PackageWriter
from services.storage.settings import StorageSettings
from topmast.v1 import package_pb2 as messages
from topmast.v1 import package_pb2_grpc

GREATEST_PART_BYTES = 4 * 2**20

_CLEAN_INTERVAL_REAL_S = 600.0
_PATIENCE_REAL_S = 10.0
"""For how long a call waits for a database that has just been lost."""
_THREADS = 4
"""So many calls of the store at a time: it may be slow, and nothing else waits for it."""

_log = structlog.get_logger(__name__)
_Result = TypeVar("_Result")
_Given = ParamSpec("_Given")

Context: TypeAlias = "grpc.aio.ServicerContext[object, object]"


class PackageUploads:
    """The store of packages as the global scheduler has it. `run` until cancelled."""

    def __init__(self, database: Database, settings: StorageSettings, url: str) -> None:
        self.settings = settings
        self._database = database
        self._url = url
        self._shares = PackageShares(settings.greatest_tenant_package_bytes, settings.unused_packages_kept_real_s)
        self._folder: PackageFolder | None = None
        self._opening = threading.Lock()
        self._threads = ThreadPoolExecutor(_THREADS, "packages")
        self._finishing: set[asyncio.Task[int]] = set()

    async def run(self) -> None:
        """Takes out now and then what nobody needs."""
        while True:
            try:
                await self.clean()
            except (DatabaseUnavailable, PackageStoreFailed) as error:
                _log.warning("packages that nobody needs stay until later", error=str(error))
            await asyncio.sleep(_CLEAN_INTERVAL_REAL_S)

    async def close(self) -> None:
        """No call is under way any more; what callers have left behind is finished first, as long as that is possible."""
        if self._finishing:
            await asyncio.wait(set(self._finishing), timeout=_PATIENCE_REAL_S)
        self._threads.shutdown(wait=False)

    async def clean(self) -> int:
        """Takes out what nobody has needed for long; returns how many packages."""
        removed = 0
        await self._run(package_store.note_used)
        while await self._run(self._remove_one):
            removed += 1
        if removed:
            _log.info("packages that nobody needs are removed", packages=removed)
        return removed

    async def has(self, package: str, tenants: Collection[str] | None = None) -> bool:
        """Whether it is stored; then it is kept for a while. `tenants`: and was uploaded for all of these: who only knows its name has not
        shown that the content is theirs."""
        if tenants is not None:
            owners = await self._run(partial(ownership_store.owners_of_packages, packages=[package]))
            if not owners.get(package, set()).issuperset(tenants):
                return False
        known = await self._run(partial(package_store.note_asked, package=package))
        return known and await self._in_thread(lambda: self._opened().has(package))

    async def receive(self, parts: AsyncIterator[messages.PackagePart], tenants: Collection[str] | None = None) -> int:
        """Stores one package, of which no more than a part is in memory; returns its bytes. Workloads of `tenants` may name it.

        Raises PreconditionFailed where one of these would have more than it may.
        """
        part = await anext(aiter(parts), None)
        if part is None:
            raise InvalidArgument.of("", "there must be at least one part")
        package = named_package(part.package)
        others = partial(ownership_store.package_bytes_by_tenant, tenants=tenants or (), besides=package)
        with ExitStack() as taken:
            share = taken.enter_context(self._shares.upload(partial(self._run, others), tenants or ()))
            writer = await self._written(package, part, parts, share)
            finishing = asyncio.ensure_future(self._finish(writer, package, tenants))
            # Given back when it is stored or never will be, also where the caller does not wait for that.
            given_back = taken.pop_all()
            finishing.add_done_callback(lambda _: given_back.close())
            self._finishing.add(finishing)
            finishing.add_done_callback(self._finished)
            # Also when the caller is gone: what is in the store and not written down nobody would ever take out.
            size_bytes = await asyncio.shield(finishing)
        # Where it was about to be taken out, that has waited for; what has come is gone then, and from now on nothing takes it out.
        if not await self._in_thread(lambda: self._opened().has(package)):
            raise Unavailable(f"package {package} has just been removed, for nobody had needed it; upload it again")
        return size_bytes

    async def _written(
        self,
        package: str,
        first: messages.PackagePart,
        others: AsyncIterator[messages.PackagePart],
        share: PackageShare,
    ) -> PackageWriter:
        """All of it has come, and is not in the store yet. Nothing is left of what breaks off."""
        writer = await self._begun(package)
        try:
            await self._write(writer, first, package, share)
            async for part in others:
                await self._write(writer, part, package, share)
        except BaseException:
            self._threads.submit(writer.close)
            raise
        return writer

    async def _finish(self, writer: PackageWriter, package: str, tenants: Collection[str] | None) -> int:
        """All or nothing of it is in the store afterwards, and written down; returns its bytes."""
        try:
            await self._in_thread(writer.finish)
        except PackageMistaken as error:
            raise InvalidArgument.of("package", f"is {package}, but what has come {error}") from error
        finally:
            self._threads.submit(writer.close)
        await self._run(partial(package_store.note_stored, package=package, size_bytes=writer.size_bytes))
        if tenants is not None:
            await self._run(partial(ownership_store.note_package_owners, package=package, tenants=tenants))
        return writer.size_bytes

    def _finished(self, finishing: asyncio.Task[int]) -> None:
        self._finishing.discard(finishing)
        if not finishing.cancelled() and (error := finishing.exception()) is not None:
            _log.info("an upload was not finished", error=str(error))

    async def _write(
        self, writer: PackageWriter, part: messages.PackagePart, package: str, share: PackageShare
    ) -> None:
        self._check_part(part, package, writer.size_bytes)
        await share.take(len(part.content))
        await self._in_thread(writer.write, part.content)

    async def _begun(self, package: str) -> PackageWriter:
        """A package to be written; where the caller is gone before the store has begun with it, it is closed then."""
        beginning = asyncio.ensure_future(self._in_thread(self._begin, package))
        try:
            return await asyncio.shield(beginning)
        except asyncio.CancelledError:
            beginning.add_done_callback(self._close_begun)
            raise

    def _close_begun(self, beginning: asyncio.Future[PackageWriter]) -> None:
        if not beginning.cancelled() and beginning.exception() is None:
            self._threads.submit(beginning.result().close)

    def _begin(self, package: str) -> PackageWriter:
        return self._opened().write(package)

    def _check_part(self, part: messages.PackagePart, package: str, size_bytes: int) -> None:
        if part.package not in ("", package):
            raise InvalidArgument.of("package", f"is {part.package}, but the parts before it are of {package}")
        if len(part.content) > GREATEST_PART_BYTES:
            described = f"has {len(part.content)} bytes; a part has at most {GREATEST_PART_BYTES}"
            raise InvalidArgument.of("content", described)
        greatest = self.settings.greatest_package_bytes
        if size_bytes + len(part.content) > greatest:
            raise InvalidArgument.of("content", f"goes beyond {greatest} bytes, which a package has at most here")

    async def _remove_one(self, connection: AnyConnection) -> bool:
        """The file goes before the row is free again: whoever finds none uploads it anew."""
        package = await package_store.next_unused(connection, self.settings.unused_packages_kept_real_s)
        if package is None:
            return False
        await self._in_thread(lambda: self._opened().remove(package))
        await package_store.forget(connection, package)
        return True

    def _opened(self) -> PackageFolder:
        """The store. When it is opened no upload of ours is under way: parts of packages are what was left half written."""
        with self._opening:
            if self._folder is None:
                folder = PackageFolder(self._url)
                removed = folder.remove_parts()
                if removed:
                    _log.info("uploads of packages that broke off are removed", uploads=removed)
                self._folder = folder
            return self._folder

    async def _in_thread(
        self, call: Callable[_Given, _Result], *args: _Given.args, **options: _Given.kwargs
    ) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(call, *args, **options))

    async def _run(self, operation: Callable[[AnyConnection], Awaitable[_Result]]) -> _Result:
        return await self._database.run(operation, give_up_after_s=_PATIENCE_REAL_S)


def named_package(package: str) -> str:
    """The name of a package; raises InvalidArgument for what is none."""
    if not is_package_name(package):
        raise InvalidArgument.of("package", PACKAGE_RULE)
    return package


class PackagesServicer(package_pb2_grpc.PackagesServicer):
    """The gRPC face of the store of packages."""

    def __init__(
        self, uploads: PackageUploads, *, require_ready: Callable[[], None], require_room: Callable[[], None]
    ) -> None:
        """`require_ready` raises Unavailable while calls cannot be answered, `require_room` DiskFull while no disk has room."""
        self._require_room = require_room
        self._uploads = uploads
        self._require_ready = require_ready

    async def GetPackageLimits(
        self, request: messages.GetPackageLimitsRequest, context: Context
    ) -> messages.PackageLimits:
        settings = self._uploads.settings
        return messages.PackageLimits(
            greatest_bytes=settings.greatest_package_bytes, greatest_entries=settings.greatest_package_entries
        )

    async def FindPackage(self, request: messages.FindPackageRequest, context: Context) -> messages.FindPackageResponse:
        self._require_ready()
        package = named_package(request.package)
        try:
            return messages.FindPackageResponse(stored=await self._uploads.has(package, owners()))
        except PackageStoreFailed as error:
            raise Unavailable(str(error)) from error

    async def UploadPackage(
        self, request_iterator: AsyncIterator[messages.PackagePart], context: Context
    ) -> messages.UploadPackageResponse:
        self._require_room()
        self._require_ready()
        try:
            return messages.UploadPackageResponse(size_bytes=await self._uploads.receive(request_iterator, owners()))
        except (PackageStoreFailed, FileNotFoundError) as error:
            raise Unavailable(str(error)) from error
