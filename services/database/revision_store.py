"""The revisions of what is replaced as a whole: `fleet`, `tenants`, `catalog`. Each grows with every change."""

from __future__ import annotations

from enum import StrEnum

from services.database.connection import AnyConnection


class Subject(StrEnum):
    """What has a revision."""

    FLEET = "fleet"
    TENANTS = "tenants"
    CATALOG = "catalog"


async def lock_revision(connection: AnyConnection, subject: Subject) -> int:
    """The present revision (0: there has never been one); nobody else can change it until this transaction ends."""
    await connection.execute(
        "INSERT INTO revisions (subject, revision) VALUES (%s, 0) ON CONFLICT DO NOTHING", (subject.value,)
    )
    cursor = await connection.execute("SELECT revision FROM revisions WHERE subject = %s FOR UPDATE", (subject.value,))
    row = await cursor.fetchone()
    if row is None:
        raise LookupError(f"the revision of {subject} vanished")
    return int(row[0])


async def raise_revision(connection: AnyConnection, subject: Subject) -> int:
    """The next revision, from the end of this transaction on; the caller holds the lock."""
    cursor = await connection.execute(
        "UPDATE revisions SET revision = revision + 1 WHERE subject = %s RETURNING revision", (subject.value,)
    )
    row = await cursor.fetchone()
    if row is None:
        raise LookupError(f"lock the revision of {subject} before raising it")
    return int(row[0])


async def load_revision(connection: AnyConnection, subject: Subject) -> int:
    """The present revision; 0: there has never been one."""
    cursor = await connection.execute("SELECT revision FROM revisions WHERE subject = %s", (subject.value,))
    row = await cursor.fetchone()
    return 0 if row is None else int(row[0])
