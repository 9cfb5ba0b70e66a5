"""The catalog: which tables there are and which regions hold them; the real-time side of Tetris (MAST §4.3).

It is no part of the fleet: tables come, go and move all the time, machines do not. So it has a revision of its own and
is changed in place, table by table. Every region has one of a million tables and answers from it while it holds a lease, so
it keeps numbers instead of objects: few of them, none that the garbage collector must look at, and no table of names that
would be copied as a whole when it grows.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from domain.identifiers import RegionId, TableId
from domain.table import Table
from domain.workload import TableInput, WorkloadSpecification
from domain.workload_fingerprint import workload_fingerprint

_SHARDS = 64
"""A dictionary of a million names takes 50 ms to grow; one of 64 parts takes 1 ms."""
_FREE = -1


class _Places(NamedTuple):
    """Where a table is; most of a million tables share a few of these."""

    home: RegionId
    replicas: tuple[RegionId, ...]
    regions: tuple[RegionId, ...]
    """All of them, home first, each once."""
    at_home: tuple[RegionId, ...]


class Catalog:
    """All tables, in memory; says which input tables a region lacks.

    A region holds a table when it has a complete copy, home or replica; where the input must be fresh only the
    home region does, since replicas may be behind (MAST §3.1), and where it may be so and so old, those replicas that are
    behind by no more. What reads no more than the newest partitions can do with a region that holds those. A table
    that is not in the catalog is held nowhere.
    """

    __slots__ = (
        "_free_rows",
        "_lags",
        "_newest_held",
        "_number_of",
        "_places",
        "_rows",
        "_sizes",
        "_where",
        "hints",
        "revision",
    )

    def __init__(self, tables: Iterable[Table] = (), revision: int = 0) -> None:
        """`revision`: grows with every change of the catalog that was stored; 0 for one that never was."""
        self.revision = revision
        self.hints: Mapping[str, RegionId] = {}
        """By fingerprint of a recurring workload, the region that the last plan of homes gave it (its R(job))."""
        self._rows: tuple[dict[TableId, int], ...] = tuple({} for _ in range(_SHARDS))
        self._sizes = array("q")
        self._where = array("l")
        """By row: the number of its places; _FREE: no table has the row."""
        self._free_rows: list[int] = []
        self._places: list[_Places] = []
        self._number_of: dict[tuple[RegionId, ...], int] = {}
        self._lags: dict[int, tuple[tuple[RegionId, float], ...]] = {}
        self._newest_held: dict[int, tuple[tuple[RegionId, int], ...]] = {}
        for table in tables:
            self.record(table)

    def __len__(self) -> int:
        return sum(map(len, self._rows))

    def __iter__(self) -> Iterator[Table]:
        """All tables, sorted by name."""
        return (self._table(name, self._shard(name)[name]) for name in sorted(self.names))

    @property
    def names(self) -> Collection[TableId]:
        """The names of all tables, in no order; they change with the catalog."""
        return _Names(self._rows)

    def record(self, table: Table) -> None:
        """Enters a table, or replaces what was known of it (a replica came or went, the home moved)."""
        self.enter(table.table, table.size_bytes, table.home, table.replicas, table.lags_s)
        self.enter_newest_held(table.table, table.newest_held)

    def enter(
        self,
        name: TableId,
        size_bytes: int,
        home: RegionId,
        replicas: Sequence[RegionId],
        lags_s: tuple[tuple[RegionId, float], ...] = (),
    ) -> None:
        """As `record`, without the object, for a table of which no region holds partitions alone."""
        shard = self._shard(name)
        row = shard.get(name)
        where = self._place_number(home, replicas)
        if row is None:
            row = self._new_row()
            shard[name] = row
        self._sizes[row] = size_bytes
        self._where[row] = where
        if lags_s:
            self._lags[row] = lags_s
        else:
            self._lags.pop(row, None)
        self._newest_held.pop(row, None)

    def enter_newest_held(self, name: TableId, newest_held: tuple[tuple[RegionId, int], ...]) -> None:
        """Says which regions hold no copy of the table, but so many of its newest partitions; unknown tables are ignored."""
        row = self._shard(name).get(name)
        if row is None:
            return
        if newest_held:
            self._newest_held[row] = newest_held
        else:
            self._newest_held.pop(row, None)

    def forget(self, table: TableId) -> None:
        """Removes a dropped table; unknown ones are ignored."""
        row = self._shard(table).pop(table, None)
        if row is not None:
            self._where[row] = _FREE
            self._lags.pop(row, None)
            self._newest_held.pop(row, None)
            self._free_rows.append(row)

    def table(self, table: TableId) -> Table | None:
        """What is known of the table; None when it is not in the catalog."""
        row = self._shard(table).get(table)
        return None if row is None else self._table(table, row)

    def regions_holding(self, table_input: TableInput) -> tuple[RegionId, ...]:
        """The regions from which this input can be read, home first; empty when the table is unknown."""
        table = table_input.table
        row = self._shard(table).get(table)
        if row is None:
            return ()
        places = self._places[self._where[row]]
        if table_input.fresh:
            return places.at_home
        holding = places.regions
        if table_input.max_age_s is not None and row in self._lags:
            holding = self._table(table, row).regions_within(table_input.max_age_s)
        newest = table_input.newest_partitions
        if newest is not None and row in self._newest_held:
            return (*holding, *(region for region, held in self._newest_held[row] if held >= newest))
        return holding

    def missing_tables(self, region: RegionId, inputs: Iterable[TableInput]) -> tuple[TableId, ...]:
        """Those of the inputs that cannot be read in this region, each once, in the order of the inputs."""
        missing: dict[TableId, None] = {}
        for table_input in inputs:
            if region not in self.regions_holding(table_input):
                missing[table_input.table] = None
        return tuple(missing)

    def expects_elsewhere(self, region: RegionId, specification: WorkloadSpecification) -> bool:
        """Whether the last plan gave the recurring workload that this is a run of to another region."""
        if not self.hints or not specification.tables:
            return False
        fingerprint = workload_fingerprint(specification)
        return fingerprint is not None and self.hints.get(fingerprint, region) != region

    def _shard(self, name: TableId) -> dict[TableId, int]:
        return self._rows[hash(name) % _SHARDS]

    def _table(self, name: TableId, row: int) -> Table:
        places = self._places[self._where[row]]
        lags_s, newest_held = self._lags.get(row, ()), self._newest_held.get(row, ())
        return Table(name, self._sizes[row], places.home, places.replicas, lags_s, newest_held)

    def _new_row(self) -> int:
        if self._free_rows:
            return self._free_rows.pop()
        self._sizes.append(0)
        self._where.append(_FREE)
        return len(self._where) - 1

    def _place_number(self, home: RegionId, replicas: Sequence[RegionId]) -> int:
        key = (home, *replicas)
        number = self._number_of.get(key)
        if number is None:
            number = self._number_of[key] = len(self._places)
            regions = (home, *(region for region in replicas if region != home))
            self._places.append(_Places(home, tuple(replicas), regions, (home,)))
        return number


class _Names(Collection[TableId]):
    def __init__(self, shards: tuple[dict[TableId, int], ...]) -> None:
        self._shards = shards

    def __contains__(self, name: object) -> bool:
        return name in self._shards[hash(name) % _SHARDS]

    def __iter__(self) -> Iterator[TableId]:
        for shard in self._shards:
            yield from shard

    def __len__(self) -> int:
        return sum(map(len, self._shards))
