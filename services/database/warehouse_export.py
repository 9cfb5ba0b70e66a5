"""The catalog as the CSV files of a warehouse folder: what exports hand out, and what plans are made from.

Demand is per day: of workloads what was observed within the window, of everything else what was declared.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from formats.warehouse_folder import GREATEST_BYTES
from services.database.connection import AnyConnection

_REGIONS = f"""
    COPY (SELECT r.region, coalesce(d.storage_bytes, {GREATEST_BYTES}) AS storage_bytes
            FROM regions r LEFT JOIN data_regions d USING (region) ORDER BY r.position)
      TO STDOUT (FORMAT csv, HEADER, FORCE_QUOTE (region))"""

# A model that something reads for and nothing has any more is there, with nothing.
_SUPPLY = """
    COPY (WITH declared AS (SELECT region, gpu_model, gpu_hours FROM data_gpu_supply),
               machines AS (
                   SELECT c.region, m.gpu_model, 24.0 * sum(m.gpus) AS gpu_hours
                     FROM machines m JOIN clusters c USING (cluster)
                    WHERE m.gpus > 0 AND c.inference IS NULL AND c.region NOT IN (SELECT region FROM declared)
                    GROUP BY c.region, m.gpu_model),
               supply AS (SELECT * FROM declared WHERE region IN (SELECT region FROM regions)
                          UNION ALL SELECT * FROM machines)
          SELECT region, gpu_model, gpu_hours FROM supply
          UNION ALL
          SELECT (SELECT min(region) FROM regions), gpu_model, 0
            FROM (SELECT DISTINCT gpu_model FROM data_readers WHERE gpu_model <> '') AS read
           WHERE gpu_model NOT IN (SELECT gpu_model FROM supply)
           ORDER BY 1, 2)
      TO STDOUT (FORMAT csv, HEADER, FORCE_QUOTE (region, gpu_model))"""

_TABLES = """
    COPY (SELECT t.data_table AS "table", t.size_bytes, t.home,
                 coalesce((SELECT string_agg(c.region, ' ' ORDER BY c.region) FROM data_table_replicas c
                            WHERE c.data_table = t.data_table AND c.region IN (SELECT region FROM regions)), '') AS replicas
            FROM data_tables t ORDER BY t.data_table)
      TO STDOUT (FORMAT csv, HEADER, FORCE_QUOTE ("table", home, replicas))"""

_PARTITIONS = """
    COPY (SELECT data_table AS "table", partition, size_bytes, checksum, created_s
            FROM data_partitions ORDER BY data_table, partition)
      TO STDOUT (FORMAT csv, HEADER, FORCE_QUOTE ("table", partition, checksum))"""

_COPIES = """
    COPY (SELECT data_table AS "table", region, complete_until_s FROM data_table_replicas
           WHERE complete_until_s IS NOT NULL AND region IN (SELECT region FROM regions) ORDER BY 1, 2)
      TO STDOUT (FORMAT csv, HEADER, FORCE_QUOTE ("table", region))"""

_NAMESPACES = """
    COPY (SELECT namespace, coalesce(tenant, '') AS tenant, disaster_copies FROM data_namespaces ORDER BY namespace)
      TO STDOUT (FORMAT csv, HEADER, FORCE_QUOTE (namespace, tenant))"""

_DEMAND = """
    WITH observed AS (
        SELECT reader, sum(gpu_hours) AS gpu_hours, sum(cpu_hours) AS cpu_hours FROM data_reader_days
         WHERE day > %(today)s - %(window_days)s::int GROUP BY reader),
         spanned AS (
        SELECT greatest(1, least(%(window_days)s::int, %(today)s - min(day) + 1)) AS days FROM data_reader_days)"""

# The reader of an analytics application that has no quotas any more belongs to none.
_JOBS = f"""
    COPY ({_DEMAND}
          SELECT r.name AS job, CASE WHEN r.training THEN 'training' ELSE 'analytics' END AS kind, r.gpu_model,
                 r.priority, coalesce(o.gpu_hours / s.days, r.gpu_hours) AS gpu_hours,
                 coalesce(o.cpu_hours / s.days, r.cpu_hours) AS cpu_hours,
                 CASE WHEN r.application IN (SELECT application FROM data_quotas) THEN r.application ELSE '' END
                   AS application, r.weight
            FROM data_readers r CROSS JOIN spanned s LEFT JOIN observed o USING (reader)
           WHERE r.fingerprint IS NULL OR o.reader IS NOT NULL ORDER BY r.name)
      TO STDOUT (FORMAT csv, HEADER, FORCE_QUOTE (job, gpu_model, application))"""

_READS = f"""
    COPY ({_DEMAND}
          SELECT r.name AS job, t.data_table AS "table", d.newest_share
            FROM data_reads d JOIN data_readers r USING (reader) JOIN data_tables t ON t.number = d.table_number
            CROSS JOIN spanned LEFT JOIN observed o ON o.reader = r.reader
           WHERE r.fingerprint IS NULL OR o.reader IS NOT NULL)
      TO STDOUT (FORMAT csv, HEADER, FORCE_QUOTE (job, "table"))"""

_QUOTAS = """
    COPY (SELECT application, region, cpu_hours FROM data_quotas WHERE region IN (SELECT region FROM regions)
           ORDER BY application, region)
      TO STDOUT (FORMAT csv, HEADER, FORCE_QUOTE (application, region))"""

_LINKS = """
    COPY (SELECT source, target, bytes_per_day FROM data_links
           WHERE source IN (SELECT region FROM regions) AND target IN (SELECT region FROM regions) ORDER BY 1, 2)
      TO STDOUT (FORMAT csv, HEADER, FORCE_QUOTE (source, target))"""

_DAY_S: Final = 86_400


async def write_csv_files(connection: AnyConnection, folder: Path, now_s: float, window_days: int) -> None:
    """Writes the files into the folder, of one moment if the transaction is one snapshot.

    Files that may be missing are, where they would hold nothing. `window_days`: how far back observed use counts.
    """
    parameters = {"today": int(now_s // _DAY_S), "window_days": window_days}
    await _write(connection, _REGIONS, folder / "regions.csv")
    await _write(connection, _SUPPLY, folder / "supply.csv")
    await _write(connection, _TABLES, folder / "tables.csv")
    await _write_observed(connection, _JOBS, folder / "jobs.csv", parameters)
    await _write_observed(connection, _READS, folder / "reads.csv", parameters)
    await _write_if_any(connection, _PARTITIONS, folder / "partitions.csv")
    await _write_if_any(connection, _COPIES, folder / "copies.csv")
    await _write_if_any(connection, _NAMESPACES, folder / "namespaces.csv")
    await _write_if_any(connection, _QUOTAS, folder / "quotas.csv")
    await _write_if_any(connection, _LINKS, folder / "links.csv")


async def _write_if_any(connection: AnyConnection, query: str, path: Path) -> None:
    if await _write(connection, query, path) == 0:
        await asyncio.to_thread(path.unlink)


async def _write(connection: AnyConnection, query: str, path: Path) -> int:
    """Returns how many rows there are."""
    async with connection.cursor() as cursor:
        with path.open("wb") as file:
            async with cursor.copy(query) as copy:
                async for rows in copy:
                    file.write(rows)
        return cursor.rowcount


async def _write_observed(connection: AnyConnection, query: str, path: Path, parameters: dict[str, int]) -> None:
    async with connection.cursor() as cursor:
        with path.open("wb") as file:
            async with cursor.copy(query, parameters) as copy:
                async for rows in copy:
                    file.write(rows)
