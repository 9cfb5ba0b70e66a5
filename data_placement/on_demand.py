"""Which tables are copied where for workloads that no region can run for want of data (MAST §3.2, §4.3).

Rule: in the order of the queue, a workload gets its tables in the region where it can start first: the time that the
missing ones take over the links, and the time that it is expected to wait there for hardware. Only regions count that
could ever run it, and in which copies of its tables have not just failed again and again. Of a table of which a workload reads no more than
the newest partitions those are copied. What is on the way for another one is on the way for it too; a region where all that it lacks is on
the way is taken before any new copy is made, so that a choice once made stays. A copy that is behind by more than an input
may be is copied anew.

Ignores: homes. They move by plan only, so where an input must be fresh the region that has its home is the only one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from data_placement.links import Links
from data_placement.migrations.deadlines import on_demand_deadline_s
from data_placement.migrations.life_cycle import MigrationState
from data_placement.migrations.migration import Migration, newest_to_copy, wider
from data_placement.migrations.storage import room
from data_placement.routing import NoRoute, route, seconds_of
from domain.identifiers import RegionId, TableId, WorkloadId
from domain.table import Table
from domain.table_partitions import TablePartitions
from domain.workload import TableInput


@dataclass(frozen=True, slots=True)
class PossibleRegion:
    """A region whose hardware could run the workload, and how long it is expected to wait for it there."""

    region: RegionId
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True)
class AwaitingWorkload:
    """A workload that waits for data."""

    workload: WorkloadId
    priority: int
    inputs: tuple[TableInput, ...]
    regions: tuple[PossibleRegion, ...]


@dataclass(frozen=True, slots=True)
class CopyOnDemand:
    """A copy that is to be made."""

    table: TableId
    size_bytes: int
    """That the target lacks."""
    target: RegionId
    priority: int
    deadline_s: float
    newest_partitions: int | None = None
    """So many of the newest partitions; None: the whole table."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The workload waits for its tables in this region."""

    workload: WorkloadId
    region: RegionId
    tables: tuple[TableId, ...]
    """All that it lacks there, on the way or to be copied."""
    start_in_s: float
    """When it can start there, as far as that can be said."""
    copies: tuple[CopyOnDemand, ...] = ()
    """Those that nobody asked for before it."""


@dataclass(frozen=True, slots=True)
class NotChosen:
    """Why nothing is copied for the workload, in a sentence."""

    workload: WorkloadId
    reason: str


Choice: TypeAlias = Chosen | NotChosen


@dataclass(frozen=True, slots=True)
class DataSurroundings:
    """What the choice looks at beside the workloads."""

    now: float
    table: Callable[[TableId], Table | None]
    holding: Callable[[TableInput], Sequence[RegionId]]
    """From which regions an input can be read."""
    regions: Sequence[RegionId]
    """All that there are."""
    links: Links
    free_bytes: Mapping[RegionId, float]
    """Of regions with a limit: beside what is stored and what copies under way have reserved."""
    on_the_way: Mapping[tuple[TableId, RegionId], Migration] = field(default_factory=dict)
    """Copies and moves that have not switched yet, by what they bring where."""
    partitions: Callable[[TableId], TablePartitions | None] = field(default=lambda _table: None)
    """Of tables that are read, or copied, in part; None: not known, or there are none."""
    refused: Callable[[TableId, RegionId], str] = field(default=lambda _table, _region: "")
    """Why no copy of the table can be made there, in a sentence; empty: it can, as far as is known."""


def on_the_way(migrations: Iterable[Migration]) -> dict[tuple[TableId, RegionId], Migration]:
    """The migrations that will bring a table to a region, by both."""
    return {
        (migration.table, migration.target): migration
        for migration in sorted(migrations, key=lambda migration: migration.number)
        if migration.before_switch
    }


def wanted_by(choices: Iterable[Choice]) -> frozenset[tuple[TableId, RegionId]]:
    """What somebody waits for: on-demand copies of anything else are given up."""
    return frozenset(
        (table, choice.region) for choice in choices if isinstance(choice, Chosen) for table in choice.tables
    )


def choose_copies(waiting: Sequence[AwaitingWorkload], around: DataSurroundings) -> list[Choice]:
    """A choice for each workload, in their order, which is that of the queue."""
    return _Choosing(around).choose(waiting)


@dataclass(frozen=True, slots=True)
class _Missing:
    """What a workload lacks of a table in a region."""

    table: Table
    newest: int | None
    """So many of the newest partitions; None: the whole table."""
    size_bytes: int
    is_new: bool
    """Nothing that brings it is on the way."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    region: RegionId
    tables: tuple[TableId, ...]
    new: tuple[_Missing, ...]
    start_in_s: float

    @property
    def rank(self) -> tuple[bool, float, str]:
        return bool(self.new), self.start_in_s, str(self.region)


class _Choosing:
    """Goes through the workloads; what one asks for is on the way for the next."""

    def __init__(self, around: DataSurroundings) -> None:
        self._around = around
        self._free = dict(around.free_bytes)
        self._coming = dict[tuple[TableId, RegionId], int | None]()
        """By table and region how many of the newest partitions are on the way; None: all of them."""
        for key, migration in around.on_the_way.items():
            self._coming[key] = migration.newest_partitions
            # Planned ones have reserved nothing yet, but will.
            if migration.target in self._free and not migration.reserved():
                self._free[migration.target] -= self._lacking_bytes(
                    around.table(migration.table), migration.size_bytes, migration.target, migration.newest_partitions
                )
        self._seconds: dict[tuple[TableId, RegionId, int | None], float | None] = {}

    def choose(self, waiting: Sequence[AwaitingWorkload]) -> list[Choice]:
        return [self._choose(workload) for workload in waiting]

    def _choose(self, workload: AwaitingWorkload) -> Choice:
        unknown = [each.table for each in workload.inputs if self._around.table(each.table) is None]
        if unknown:
            return NotChosen(workload.workload, f"table {unknown[0]} is not in the catalog")
        if not workload.regions:
            return NotChosen(workload.workload, "no region could run it, wherever its tables were")
        candidates: list[_Candidate] = []
        refusals: list[str] = []
        for possible in sorted(workload.regions, key=lambda each: each.region):
            found = self._candidate(workload, possible)
            if isinstance(found, str):
                refusals.append(found)
            else:
                candidates.append(found)
        if not candidates:
            return NotChosen(workload.workload, "; ".join(refusals))
        best = min(candidates, key=lambda candidate: candidate.rank)
        return self._chosen(workload, best)

    def _candidate(self, workload: AwaitingWorkload, possible: PossibleRegion) -> _Candidate | str:
        """What it takes there, or a sentence that says why it is impossible."""
        region = possible.region
        missing: list[_Missing] = []
        for each in workload.inputs:
            table = self._around.table(each.table)
            if table is None or region in self._around.holding(each):
                continue
            if each.fresh:
                return f"{each.table} must be fresh, and its home is {table.home}, not {region}"
            lacked = self._missing(table, region, each.newest_partitions)
            refusal = self._around.refused(each.table, region) if lacked.is_new else ""
            if refusal:
                return refusal
            missing.append(lacked)
        new = tuple(each for each in missing if each.is_new)
        needed = sum(each.size_bytes for each in new)
        if needed > room(self._free, region):
            return f"{region} has no room for {needed} bytes more"
        copying_s = 0.0
        for lacked in missing:
            seconds = self._copy_s(lacked, region)
            if seconds is None and lacked.is_new:
                return f"no link with any bandwidth leads from {', '.join(lacked.table.regions_up_to_date)} to {region}"
            copying_s += seconds or 0.0
        return _Candidate(region, tuple(each.table.table for each in missing), new, copying_s + possible.wait_s)

    def _missing(self, table: Table, region: RegionId, newest: int | None) -> _Missing:
        newest = newest_to_copy(table, region, newest)
        return _Missing(
            table,
            newest,
            self._lacking_bytes(table, table.size_bytes, region, newest),
            not self._is_coming(table.table, region, newest),
        )

    def _is_coming(self, table: TableId, region: RegionId, newest: int | None) -> bool:
        """Also when fewer partitions are under way: more can be asked for when those are there."""
        key = (table, region)
        if key not in self._coming:
            return False
        under_way = self._around.on_the_way.get(key)
        if under_way is not None and under_way.state is not MigrationState.PLANNED:
            return True
        return wider(self._coming[key], newest) == self._coming[key]

    def _lacking_bytes(self, table: Table | None, otherwise_bytes: int, region: RegionId, newest: int | None) -> int:
        """Bytes of the newest partitions that the region lacks; of the whole table where nothing is known of them."""
        known = None if table is None else self._around.partitions(table.table)
        if table is None or known is None or known.size_bytes != table.size_bytes:
            return otherwise_bytes
        return known.missing_bytes(region, newest)

    def _copy_s(self, missing: _Missing, region: RegionId) -> float | None:
        """Seconds that it takes to get there over links that are idle; None: it cannot."""
        table = missing.table
        key = (table.table, region, missing.newest)
        if key not in self._seconds:
            around = self._around
            holders = [holder for holder in table.regions_up_to_date if holder in around.regions]
            try:
                parts = route(missing.size_bytes, holders, region, around.regions, around.links, self._free)
                self._seconds[key] = seconds_of(parts, around.links)
            except NoRoute:
                self._seconds[key] = None
        return self._seconds[key]

    def _chosen(self, workload: AwaitingWorkload, best: _Candidate) -> Chosen:
        deadline_s = on_demand_deadline_s(workload.priority, self._around.now)
        copies = tuple(
            CopyOnDemand(each.table.table, each.size_bytes, best.region, workload.priority, deadline_s, each.newest)
            for each in best.new
        )
        for each in best.new:
            self._coming[each.table.table, best.region] = each.newest
            if best.region in self._free:
                self._free[best.region] -= each.size_bytes
        return Chosen(workload.workload, best.region, best.tables, best.start_in_s, copies)
