"""The catalog: which tables there are and which regions hold them; the real-time side of Tetris (MAST §4.3).

It is no part of the fleet: tables come, go and move all the time, machines do not. So it has a revision of its own and
is changed in place, by what has become different since the revision that it is at.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from domain.identifiers import RegionId, TableId
from domain.table import Table
from domain.workload import TableInput


@dataclass(frozen=True, slots=True)
class CatalogChange:
    """What leads from any catalog at revision `since` or later to the one at `revision`."""

    since: int
    revision: int
    tables: tuple[Table, ...] = ()
    """New ones, and those of which something is different now."""
    dropped: tuple[TableId, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.since <= self.revision:
            raise ValueError(f"a catalog cannot change from revision {self.since} to {self.revision}")

    def __bool__(self) -> bool:
        """Whether any table is different."""
        return bool(self.tables or self.dropped)


class Catalog:
    """All tables, in memory; says which input tables a region lacks.

    A region holds a table when it has a complete copy, home or replica; where the input must be fresh only the
    home region does, since replicas may be behind (MAST §3.1). A table that is not in the catalog is held nowhere.
    """

    __slots__ = ("_tables", "revision")

    def __init__(self, tables: Iterable[Table] = (), revision: int = 0) -> None:
        """`revision`: grows with every change of the catalog that was stored; 0 for one that never was."""
        self._tables: dict[TableId, Table] = {table.table: table for table in tables}
        self.revision = revision

    def __len__(self) -> int:
        return len(self._tables)

    def __iter__(self) -> Iterator[Table]:
        """All tables, sorted by name."""
        return (self._tables[name] for name in sorted(self._tables))

    @property
    def names(self) -> Collection[TableId]:
        """The names of all tables, in no order; they change with the catalog."""
        return self._tables.keys()

    def record(self, table: Table) -> None:
        """Enters a table, or replaces what was known of it (a replica came or went, the home moved)."""
        self._tables[table.table] = table

    def forget(self, table: TableId) -> None:
        """Removes a dropped table; unknown ones are ignored."""
        self._tables.pop(table, None)

    def apply(self, change: CatalogChange) -> None:
        """Carries the change out. Raises ValueError, and changes nothing, when it begins at a later revision."""
        if change.since > self.revision:
            raise ValueError(f"the catalog is at revision {self.revision}, the change begins at {change.since}")
        if change.revision <= self.revision:
            return
        for name in change.dropped:
            self.forget(name)
        for table in change.tables:
            self.record(table)
        self.revision = change.revision

    def table(self, table: TableId) -> Table | None:
        """What is known of the table; None when it is not in the catalog."""
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
