"""What migrations do next: which copies begin, which are given up, and which old copies may be deleted.

One function of what is stored; the service and the simulator carry out what it says, and report back by the table of
states (`life_cycle`). At most one migration of a table is under way at a time, so that none deletes what another reads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from data_placement.links import Links
from data_placement.migrations.bandwidth import committed_bytes
from data_placement.migrations.life_cycle import BEFORE_SWITCH, BEGUN, MigrationState
from data_placement.migrations.migration import Migration, RoutePart, bytes_to_copy, newest_to_copy
from data_placement.migrations.order import Relocation, WaitingMove, order_of_moves
from data_placement.migrations.over_commitment import without_room
from data_placement.migrations.storage import Storage, room
from data_placement.routing import NoRoute, route
from domain.identifiers import RegionId, TableId
from domain.table import Table
from domain.table_partitions import TablePartitions

MOST_FAILURES = 3
"""After so many failed tries a migration is given up."""
MOST_AT_ONCE = 16
"""Copies that are under way at the same time."""
FIRST_RETRY_S = 30.0


@dataclass(frozen=True, slots=True)
class BeginCopy:
    """Room is reserved, and these bytes go these ways; none: the target has a complete copy already."""

    migration: Migration
    size_bytes: int
    copy_bytes: int
    parts: tuple[RoutePart, ...]
    partitions: tuple[str, ...] = ()
    """Those of which the copy consists; empty: all that the table has."""


@dataclass(frozen=True, slots=True)
class FailTry:
    """What it reads from, or goes over, is gone: it is routed anew."""

    migration: Migration
    reason: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """It is not wanted, or not possible, any more."""

    migration: Migration
    reason: str


@dataclass(frozen=True, slots=True)
class BeginDeletion:
    """The copy that it replaces may go."""

    migration: Migration


@dataclass(frozen=True, slots=True)
class Keep:
    """The copy that it was to delete is needed again."""

    migration: Migration
    reason: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing is done about it now, and why."""

    migration: Migration
    reason: str


Step: TypeAlias = BeginCopy | FailTry | GiveUp | BeginDeletion | Keep | Wait


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the decision looks at beside the migrations."""

    now: float
    table: Callable[[TableId], Table | None]
    """What the catalog says."""
    regions: Collection[RegionId]
    links: Links
    storage: Storage
    quota_left_bytes: float = float("inf")
    """Of what may be copied today."""
    quota_bytes: float = float("inf")
    """Of what may be copied in a day."""
    read_in: Callable[[TableId, RegionId], bool] = field(default=lambda _table, _region: False)
    """Whether anything that runs in the region reads the table there."""
    wanted: Callable[[Migration], bool] = field(default=lambda _migration: True)
    """Whether anybody still waits for an on-demand copy."""
    partitions: Callable[[TableId], TablePartitions | None] = field(default=lambda _table: None)
    """Of tables of which copies lack some, what they consist of and what those have; None: not known, or there are none."""


def decide(migrations: Sequence[Migration], around: Surroundings) -> list[Step]:
    """A step for each migration that has not ended and is not just being carried out, in order of number for those under
    way, then in the order in which copies begin."""
    active = sorted((each for each in migrations if not each.ended), key=lambda each: each.number)
    steps: list[Step] = []
    given_up: set[int] = set()
    too_many = without_room(active, around.storage)
    for migration in active:
        step = _step_of(migration, around, too_many.get(migration.number, ""))
        if step is not None:
            steps.append(step)
        if isinstance(step, GiveUp):
            given_up.add(migration.number)
    steps.extend(_beginnings([each for each in active if each.number not in given_up], around))
    return steps


def retry_after_s(failures: int) -> float:
    """How long to wait after so many failed tries."""
    return FIRST_RETRY_S * 2.0 ** min(failures - 1, 10)


def _step_of(migration: Migration, around: Surroundings, too_many: str) -> Step | None:
    """Whether a migration goes on; None when it does, or is looked at with the beginnings. `too_many` says why it has no room
    any more."""
    state = migration.state
    if state in BEFORE_SWITCH:
        reason = _why_given_up(migration, around) or too_many
        if reason:
            return GiveUp(migration, reason)
        if state in (MigrationState.COPYING, MigrationState.VERIFYING):
            gone = [region for part in migration.parts for region in part.path if region not in around.regions]
            if gone:
                return FailTry(migration, f"region {gone[0]}, from or over which it was copied, is gone")
        return None
    if state is MigrationState.SWITCHED and migration.gives_up is not None:
        return _deletion(migration, migration.gives_up, around)
    return None


def _deletion(migration: Migration, leaves: RegionId, around: Surroundings) -> Step:
    table = around.table(migration.table)
    if table is not None and leaves in table.regions:
        return Keep(migration, f"the catalog names the copy in {leaves} again")
    if around.now < migration.retry_s:
        return Wait(migration, f"the copy in {leaves} stays for a moment, for what is just being dispatched")
    if around.read_in(migration.table, leaves):
        return Wait(migration, f"workloads that run in {leaves} still read the copy there")
    return BeginDeletion(migration)


def _why_given_up(migration: Migration, around: Surroundings) -> str:
    """A sentence; empty: it goes on."""
    table = around.table(migration.table)
    if table is None:
        return f"table {migration.table} is not in the catalog any more"
    if migration.target not in around.regions:
        return f"region {migration.target} is not in the fleet any more"
    if migration.leaves is not None and table.home != migration.leaves:
        return f"the home of {migration.table} is {table.home} by now, not {migration.leaves}"
    if migration.leaves is None and migration.target in table.regions_up_to_date:
        return f"{migration.target} holds {migration.table} already"
    newest = migration.newest_partitions
    if newest is not None and table.holds_newest(migration.target, newest):
        return f"{migration.target} holds the {newest} newest partitions of {migration.table} already"
    if migration.failures >= MOST_FAILURES:
        return f"given up after {migration.failures} tries; the last: {migration.reason}"
    if migration.on_demand and not around.wanted(migration):
        return "no workload waits for it any more"
    return ""


def _beginnings(active: Sequence[Migration], around: Surroundings) -> list[Step]:
    """Which of the planned ones begin now, in the order that storage allows, and why the others wait."""
    free = around.storage.free_bytes(active)
    busy = {each.table: each for each in reversed(active) if each.state is not MigrationState.PLANNED}
    running = [each for each in active if each.state in (MigrationState.COPYING, MigrationState.VERIFYING)]
    candidates: list[Migration] = []
    steps: list[Step] = []
    for migration in sorted(active, key=lambda each: each.rank):
        if migration.state is MigrationState.FAILED and migration.retry_s <= around.now:
            candidates.append(migration)
        elif migration.state is MigrationState.PLANNED:
            if migration.table in busy:
                other = busy[migration.table].number
                steps.append(Wait(migration, f"migration {other} of the same table comes first"))
            else:
                busy[migration.table] = migration
                candidates.append(migration)
    return steps + _Admission(around, free, running, active).of(candidates)


class _Admission:
    """Goes through the candidates in an order in which all fit; what does not fit yet keeps its target for itself."""

    def __init__(
        self, around: Surroundings, free: dict[RegionId, float], running: list[Migration], active: Sequence[Migration]
    ) -> None:
        self._around = around
        self._free = free
        self._running = running
        self._active = active
        self._quota_left = around.quota_left_bytes
        self._claimed: dict[RegionId, int] = {}

    def of(self, candidates: Sequence[Migration]) -> list[Step]:
        by_number = {each.number: each for each in candidates}
        # Moves under way give their old room back before anything has to be given up for lack of it.
        expected = dict(self._free)
        for each in self._active:
            if each.gives_up in expected and each.state not in (MigrationState.PLANNED, MigrationState.FAILED):
                expected[each.gives_up] += each.size_bytes
            elif each.state is MigrationState.WITHDRAWN and each.target in expected:
                expected[each.target] += each.copy_bytes
        order = order_of_moves([self._relocation(each) for each in candidates], expected)
        steps = [self._step(by_number[number]) for number in order.order]
        return steps + [Wait(by_number[each.number], _no_room(each, by_number)) for each in order.waiting]

    def _relocation(self, migration: Migration) -> Relocation:
        table = self._table(migration)
        leaves = migration.gives_up
        needed = self._needed(migration, table)
        return Relocation(migration.number, migration.target, needed, leaves, 0 if leaves is None else table.size_bytes)

    def _needed(self, migration: Migration, table: Table) -> int:
        """Beside what it has reserved already."""
        return self._to_copy(migration, table) - (
            migration.copy_bytes if migration.state is MigrationState.FAILED else 0
        )

    def _table(self, migration: Migration) -> Table:
        table = self._around.table(migration.table)
        if table is None:
            raise ValueError(f"migration {migration.number} of {migration.table}, which is not in the catalog, goes on")
        return table

    def _step(self, migration: Migration) -> Step:
        around, table = self._around, self._table(migration)
        copied = self._to_copy(migration, table)
        needed = self._needed(migration, table)
        if copied > around.quota_bytes:
            return Wait(
                migration, f"{copied} bytes are more than the {around.quota_bytes:.0f} that may be copied in a day"
            )
        if migration.target in self._claimed:
            first = self._claimed[migration.target]
            return Wait(migration, f"migration {first} comes first at {migration.target}, and waits for room there")
        if needed > room(self._free, migration.target):
            self._claimed[migration.target] = migration.number
            return Wait(migration, f"waits for {needed} bytes of room in {migration.target}")
        if copied > self._quota_left:
            return Wait(migration, f"waits for tomorrow: {self._quota_left:.0f} bytes may still be copied today")
        if len(self._running) >= MOST_AT_ONCE:
            return Wait(migration, f"{len(self._running)} other copies are under way")
        return self._begin(migration, table, copied)

    def _begin(self, migration: Migration, table: Table, copied: int) -> Step:
        around = self._around
        parts: tuple[RoutePart, ...] = ()
        if migration.target not in table.regions_up_to_date:
            holders = [region for region in table.regions_up_to_date if region in around.regions]
            committed = committed_bytes(self._running)
            # A third region holds nothing in between that others of its room were promised.
            between = {region: 0.0 if region in self._claimed else left for region, left in self._free.items()}
            try:
                parts = route(copied, holders, migration.target, around.regions, around.links, between, committed)
            except NoRoute as refused:
                return GiveUp(migration, str(refused))
        self._charge(migration, copied, parts)
        known = self._partitions_of(table)
        newest = newest_to_copy(table, migration.target, migration.newest_partitions)
        wanted = () if newest is None or known is None else known.newest(newest)
        return BeginCopy(migration, table.size_bytes, copied, parts, tuple(each.name for each in wanted))

    def _partitions_of(self, table: Table) -> TablePartitions | None:
        known = self._around.partitions(table.table)
        return None if known is None or known.size_bytes != table.size_bytes else known

    def _to_copy(self, migration: Migration, table: Table) -> int:
        """Bytes that the target lacks."""
        known = self._around.partitions(table.table)
        return bytes_to_copy(table, migration.target, migration.newest_partitions, known)

    def _charge(self, migration: Migration, copied: int, parts: tuple[RoutePart, ...]) -> None:
        begun = replace(migration, state=MigrationState.COPYING, copy_bytes=copied, parts=parts)
        before = migration.reserved() if migration.state in BEGUN else {}
        for region, taken in begun.reserved().items():
            if region in self._free:
                self._free[region] -= taken
        for region, given_back in before.items():
            if region in self._free:
                self._free[region] += given_back
        self._quota_left -= copied
        self._running.append(begun)


def _no_room(waiting: WaitingMove, candidates: Mapping[int, Migration]) -> str:
    others = [candidates[number].table for number in waiting.waits_for]
    missing = (
        f"no order of the moves makes room for it in {waiting.region}: {waiting.missing_bytes:.0f} bytes are missing"
    )
    if not others:
        return f"{missing}, and no move leaves that region; make room there, or drop the move"
    shown = ", ".join(str(table) for table in others[:5]) + (" and others" if len(others) > 5 else "")
    return f"{missing}, and it waits for {shown} to leave, which wait too; make room in any of their regions"
