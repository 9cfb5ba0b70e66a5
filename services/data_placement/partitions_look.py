"""What tables consist of, as far as copies of parts of them are looked at; read again when the catalog has changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from data_placement.migrations.migration import Migration, bytes_to_copy
from domain.identifiers import RegionId, TableId
from domain.table import Table
from domain.table_partitions import TablePartitions
from services.database.connection import AnyConnection
from services.database.partition_copy_store import load_table_partitions
from services.database.revision_store import load_revisions


class PartitionsLook:
    """Remembers, for one revision of the catalog, what was asked for."""

    def __init__(self) -> None:
        self._revision = -1
        self._known: dict[TableId, TablePartitions | None] = {}

    async def now(self, connection: AnyConnection, tables: Sequence[TableId]) -> Mapping[TableId, TablePartitions]:
        """Of these tables, those that have partitions; the transaction must be one snapshot."""
        if not tables:
            return {}
        return await self.of(connection, tables, (await load_revisions(connection)).catalog)

    async def of(
        self, connection: AnyConnection, tables: Sequence[TableId], revision: int
    ) -> Mapping[TableId, TablePartitions]:
        """The same where the revision of the snapshot is known."""
        if revision != self._revision:
            self._revision, self._known = revision, {}
        unknown = sorted({table for table in tables if table not in self._known})
        if unknown:
            found = await load_table_partitions(connection, unknown)
            self._known.update({table: found.get(table) for table in unknown})
        return {table: known for table in tables if (known := self._known[table]) is not None}


async def missing_bytes(connection: AnyConnection, copies: Sequence[tuple[Table, RegionId, int | None]]) -> int:
    """What these copies of tables, of so many of the newest partitions (None: all), bring to their regions, all together."""
    in_part = [table.table for table, _, newest in copies if table.is_copied_in_part(newest)]
    partitions = await load_table_partitions(connection, in_part)
    return sum(bytes_to_copy(table, target, newest, partitions.get(table.table)) for table, target, newest in copies)


async def why_not_newest(connection: AnyConnection, migration: Migration) -> str:
    """Why a copy of the newest partitions is none of them any more, in a sentence; empty: it is. One that comes while the
    oldest goes changes no size."""
    if not migration.partitions:
        return ""
    known = (await load_table_partitions(connection, [migration.table])).get(migration.table)
    newest = () if known is None else known.newest(len(migration.partitions))
    if tuple(partition.name for partition in newest) == migration.partitions:
        return ""
    return f"the newest partitions of {migration.table} are others by now"
