"""How much tables are used: what ended workloads needed and read, counted once each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from services.database.connection import AnyConnection

_WHAT = "events"


@dataclass(frozen=True, slots=True)
class RunUse:
    """What the attempts of one workload had of one GPU model at one priority."""

    workload: str
    gpu_model: str
    """Empty: of machines without GPUs."""
    priority: int
    gpu_hours: float
    cpu_hours: float


@dataclass(frozen=True, slots=True)
class ReaderUse:
    """What one reader used in one run of a recurring workload, and which tables it read."""

    name: str
    fingerprint: str
    gpu_model: str
    priority: int
    day: int
    """Since the epoch, UTC."""
    gpu_hours: float
    cpu_hours: float
    tables: tuple[str, ...]
    newest_partitions: tuple[tuple[str, int], ...] = ()
    """Of tables of which it read no more than the newest partitions, how many."""


async def counted_through(connection: AnyConnection) -> int:
    """Up to which place of the event log workloads are counted."""
    cursor = await connection.execute("SELECT through_sequence FROM data_use_counted WHERE what = %s", (_WHAT,))
    row = await cursor.fetchone()
    return 0 if row is None else int(row[0])


async def uses_of(connection: AnyConnection, workloads: Sequence[str]) -> list[RunUse]:
    """What the ended attempts of these workloads had, by the machines that they were on."""
    cursor = await connection.execute(
        """SELECT a.workload, coalesce(m.gpu_model, ''), a.priority,
                  sum(cardinality(p.gpu_indices) * (a.ended_s - a.started_s)) / 3600,
                  sum(p.millicpus / 1000.0 * (a.ended_s - a.started_s)) / 3600
             FROM attempts a JOIN placements p USING (workload, attempt) LEFT JOIN machines m USING (machine)
            WHERE a.workload = ANY (%s) AND a.started_s IS NOT NULL AND a.ended_s IS NOT NULL
            GROUP BY 1, 2, 3 ORDER BY 1, 2, 3""",
        (list(workloads),),
    )
    return [RunUse(row[0], row[1], row[2], float(row[3]), float(row[4])) for row in await cursor.fetchall()]


async def count_uses(connection: AnyConnection, uses: Sequence[ReaderUse], after: int, through: int) -> bool:
    """Adds what was read between two places of the event log; False, and nothing is added, when somebody did before."""
    cursor = await connection.execute(
        """INSERT INTO data_use_counted AS c (what, through_sequence) VALUES (%s, %s)
           ON CONFLICT (what) DO UPDATE SET through_sequence = excluded.through_sequence
            WHERE c.through_sequence = %s""",
        (_WHAT, through, after),
    )
    if cursor.rowcount != 1:
        return False
    if not uses:
        return True
    readers = {use.name: use for use in uses}
    names = sorted(readers)
    await connection.execute(
        """INSERT INTO data_readers AS r (name, training, fingerprint, gpu_model, priority)
           SELECT n, true, f, g, p FROM unnest(%s::text[], %s::text[], %s::text[], %s::smallint[]) AS u (n, f, g, p)
           ON CONFLICT (name) DO UPDATE SET fingerprint = excluded.fingerprint WHERE r.fingerprint IS NULL""",
        (
            names,
            [readers[name].fingerprint for name in names],
            [readers[name].gpu_model for name in names],
            [readers[name].priority for name in names],
        ),
    )
    await connection.execute(
        """INSERT INTO data_reader_days AS d (reader, day, runs, gpu_hours, cpu_hours)
           SELECT r.reader, u.day, count(*), sum(u.gpu_hours), sum(u.cpu_hours)
             FROM unnest(%s::text[], %s::int[], %s::float8[], %s::float8[]) AS u (name, day, gpu_hours, cpu_hours)
             JOIN data_readers r USING (name)
            GROUP BY 1, 2 ORDER BY 1, 2
           ON CONFLICT (reader, day) DO UPDATE
              SET runs = d.runs + excluded.runs, gpu_hours = d.gpu_hours + excluded.gpu_hours,
                  cpu_hours = d.cpu_hours + excluded.cpu_hours""",
        (
            [use.name for use in uses],
            [use.day for use in uses],
            [use.gpu_hours for use in uses],
            [use.cpu_hours for use in uses],
        ),
    )
    await _add_reads(connection, uses)
    return True


async def _add_reads(connection: AnyConnection, uses: Sequence[ReaderUse]) -> None:
    """Who reads what, and which newest part of it as the table is now."""
    newest = {(use.name, table): count for use in uses for table, count in use.newest_partitions}
    pairs = sorted({(use.name, table) for use in uses for table in use.tables})
    await connection.execute(
        """INSERT INTO data_reads AS d (table_number, reader, newest_share)
           SELECT t.number, r.reader, CASE WHEN u.newest IS NULL OR t.size_bytes = 0 THEN 1.0 ELSE
                      (SELECT coalesce(greatest(sum(n.size_bytes), 1) / t.size_bytes, 1)
                         FROM (SELECT p.size_bytes FROM data_partitions p WHERE p.data_table = t.data_table
                                ORDER BY p.created_s DESC, p.partition DESC LIMIT u.newest) AS n) END
             FROM unnest(%s::text[], %s::text[], %s::int[]) AS u (name, data_table, newest)
             JOIN data_readers r USING (name) JOIN data_tables t USING (data_table)
            ORDER BY 1, 2
           ON CONFLICT (table_number, reader) DO UPDATE SET newest_share = excluded.newest_share
            WHERE d.newest_share <> excluded.newest_share""",
        ([name for name, _ in pairs], [table for _, table in pairs], [newest.get(pair) for pair in pairs]),
    )
