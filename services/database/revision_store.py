"""The revisions of what is replaced as a whole: `fleet`, `tenants`, `catalog`, `profiles`. Each grows with every change."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import Select, select, update
from sqlalchemy.dialects.postgresql import insert

from services.database.connection import AnyConnection
from services.database.core_statements import execute
from services.database.tables.coordination import REVISIONS


class Subject(StrEnum):
    """What has a revision."""

    FLEET = "fleet"
    TENANTS = "tenants"
    CATALOG = "catalog"
    PROFILES = "profiles"


@dataclass(frozen=True, slots=True)
class Revisions:
    """The present revision of each subject: when one of them grows, what was loaded of it is out of date."""

    fleet: int
    tenants: int
    catalog: int
    profiles: int = 0


async def lock_revision(connection: AnyConnection, subject: Subject) -> int:
    """The present revision (0: there has never been one); no other transaction can change it until this one ends."""
    await execute(connection, insert(REVISIONS).values(subject=subject.value, revision=0).on_conflict_do_nothing())
    cursor = await execute(connection, _present(subject).with_for_update())
    row = await cursor.fetchone()
    if row is None:
        raise LookupError(f"the revision of {subject} vanished")
    return int(row[0])


async def raise_revision(connection: AnyConnection, subject: Subject) -> int:
    """The next revision, from the end of this transaction on; the caller holds the lock."""
    cursor = await execute(
        connection,
        update(REVISIONS)
        .where(REVISIONS.c.subject == subject.value)
        .values(revision=REVISIONS.c.revision + 1)
        .returning(REVISIONS.c.revision),
    )
    row = await cursor.fetchone()
    if row is None:
        raise LookupError(f"lock the revision of {subject} before raising it")
    return int(row[0])


async def load_revision(connection: AnyConnection, subject: Subject) -> int:
    """The present revision; 0: there has never been one."""
    cursor = await execute(connection, _present(subject))
    row = await cursor.fetchone()
    return 0 if row is None else int(row[0])


async def load_revisions(connection: AnyConnection) -> Revisions:
    """All present revisions, as of one statement."""
    cursor = await execute(connection, select(REVISIONS.c.subject, REVISIONS.c.revision))
    present = {str(subject): int(revision) for subject, revision in await cursor.fetchall()}
    return Revisions(*(present.get(subject.value, 0) for subject in Subject))


def _present(subject: Subject) -> Select[int]:
    return select(REVISIONS.c.revision).where(REVISIONS.c.subject == subject.value)
