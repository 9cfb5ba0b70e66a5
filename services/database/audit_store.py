"""The audit log: records are added, in the transaction of what they tell of where that has one, and read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg.types.json import Jsonb

from services.database.connection import AnyConnection

DONE = "done"
BEGUN = "begun"
"""Let in; it goes on for as long as its caller likes."""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """What is to be recorded."""

    actor: str
    actor_role: str
    actor_kind: str
    actor_credential: str
    action: str
    subjects: Sequence[str]
    outcome: str = DONE
    reason: str = ""
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """What was recorded, when and in which place. The time is real."""

    record: int
    at_real_s: float
    entry: AuditEntry


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which records to read; what is None or empty excludes nothing."""

    before_record: int | None = None
    since_real_s: float | None = None
    actor: str = ""
    action: str = ""


async def append(connection: AnyConnection, entry: AuditEntry) -> None:
    """Adds a record; a NUL, which PostgreSQL cannot hold, becomes U+FFFD."""
    await connection.execute(
        """INSERT INTO audit_log (actor, actor_role, actor_kind, actor_credential, action, subjects, outcome, reason, before, after)
           VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)""",
        (
            _storable(entry.actor),
            entry.actor_role,
            entry.actor_kind,
            _storable(entry.actor_credential),
            entry.action,
            [_storable(subject) for subject in entry.subjects],
            entry.outcome,
            _storable(entry.reason),
            None if entry.before is None else Jsonb(_storable_document(entry.before)),
            None if entry.after is None else Jsonb(_storable_document(entry.after)),
        ),
    )


async def load(connection: AnyConnection, wanted: AuditFilter, limit: int) -> list[AuditRecord]:
    """The newest first."""
    cursor = await connection.execute(
        """SELECT record, extract(epoch FROM at)::float8, actor, actor_role, actor_kind, actor_credential, action, subjects,
                  outcome, reason, before, after
             FROM audit_log
            WHERE (%(before)s::bigint IS NULL OR record < %(before)s)
              AND (%(since)s::float8 IS NULL OR at >= to_timestamp(%(since)s))
              AND (%(actor)s::text = '' OR actor = %(actor)s) AND (%(action)s::text = '' OR action = %(action)s)
            ORDER BY record DESC LIMIT %(limit)s""",
        {
            "before": wanted.before_record,
            "since": wanted.since_real_s,
            "actor": wanted.actor,
            "action": wanted.action,
            "limit": limit,
        },
    )
    return [AuditRecord(row[0], row[1], AuditEntry(*row[2:])) for row in await cursor.fetchall()]


def _storable(text: str) -> str:
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def _storable_document(value: Any) -> Any:
    match value:
        case str():
            return _storable(value)
        case Mapping():
            return {_storable(str(key)): _storable_document(one) for key, one in value.items()}
        case list() | tuple():
            return [_storable_document(one) for one in value]
        case _:
            return value
