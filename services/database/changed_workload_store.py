"""Workloads whose specification was changed after they were submitted: what others that remember it must hear of.

Changes are committed in the order of their revisions, one after the other: who has seen one has seen all before it.
"""

from __future__ import annotations

from dataclasses import dataclass

from domain.identifiers import AttemptNumber, WorkloadId
from domain.placement import AttemptKey
from services.database.connection import AnyConnection

_LOCK_KEY = 0x7265766973
"""Any number with no other use."""


@dataclass(frozen=True, slots=True)
class ChangedWorkload:
    """What a workload asks for since that revision."""

    newest: AttemptKey
    """Of its attempts, if it has had one (0: it has not)."""
    revision: int
    specification: bytes


async def changed_workloads(connection: AnyConnection, after: int) -> list[ChangedWorkload]:
    """Those that have not ended and were changed after that revision, in the order of the revisions."""
    cursor = await connection.execute(
        """SELECT workload, attempts, revision, specification FROM workloads
            WHERE revision > %s AND ended_s IS NULL ORDER BY revision, workload""",
        (after,),
    )
    return [
        ChangedWorkload(AttemptKey(WorkloadId(name), AttemptNumber(attempt)), revision, bytes(specification))
        for name, attempt, revision, specification in await cursor.fetchall()
    ]


async def lock_changes(connection: AnyConnection) -> None:
    """No other transaction changes a workload, or ranks the queue, until this one ends."""
    await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK_KEY,))


async def newest_revision(connection: AnyConnection) -> int:
    """Of the last change; 0: there has never been one."""
    cursor = await connection.execute("SELECT max(revision) FROM workloads WHERE revision IS NOT NULL")
    row = await cursor.fetchone()
    return 0 if row is None or row[0] is None else int(row[0])


async def changed_since(connection: AnyConnection, revision: int) -> frozenset[WorkloadId]:
    """Workloads that were changed after that; no other is until this transaction ends."""
    await connection.execute("SELECT pg_advisory_xact_lock_shared(%s)", (_LOCK_KEY,))
    cursor = await connection.execute("SELECT workload FROM workloads WHERE revision > %s", (revision,))
    return frozenset(WorkloadId(row[0]) for row in await cursor.fetchall())
