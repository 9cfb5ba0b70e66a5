"""Which packages are stored, which workloads name them, and which nobody has needed for long.

A package is kept while a workload names it that has not ended, and for a while after it was last asked for or needed. Who
takes one out holds its row meanwhile: whoever submits a workload with it waits, and is told that it is gone.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from domain.identifiers import WorkloadId
from domain.life_cycle import ENDED
from services.database.connection import AnyConnection
from services.database.state_guards import quoted


async def note_stored(connection: AnyConnection, package: str, size_bytes: int) -> None:
    """It is in the store."""
    await connection.execute(
        """INSERT INTO packages (package, size_bytes, used_at) VALUES (%s, %s, now())
           ON CONFLICT (package) DO UPDATE SET used_at = excluded.used_at, size_bytes = excluded.size_bytes""",
        (package, size_bytes),
    )


async def note_asked(connection: AnyConnection, package: str) -> bool:
    """Whether it is known; it is kept for a while from now on."""
    cursor = await connection.execute("UPDATE packages SET used_at = now() WHERE package = %s", (package,))
    return cursor.rowcount > 0


async def keep_packages(connection: AnyConnection, packages: Collection[str]) -> set[str]:
    """Those of them that are known; until the end of the transaction none of these is taken out."""
    cursor = await connection.execute(
        "SELECT package FROM packages WHERE package = ANY(%s) ORDER BY package FOR KEY SHARE", (sorted(packages),)
    )
    return {row[0] for row in await cursor.fetchall()}


async def insert_uses(connection: AnyConnection, uses: Sequence[tuple[WorkloadId, str]]) -> None:
    """These workloads name these packages, which are known."""
    await connection.execute(
        "INSERT INTO workload_packages (workload, package) SELECT * FROM unnest(%s::text[], %s::text[])",
        ([workload for workload, _ in uses], [package for _, package in uses]),
    )


async def note_used(connection: AnyConnection) -> None:
    """Packages of workloads that have not ended are in use now, and those of ended ones were until now, at most."""
    await connection.execute(
        "UPDATE packages SET used_at = now() WHERE package IN (SELECT package FROM workload_packages)"
    )
    await connection.execute(
        f"""DELETE FROM workload_packages u USING workloads w
             WHERE w.workload = u.workload AND w.state IN ({quoted(ENDED)})"""
    )


async def next_unused(connection: AnyConnection, unused_for_real_s: float) -> str | None:
    """A package that nobody has needed for so long, held until the end of the transaction; None: there is none."""
    while True:
        cursor = await connection.execute(
            """SELECT package FROM packages p
                WHERE used_at < now() - make_interval(secs => %s)
                  AND NOT EXISTS (SELECT FROM workload_packages u WHERE u.package = p.package)
                ORDER BY used_at, package LIMIT 1 FOR UPDATE SKIP LOCKED""",
            (unused_for_real_s,),
        )
        row = await cursor.fetchone()
        if row is None:
            return None
        # Between the look and the lock a workload with it may have been submitted: from now on none is.
        cursor = await connection.execute("SELECT FROM workload_packages WHERE package = %s LIMIT 1", row)
        if await cursor.fetchone() is None:
            return str(row[0])


async def forget(connection: AnyConnection, package: str) -> None:
    """It is not in the store any more."""
    await connection.execute("DELETE FROM packages WHERE package = %s", (package,))
