"""Fleets that are too large for one message: taken in parts, and applied as a whole when all of them have come."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import TypeVar

import grpc
import structlog

from services.clock import ServiceClock
from services.database import fleet_upload_store
from services.database.connection import AnyConnection, wake_after_commit
from services.database.engine import Database
from services.database.errors import DatabaseUnavailable
from services.database.fleet_upload_store import (
    GREATEST_UPLOADS,
    PartMisplaced,
    TooManyUploads,
    Upload,
    UploadUnknown,
)
from services.global_scheduler.fleet_task import FleetTask, run_fleet_task
from services.grpc_errors import CallRefused, Exhausted, InvalidArgument, NotFound, PreconditionFailed, Unavailable
from topmast.v1 import global_scheduler_pb2 as messages

GREATEST_PART_BYTES = 4 * 2**20
GREATEST_UPLOAD_BYTES = 512 * 2**20
"""Several times what a million machines take."""

_LOOK_INTERVAL_REAL_S = 600.0
"""Stale uploads are looked for so often."""
_PATIENCE_REAL_S = 10.0
"""For how long a call waits for a database that has just been lost."""

_is_digest = re.compile(r"[0-9a-f]{64}", re.ASCII).fullmatch
_log = structlog.get_logger(__name__)
_Result = TypeVar("_Result")


class FleetUploads:
    """What has come of fleets, in the database: it outlives this process. `run` until cancelled."""

    def __init__(self, database: Database, clock: ServiceClock, refresh: Callable[[], Awaitable[None]]) -> None:
        """`refresh` has the process take over what was applied."""
        self._database = database
        self._clock = clock
        self._refresh = refresh
        self._applying: dict[str, asyncio.Task[messages.ApplyFleetResponse]] = {}
        self._turn = asyncio.Lock()
        """One is applied at a time: each takes as much memory as its fleet."""

    async def run(self) -> None:
        """Removes what is stale now and then. What is being applied at the end is given up: nothing of it has happened."""
        try:
            while True:
                try:
                    await self.remove_stale()
                except DatabaseUnavailable as error:
                    _log.warning("stale uploads of fleets stay until later", error=str(error))
                await asyncio.sleep(_LOOK_INTERVAL_REAL_S)
        finally:
            tasks = list(self._applying.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def remove_stale(self) -> None:
        """Removes the uploads that nobody has gone on with for a day."""
        removed = await self._run(partial(fleet_upload_store.remove_stale, now=self._clock.now()))
        if removed:
            _log.info("uploads of fleets that nobody went on with are removed", uploads=removed)

    async def begin(self, request: messages.BeginFleetUploadRequest) -> messages.FleetUpload:
        """A new upload, or how far it has come."""
        _require_digest(request.upload)
        if not 0 < request.size_bytes <= GREATEST_UPLOAD_BYTES:
            raise InvalidArgument.of("size_bytes", f"is {request.size_bytes}; it must be 1 to {GREATEST_UPLOAD_BYTES}")
        beginning = partial(
            fleet_upload_store.begin_upload,
            upload=request.upload,
            size_bytes=request.size_bytes,
            now=self._clock.now(),
        )
        try:
            return _message(await self._run(beginning))
        except TooManyUploads as error:
            raise Exhausted(
                f"{GREATEST_UPLOADS} other fleets are being uploaded, which is the most at a time; try again when one of"
                " them is applied: one that nobody goes on with is removed after a day"
            ) from error

    async def receive(self, parts: AsyncIterator[messages.FleetUploadPart]) -> messages.FleetUpload:
        """Stores each part before the next one is read. Returns how far the upload has come then."""
        upload: Upload | None = None
        async for part in parts:
            _require_digest(part.upload)
            if len(part.content) > GREATEST_PART_BYTES:
                raise InvalidArgument.of(
                    "content", f"has {len(part.content)} bytes; a part has at most {GREATEST_PART_BYTES}"
                )
            adding = partial(
                fleet_upload_store.add_part,
                upload=part.upload,
                first_byte=part.first_byte,
                content=part.content,
                now=self._clock.now(),
            )
            try:
                upload = await self._run(adding)
            except UploadUnknown as error:
                raise _unknown(part.upload) from error
            except PartMisplaced as error:
                raise InvalidArgument.of("first_byte", str(error)) from error
        if upload is None:
            raise InvalidArgument.of("", "there must be at least one part")
        return _message(upload)

    async def apply(self, upload: str) -> messages.ApplyFleetResponse:
        """Applies it as a whole, or not at all. Whoever asks while it is being applied gets the same answer."""
        _require_digest(upload)
        task = self._applying.get(upload)
        if task is None:
            try:
                known = await self._run(partial(fleet_upload_store.load_upload, upload=upload))
            except UploadUnknown as error:
                raise _unknown(upload) from error
            if known.received_bytes < known.size_bytes:
                raise PreconditionFailed(
                    "UPLOAD_INCOMPLETE",
                    upload,
                    f"only {known.received_bytes} of {known.size_bytes} bytes of the fleet have come; send the rest",
                )
            # Meanwhile another call may have begun the same.
            task = self._applying.get(upload) or self._begin_to_apply(upload)
        try:
            # A caller that goes away ends its call, and not what others may wait for: it may ask again.
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise Unavailable("this global scheduler stops; try again") from None
            raise

    def _begin_to_apply(self, upload: str) -> asyncio.Task[messages.ApplyFleetResponse]:
        task = asyncio.create_task(self._apply(upload))
        self._applying[upload] = task
        task.add_done_callback(partial(self._ended, upload))
        return task

    def _ended(self, upload: str, task: asyncio.Task[messages.ApplyFleetResponse]) -> None:
        del self._applying[upload]
        # Whoever asked may be gone: then nobody else looks at what it came to.
        if not task.cancelled():
            task.exception()

    async def _apply(self, upload: str) -> messages.ApplyFleetResponse:
        async with self._turn:
            try:
                applied = await run_fleet_task(FleetTask(self._database.url, upload, self._clock.now()))
            except CallRefused as refusal:
                if refusal.code is not grpc.StatusCode.UNAVAILABLE:
                    await self._run(partial(self._note_tried, upload=upload, code=refusal.code))
                raise
            await self._run(partial(self._note_tried, upload=upload, channels=applied.channels))
            await self._refresh()
            return applied.response

    async def _note_tried(
        self,
        connection: AnyConnection,
        upload: str,
        channels: frozenset[str] = frozenset(),
        code: grpc.StatusCode = grpc.StatusCode.OK,
    ) -> None:
        for channel in channels:
            wake_after_commit(connection, channel)
        if code is grpc.StatusCode.INVALID_ARGUMENT:
            # The same bytes will never do.
            await fleet_upload_store.remove_upload(connection, upload)
        else:
            await fleet_upload_store.note_tried(connection, upload, self._clock.now())

    async def _run(self, operation: Callable[[AnyConnection], Awaitable[_Result]]) -> _Result:
        return await self._database.run(operation, give_up_after_s=_PATIENCE_REAL_S)


def _require_digest(upload: str) -> None:
    if not _is_digest(upload):
        raise InvalidArgument.of("upload", "must be a SHA-256: 64 hexadecimal digits in small letters")


def _unknown(upload: str) -> NotFound:
    return NotFound("upload", upload, "begin it; one that nobody goes on with is removed after a day")


def _message(upload: Upload) -> messages.FleetUpload:
    return messages.FleetUpload(
        upload=upload.upload, size_bytes=upload.size_bytes, received_bytes=upload.received_bytes
    )
