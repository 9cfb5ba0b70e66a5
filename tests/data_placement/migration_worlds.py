"""A small world in which migrations are carried out by whatever order of reports, crashes and changes a test draws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from data_placement.links import Links
from data_placement.migrations.decision import (
    BeginCopy,
    BeginDeletion,
    FailTry,
    GiveUp,
    Keep,
    Step,
    Surroundings,
    decide,
    retry_after_s,
)
from data_placement.migrations.life_cycle import MigrationHappening, MigrationState, next_migration_state
from data_placement.migrations.migration import Migration, after_copy, switch_problem, switched_table
from data_placement.migrations.storage import Storage, stored_bytes
from domain.identifiers import RegionId, TableId
from domain.table import Table
from domain.table_partitions import TablePartitions


@dataclass
class MigrationWorld:
    """The catalog, what is really in the regions, and all migrations."""

    tables: dict[TableId, Table]
    capacity: dict[RegionId, float]
    regions: list[RegionId]
    links: Links = field(default_factory=Links)
    migrations: dict[int, Migration] = field(default_factory=dict)
    complete: dict[tuple[TableId, RegionId], int] = field(default_factory=dict)
    """Bytes of complete copies, by where they really are."""
    partial: dict[int, tuple[RegionId, int]] = field(default_factory=dict)
    """Bytes that a migration may have written to its target, at worst."""
    now: float = 0.0
    quota_left: float = float("inf")
    wanted: Callable[[Migration], bool] = lambda _migration: True
    partitions: dict[TableId, TablePartitions] = field(default_factory=dict)
    """Of tables of which copies may hold a part."""
    held: dict[tuple[TableId, RegionId], frozenset[str]] = field(default_factory=dict)
    """Partitions that are really there, where there is no complete copy."""

    def __post_init__(self) -> None:
        for table in self.tables.values():
            for region in table.regions:
                self.complete[table.table, region] = table.size_bytes

    def enqueue(self, migration: Migration) -> None:
        self.migrations[migration.number] = migration

    def steps(self) -> list[Step]:
        around = Surroundings(
            self.now,
            self.tables.get,
            self.regions,
            self.links,
            Storage(self.capacity, stored_bytes(self.tables.values(), self.partitions)),
            quota_left_bytes=self.quota_left,
            wanted=self.wanted,
            partitions=self.partitions.get,
        )
        return decide(list(self.migrations.values()), around)

    def look(self) -> list[Step]:
        """Decides and writes down all of it."""
        steps = self.steps()
        for step in steps:
            self.write(step)
        return steps

    def write(self, step: Step) -> None:
        migration = step.migration
        if isinstance(step, BeginCopy):
            self._happens(
                migration,
                MigrationHappening.COPY_BEGAN,
                size_bytes=step.size_bytes,
                copy_bytes=step.copy_bytes,
                parts=step.parts,
                partitions=step.partitions,
            )
            if step.copy_bytes:
                self.partial[migration.number] = (migration.target, step.copy_bytes)
        elif isinstance(step, FailTry):
            self._happens(migration, MigrationHappening.TRY_FAILED, reason=step.reason)
        elif isinstance(step, GiveUp):
            self._happens(migration, MigrationHappening.GIVEN_UP, reason=step.reason)
        elif isinstance(step, BeginDeletion):
            self._happens(migration, MigrationHappening.DELETION_BEGAN)
        elif isinstance(step, Keep):
            self._happens(migration, MigrationHappening.KEPT)

    def progress(self, number: int, *, fails: bool) -> None:
        """What the mover of this migration reports next."""
        migration = self.migrations[number]
        state = migration.state
        if fails and state in (MigrationState.COPYING, MigrationState.VERIFYING):
            failures = migration.failures + 1
            self._happens(
                migration,
                MigrationHappening.TRY_FAILED,
                failures=failures,
                retry_s=self.now + retry_after_s(failures),
                reason="disk full",
            )
        elif state is MigrationState.COPYING:
            self._happens(migration, MigrationHappening.COPIED)
        elif state is MigrationState.VERIFYING:
            self._switch(migration)
        elif state is MigrationState.WITHDRAWN:
            self.partial.pop(number, None)
            self._happens(migration, MigrationHappening.CLEANED)
        elif state is MigrationState.DELETING:
            assert migration.leaves is not None
            self.complete.pop((migration.table, migration.leaves), None)
            self._happens(migration, MigrationHappening.DELETED)

    def _switch(self, migration: Migration) -> None:
        table = self.tables.get(migration.table)
        problem = switch_problem(table, migration)
        if table is None or problem:
            self._happens(migration, MigrationHappening.TRY_FAILED, reason=problem)
            return
        self.partial.pop(migration.number, None)
        self._happens(migration, MigrationHappening.VERIFIED)
        known = self.partitions.get(migration.table)
        after = self.tables[migration.table] = switched_table(table, migration, known)
        if known is not None:
            self.partitions[migration.table] = after_copy(known, migration)
        key = (migration.table, migration.target)
        if migration.target in after.regions:
            self.complete[key] = migration.size_bytes
            self.held.pop(key, None)
        else:
            self.held[key] = self.held.get(key, frozenset()) | frozenset(migration.partitions)

    def crash(self, number: int) -> None:
        """Whoever carried it out is gone: what was begun begins again, from what is written down."""
        migration = self.migrations[number]
        if migration.state in (MigrationState.COPYING, MigrationState.VERIFYING):
            self._happens(migration, MigrationHappening.COPY_BEGAN)
        elif migration.state is MigrationState.DELETING:
            self._happens(migration, MigrationHappening.DELETION_BEGAN)

    def _happens(self, migration: Migration, happening: MigrationHappening, **changes: object) -> None:
        state = next_migration_state(migration.number, migration.state, happening)
        self.migrations[migration.number] = replace(migration, state=state, **changes)  # type: ignore[arg-type]  # fields by name

    def stored(self, region: RegionId) -> int:
        """Bytes that are really there, with whatever copies under way may have written."""
        whole = sum(size for (_, where), size in self.complete.items() if where == region)
        for (table, where), names in self.held.items():
            if where == region:
                whole += sum(each.size_bytes for each in self.partitions[table].newest_first if each.name in names)
        # A complete copy is the same files as the partial one of a migration that has not switched yet.
        return whole + sum(size for where, size in self.partial.values() if where == region)
