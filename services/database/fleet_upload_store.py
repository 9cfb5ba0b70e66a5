"""Fleets that come in parts: kept part by part until they are applied, and for a day when nobody goes on with them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from services.database.connection import AnyConnection

STALE_AFTER_S = 86_400.0
"""An upload that nobody has gone on with for so long is removed."""
GREATEST_UPLOADS = 8
"""That were not yet applied nor refused, at a time."""

_PARTS_AT_ONCE = 8
_LOCK_KEY = 0x666C656574
"""Any number with no other use: the letters of `fleet`."""


class UploadUnknown(Exception):
    """There is no such upload: it was not begun, or was removed."""


class TooManyUploads(Exception):
    """No further one can begin now."""


class PartMisplaced(Exception):
    """The part would leave a gap before it, or goes beyond the end; says which."""


class ContentMistaken(Exception):
    """What has come is not what the upload is named after; says what it is."""


@dataclass(frozen=True, slots=True)
class Upload:
    """How far one has come."""

    upload: str
    size_bytes: int
    received_bytes: int


async def begin_upload(connection: AnyConnection, upload: str, size_bytes: int, now: float) -> Upload:
    """A new upload, or the one that is there, as far as it has come. Stale ones are removed.

    One that is there with another size begins anew. Raises TooManyUploads.
    """
    # One after the other: else several would find the same last place.
    await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK_KEY,))
    await remove_stale(connection, now)
    await connection.execute(
        "DELETE FROM fleet_uploads WHERE upload = %s AND size_bytes <> %s",
        (upload, size_bytes),
    )
    cursor = await connection.execute(
        "SELECT count(*) FROM fleet_uploads WHERE tried_s IS NULL AND upload <> %s", (upload,)
    )
    row = await cursor.fetchone()
    if row is not None and row[0] >= GREATEST_UPLOADS:
        raise TooManyUploads
    cursor = await connection.execute(
        """INSERT INTO fleet_uploads AS known (upload, size_bytes, received_bytes, touched_s) VALUES (%s, %s, 0, %s)
           ON CONFLICT (upload) DO UPDATE SET touched_s = greatest(known.touched_s, excluded.touched_s)
           RETURNING received_bytes""",
        (upload, size_bytes, now),
    )
    row = await cursor.fetchone()
    return Upload(upload, size_bytes, 0 if row is None else row[0])


async def add_part(connection: AnyConnection, upload: str, first_byte: int, content: bytes, now: float) -> Upload:
    """Keeps a part, or what is new in it, and says how far the upload has come now.

    Raises UploadUnknown and PartMisplaced.
    """
    known = await load_upload(connection, upload, for_change=True)
    end = first_byte + len(content)
    if first_byte < 0 or first_byte > known.received_bytes:
        raise PartMisplaced(
            f"is {first_byte}, but the first {known.received_bytes} bytes have come; go on with the next one"
        )
    if end > known.size_bytes:
        raise PartMisplaced(f"is {first_byte}: with {len(content)} bytes it goes beyond the end, {known.size_bytes}")
    if end <= known.received_bytes:
        return known
    await connection.execute(
        "INSERT INTO fleet_upload_parts (upload, first_byte, content) VALUES (%s, %s, %s)",
        (upload, known.received_bytes, content[known.received_bytes - first_byte :]),
    )
    await connection.execute(
        "UPDATE fleet_uploads SET received_bytes = %s, touched_s = greatest(touched_s, %s) WHERE upload = %s",
        (end, now, upload),
    )
    return Upload(upload, known.size_bytes, end)


async def load_upload(connection: AnyConnection, upload: str, *, for_change: bool = False) -> Upload:
    """How far it has come; `for_change` keeps others from changing it. Raises UploadUnknown."""
    lock = "FOR UPDATE" if for_change else ""
    cursor = await connection.execute(
        f"SELECT size_bytes, received_bytes FROM fleet_uploads WHERE upload = %s {lock}", (upload,)
    )
    row = await cursor.fetchone()
    if row is None:
        raise UploadUnknown(upload)
    return Upload(upload, *row)


async def load_content(connection: AnyConnection, upload: str) -> bytes:
    """All that has come. Raises ContentMistaken where that is not what the upload is named after."""
    content, digest = bytearray(), hashlib.sha256()
    async with connection.cursor(name="fleet_upload_parts") as cursor:
        await cursor.execute("SELECT content FROM fleet_upload_parts WHERE upload = %s ORDER BY first_byte", (upload,))
        while rows := await cursor.fetchmany(_PARTS_AT_ONCE):
            for (part,) in rows:
                content += part
                digest.update(part)
    if digest.hexdigest() != upload:
        raise ContentMistaken(digest.hexdigest())
    return bytes(content)


async def note_tried(connection: AnyConnection, upload: str, now: float) -> None:
    """It was applied or refused: of such uploads the last one is kept, for a client that asks again."""
    await connection.execute(
        "UPDATE fleet_uploads SET tried_s = %s, touched_s = greatest(touched_s, %s) WHERE upload = %s",
        (now, now, upload),
    )
    await connection.execute("DELETE FROM fleet_uploads WHERE tried_s IS NOT NULL AND upload <> %s", (upload,))


async def remove_upload(connection: AnyConnection, upload: str) -> None:
    """Forgets it, if it is there."""
    await connection.execute("DELETE FROM fleet_uploads WHERE upload = %s", (upload,))


async def remove_stale(connection: AnyConnection, now: float) -> int:
    """Removes those that nobody has gone on with for a day; returns how many."""
    cursor = await connection.execute("DELETE FROM fleet_uploads WHERE touched_s < %s", (now - STALE_AFTER_S,))
    return cursor.rowcount
