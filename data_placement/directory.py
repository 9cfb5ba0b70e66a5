"""The data directory: which regions hold which tables; the real-time side of Tetris (MAST §4.3)."""

from __future__ import annotations

from collections.abc import Iterable

from domain.fleet import Table
from domain.identifiers import RegionId, TableId
from domain.workload import TableInput


class DataDirectory:
    """Tells a region which input tables it lacks. Held in memory; whoever moves a table tells it so.

    A region holds a table when it has a complete copy, home or replica; where the input must be fresh only the
    home region does, since replicas may be behind (MAST §3.1). A table that nobody registered is held nowhere.
    """

    __slots__ = ("_tables",)

    def __init__(self, tables: Iterable[Table] = ()) -> None:
        self._tables: dict[TableId, Table] = {table.table: table for table in tables}

    def record(self, table: Table) -> None:
        """Registers a table, or replaces what was known of it (a replica came or went, the home moved)."""
        self._tables[table.table] = table

    def forget(self, table: TableId) -> None:
        """Removes a dropped table; unknown ones are ignored."""
        self._tables.pop(table, None)

    def table(self, table: TableId) -> Table | None:
        """What is known of the table; None when nobody registered it."""
        return self._tables.get(table)

    def regions_holding(self, table_input: TableInput) -> tuple[RegionId, ...]:
        """The regions from which this input can be read, home first; empty when the table is unknown."""
        table = self._tables.get(table_input.table)
        if table is None:
            return ()
        return (table.home,) if table_input.fresh else table.regions

    def missing_tables(self, region: RegionId, inputs: Iterable[TableInput]) -> tuple[TableId, ...]:
        """Those of the inputs that cannot be read in this region, each once, in the order of the inputs."""
        missing: dict[TableId, None] = {}
        for table_input in inputs:
            if region not in self.regions_holding(table_input):
                missing[table_input.table] = None
        return tuple(missing)
