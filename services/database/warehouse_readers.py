"""Who reads which tables, as an import says it: what is the same already stays, and only the rest is written.

Millions of reads are compared here and not by the server: as columns of numbers that takes seconds. They come in the order
of their key, by COPY: the server then writes pages, not rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from domain.warehouse import Floats, Integers, Jobs, Warehouse
from services.database.connection import AnyConnection
from services.database.copy_format import copied_rows, sent_rows

_DROPPED_AT_ONCE = 100_000
_TABLES_AT_ONCE = 50_000

# ---------------------------------------------------------------- readers

# What is known of a reader by its workloads stays.
_DROP_READERS = """
    WITH gone AS (DELETE FROM data_readers d
                   WHERE d.fingerprint IS NULL
                     AND NOT EXISTS (SELECT FROM data_staged_readers s WHERE s.name = d.name)
                  RETURNING d.reader)
    DELETE FROM data_reads r USING gone WHERE r.reader = gone.reader"""

_CHANGE_READERS = """
    UPDATE data_readers d
       SET training = s.training, application = s.application, gpu_model = s.gpu_model, priority = s.priority,
           weight = s.weight, gpu_hours = s.gpu_hours, cpu_hours = s.cpu_hours
      FROM data_staged_readers s
     WHERE d.name = s.name AND d.fingerprint IS NULL
       AND (d.training, d.application, d.gpu_model, d.priority, d.weight, d.gpu_hours, d.cpu_hours)
        <> (s.training, s.application, s.gpu_model, s.priority, s.weight, s.gpu_hours, s.cpu_hours)"""

# A workload may end meanwhile, and bring a reader of one of these names.
_ADD_READERS = """
    INSERT INTO data_readers (name, training, application, gpu_model, priority, weight, gpu_hours, cpu_hours)
    SELECT name, training, application, gpu_model, priority, weight, gpu_hours, cpu_hours FROM data_staged_readers s
     WHERE NOT EXISTS (SELECT FROM data_readers d WHERE d.name = s.name)
     ORDER BY position
    ON CONFLICT (name) DO NOTHING"""


async def replace_readers(connection: AnyConnection, warehouse: Warehouse, *, keep_others: bool) -> None:
    """Makes the catalog's readers and reads those of the warehouse, whose tables and readers are staged.

    `keep_others`: readers of earlier imports that the warehouse lacks stay.
    """
    if not keep_others:
        await connection.execute(_DROP_READERS)
    await connection.execute(_CHANGE_READERS)
    await connection.execute(_ADD_READERS)
    tables, readers, is_declared = await _numbers(connection)
    reads = _Reads.of(warehouse.jobs)
    of_declared = is_declared[reads.reader]
    await _replace_reads(connection, reads.where(of_declared), _Keys(tables, readers))
    if not of_declared.all():
        await _stage_reads(connection, reads.where(~of_declared))
        await connection.execute(_ADD_STAGED_READS)


# ---------------------------------------------------------------- reads

_Flags: TypeAlias = np.ndarray[tuple[int], np.dtype[np.bool_]]

_TABLE_NUMBERS = """
    SELECT string_agg(int8send(t.number), ''::bytea ORDER BY s.position)
      FROM data_staged_tables s JOIN data_tables t USING (data_table)"""

_READER_NUMBERS = """
    SELECT string_agg(int8send(d.reader) || boolsend(d.fingerprint IS NULL), ''::bytea ORDER BY s.position)
      FROM data_staged_readers s JOIN data_readers d USING (name)"""

_READS_THAT_ARE = f"""
    SELECT string_agg(int8send(r.table_number) || int8send(r.reader) || float8send(r.newest_share), ''::bytea)
      FROM data_reads r JOIN data_readers d USING (reader) JOIN data_staged_readers s USING (name)
     WHERE d.fingerprint IS NULL
     GROUP BY r.table_number / {_TABLES_AT_ONCE}"""

# A workload that ended meanwhile may have made the reader its own.
_DROP_READS = """
    DELETE FROM data_reads r
     USING unnest(%s::bigint[], %s::bigint[]) AS gone (table_number, reader), data_readers d
     WHERE r.table_number = gone.table_number AND r.reader = gone.reader AND d.reader = gone.reader
       AND d.fingerprint IS NULL"""

_ADD_STAGED_READS = """
    INSERT INTO data_reads (table_number, reader, newest_share)
    SELECT t.number, r.reader, s.newest_share
      FROM data_staged_reads s
      JOIN data_staged_tables st ON st.position = s.table_position
      JOIN data_tables t ON t.data_table = st.data_table
      JOIN data_staged_readers sr ON sr.position = s.reader_position
      JOIN data_readers r ON r.name = sr.name
     ORDER BY t.number, r.reader
    ON CONFLICT DO NOTHING"""


@dataclass(frozen=True, slots=True)
class _Reads:
    """(reads,) Tables and readers by their places in the warehouse."""

    table: Integers
    reader: Integers
    newest_share: Floats

    @staticmethod
    def of(jobs: Jobs) -> _Reads:
        reader = np.repeat(np.arange(jobs.count), np.diff(jobs.table_start))
        share = np.ones(len(jobs.tables)) if jobs.newest_share is None else jobs.newest_share
        return _Reads(jobs.tables.astype(np.int64), reader, share)

    def where(self, chosen: _Flags | Integers) -> _Reads:
        return _Reads(self.table[chosen], self.reader[chosen], self.newest_share[chosen])


class _Keys:
    """One number for a table and a reader of the warehouse, in the order of their numbers in the catalog."""

    def __init__(self, tables: Integers, readers: Integers) -> None:
        """The numbers in the catalog, by place in the warehouse; none comes twice."""
        self.tables, self.readers = tables, readers
        self._tables_by_number, self._readers_by_number = np.argsort(tables), np.argsort(readers)
        self._table_rank = np.argsort(self._tables_by_number)
        self._reader_rank = np.argsort(self._readers_by_number)

    def of_places(self, table: Integers, reader: Integers) -> Integers:
        return self._table_rank[table] * len(self.readers) + self._reader_rank[reader]

    def of_numbers(self, table: Integers, reader: Integers) -> Integers:
        """-1 where the warehouse has no such table. All of the readers are there."""
        is_there, rank = _found(table, self.tables[self._tables_by_number])
        readers = np.searchsorted(self.readers[self._readers_by_number], reader)
        return np.where(is_there, rank * len(self.readers) + readers, -1)


async def _numbers(connection: AnyConnection) -> tuple[Integers, Integers, _Flags]:
    """Of each table and reader of the warehouse its number in the catalog; and whether the reader is only declared."""
    async with connection.cursor(binary=True) as cursor:
        await cursor.execute(_TABLE_NUMBERS)
        tables = sent_rows(await cursor.fetchall(), {"number": "i8"})
        await cursor.execute(_READER_NUMBERS)
        readers = sent_rows(await cursor.fetchall(), {"number": "i8", "is_declared": "?"})
    return tables["number"].astype(np.int64), readers["number"].astype(np.int64), readers["is_declared"]


async def _replace_reads(connection: AnyConnection, wanted: _Reads, catalog: _Keys) -> None:
    """Of readers that are only declared: what an import says of them is all that they read."""
    keys = catalog.of_places(wanted.table, wanted.reader)
    order = np.argsort(keys)
    keys, wanted = keys[order], wanted.where(order)
    async with connection.cursor(binary=True) as cursor:
        await cursor.execute(_READS_THAT_ARE)
        there = sent_rows(await cursor.fetchall(), {"table": "i8", "reader": "i8", "share": "f8"})
    stays, place = _found(catalog.of_numbers(there["table"], there["reader"]), keys)
    stays[stays] = wanted.newest_share[place[stays]] == there["share"][stays]
    is_new = np.ones(len(keys), np.bool_)
    is_new[place[stays]] = False
    await _drop_reads(connection, there["table"][~stays], there["reader"][~stays])
    new = wanted.where(is_new)
    columns = (catalog.tables[new.table], catalog.readers[new.reader], new.newest_share)
    async with (
        connection.cursor() as cursor,
        cursor.copy("COPY data_reads (table_number, reader, newest_share) FROM STDIN (FORMAT binary)") as copy,
    ):
        for rows in copied_rows(columns):
            await copy.write(rows)


async def _drop_reads(connection: AnyConnection, tables: Integers, readers: Integers) -> None:
    for begin in range(0, len(tables), _DROPPED_AT_ONCE):
        part = slice(begin, begin + _DROPPED_AT_ONCE)
        await connection.execute(_DROP_READS, (tables[part].tolist(), readers[part].tolist()))


async def _stage_reads(connection: AnyConnection, reads: _Reads) -> None:
    async with (
        connection.cursor() as cursor,
        cursor.copy(
            "COPY data_staged_reads (table_position, reader_position, newest_share) FROM STDIN (FORMAT binary)"
        ) as copy,
    ):
        for rows in copied_rows((reads.table.astype(np.int32), reads.reader.astype(np.int32), reads.newest_share)):
            await copy.write(rows)


def _found(wanted: Integers, ascending: Integers) -> tuple[_Flags, Integers]:
    """Whether each number is among the ascending ones, and where."""
    if not len(ascending):
        return np.zeros(len(wanted), np.bool_), np.zeros(len(wanted), np.int64)
    place = np.minimum(np.searchsorted(ascending, wanted), len(ascending) - 1)
    return ascending[place] == wanted, place
