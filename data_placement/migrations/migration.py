"""A migration: a table gets a copy in another region.

A complete one may become its home, and may replace an old one. One of the newest partitions alone (MAST §3.5) may become
complete by a later migration that brings the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from data_placement.migrations.life_cycle import BEFORE_SWITCH, BEGUN, MigrationState
from domain.identifiers import RegionId, TableId
from domain.table import Table
from domain.table_partitions import TablePartitions, with_partitions, without_regions


@dataclass(frozen=True, slots=True)
class RoutePart:
    """So many bytes of a copy go this way: from a region that holds the table to the target, perhaps over a third one."""

    path: tuple[RegionId, ...]
    bytes: int

    @property
    def links(self) -> tuple[tuple[RegionId, RegionId], ...]:
        return tuple(zip(self.path, self.path[1:], strict=False))


@dataclass(frozen=True, slots=True)
class Migration:
    """What is to be done, and how far it is."""

    number: int
    table: TableId
    size_bytes: int
    """Of the table when it was enqueued, or when its copy last began."""
    target: RegionId
    leaves: RegionId | None
    """The home that it moves away from; None: a copy is made, and nothing else changes."""
    priority: int = 0
    """Among those with a deadline: of the workloads that it is for; 0 is the highest."""
    deadline_s: float | None = None
    """When it should be complete; None: in the background."""
    on_demand: bool = False
    """Workloads wait for it; when none does any more it is given up."""
    newest_partitions: int | None = None
    """So many of the newest partitions are copied; None: the whole table."""
    partitions: tuple[str, ...] = ()
    """Which those were when the copy last began; empty for whole tables."""
    state: MigrationState = MigrationState.PLANNED
    parts: tuple[RoutePart, ...] = ()
    """How it is copied; empty before it begins, and where the target has a complete copy already."""
    copy_bytes: int = 0
    """What the target needs room for; 0 before it begins, and where the target has a complete copy already."""
    failures: int = 0
    """How many tries failed."""
    retry_s: float = 0.0
    """After a failure it is tried again, after the switch the old copy is deleted: not before then."""
    reason: str = ""
    """Why it failed, waits or was given up, in a sentence."""
    keeps_old_copy: bool = False
    """The home that it moves away from holds a copy from then on; else that is deleted in the end."""

    def __post_init__(self) -> None:
        if self.leaves == self.target:
            raise ValueError(f"migration {self.number} moves {self.table} from {self.target} to where it is")
        if self.newest_partitions is not None and (self.leaves is not None or self.newest_partitions < 1):
            raise ValueError(
                f"migration {self.number} copies the {self.newest_partitions} newest partitions of {self.table}; 1 or more"
                " are possible, and no home goes with them"
            )
        if self.keeps_old_copy and self.leaves is None:
            raise ValueError(f"migration {self.number} copies {self.table}: there is no old copy for it to keep")
        if self.size_bytes < 0:
            raise ValueError(f"migration {self.number} copies {self.size_bytes} bytes; 0 or more are possible")

    @property
    def moves_home(self) -> bool:
        return self.leaves is not None

    @property
    def gives_up(self) -> RegionId | None:
        """The region whose copy is deleted in the end; None: none is."""
        return None if self.keeps_old_copy else self.leaves

    @property
    def before_switch(self) -> bool:
        """It has not brought the table yet, and still is to."""
        return self.state in BEFORE_SWITCH

    @property
    def rank(self) -> tuple[bool, int, float, int]:
        """Which goes first: soft deadlines by priority, then the earliest; then the background in order."""
        if self.deadline_s is None:
            return True, 0, 0.0, self.number
        return False, self.priority, self.deadline_s, self.number

    @property
    def ended(self) -> bool:
        """Nothing is left to do."""
        if self.state is MigrationState.SWITCHED:
            return self.gives_up is None
        return self.state in (MigrationState.DONE, MigrationState.ABANDONED)

    def reserved(self) -> dict[RegionId, int]:
        """Bytes by region that it takes beside what the catalog says: at the target, and on the way, until the switch; of
        the copy that is to be deleted, from the switch on."""
        if self.state in BEGUN or self.state is MigrationState.WITHDRAWN:
            taken = {self.target: self.copy_bytes}
            for part in self.parts:
                for region in part.path[1:-1]:
                    taken[region] = taken.get(region, 0) + part.bytes
            return taken
        if self.gives_up is not None and self.state in (MigrationState.SWITCHED, MigrationState.DELETING):
            return {self.gives_up: self.size_bytes}
        return {}


def switch_problem(table: Table | None, migration: Migration) -> str:
    """Why the catalog cannot name the copy, in a sentence; empty: it can. `table` is what it says now."""
    if table is None:
        return f"table {migration.table} is not in the catalog any more"
    if migration.leaves is not None and table.home != migration.leaves:
        return f"the home of {migration.table} is {table.home} by now, not {migration.leaves}"
    if table.size_bytes != migration.size_bytes:
        return f"{migration.table} has {table.size_bytes} bytes by now, not {migration.size_bytes}"
    return ""


def newest_to_copy(table: Table, target: RegionId, newest: int | None) -> int | None:
    """How many of the newest partitions a copy brings there; None: all, also where a copy is that is behind."""
    return None if target in table.regions else newest


def bytes_to_copy(table: Table, target: RegionId, newest: int | None, partitions: TablePartitions | None) -> int:
    """Bytes that the target lacks of so many of the newest partitions; of the whole table where nobody knows what it has."""
    if target in table.regions_up_to_date:
        return 0
    if partitions is None or partitions.size_bytes != table.size_bytes:
        return table.size_bytes
    return partitions.missing_bytes(target, newest_to_copy(table, target, newest))


def wider(one: int | None, other: int | None) -> int | None:
    """Which of two numbers of newest partitions is more; None: all of them."""
    return None if one is None or other is None else max(one, other)


def switched_table(table: Table, migration: Migration, partitions: TablePartitions | None = None) -> Table:
    """What the catalog says of the table once the copy is complete; where there is no `switch_problem`. `partitions`: what
    was known of them before it, for a copy that may hold some of them alone.
    """
    newest_held = tuple(each for each in table.newest_held if each[0] != migration.target)
    if migration.partitions and partitions is not None:
        after = after_copy(partitions, migration)
        if after.missing(migration.target, None):
            count = after.newest_held(migration.target)
            return replace(table, newest_held=tuple(sorted((*newest_held, (migration.target, count)))))
    table = replace(table, newest_held=newest_held)
    lags_s = tuple(lag for lag in table.lags_s if lag[0] not in (migration.target, migration.leaves))
    if migration.leaves is None:
        replicas = {*table.replicas, migration.target} - {table.home}
        return replace(table, replicas=tuple(sorted(replicas)), lags_s=lags_s)
    replicas = {*table.replicas} - {migration.target, migration.leaves}
    if migration.keeps_old_copy:
        replicas.add(migration.leaves)
    return replace(table, home=migration.target, replicas=tuple(sorted(replicas)), lags_s=lags_s)


def after_copy(partitions: TablePartitions, migration: Migration) -> TablePartitions:
    """What is known of copies that lack partitions once the migration has switched."""
    if migration.partitions:
        return with_partitions(partitions, migration.target, migration.partitions)
    return without_regions(partitions, {migration.target, migration.gives_up})
