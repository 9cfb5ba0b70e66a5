"""Tables move while a simulation runs: the decisions of the service's migrations, and copies that take time alone.

Copies advance as fast as their parts of the links; when one is complete the catalog changes, and every workload that
reads the table may run in other regions from then on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice

from data_placement.expected_waits import MOST_QUEUED, expected_waits_s, supplied_gpus
from data_placement.migrations.bandwidth import SECONDS_PER_DAY, day_of, share_out, transfers_of
from data_placement.migrations.decision import (
    BeginCopy,
    BeginDeletion,
    FailTry,
    GiveUp,
    Keep,
    Step,
    Surroundings,
    Wait,
    decide,
)
from data_placement.migrations.life_cycle import MigrationHappening, MigrationState, next_migration_state
from data_placement.migrations.migration import (
    Migration,
    after_copy,
    newest_to_copy,
    switch_problem,
    switched_table,
    wider,
)
from data_placement.migrations.storage import Storage, copies_of, stored_bytes
from data_placement.on_demand import (
    AwaitingWorkload,
    Chosen,
    DataSurroundings,
    PossibleRegion,
    choose_copies,
    on_the_way,
    wanted_by,
)
from domain.identifiers import RegionId, TableId
from simulator.engine.event_queue import Happens
from simulator.engine.readers_of_tables import ReadersOfTables
from simulator.engine.workloads import SimulatedWorkload
from simulator.engine.world import World
from simulator.inputs.table_moves import TableMoveAt, TableMovesInput

LOOK_AGAIN_S = 300.0
"""So often it is looked whether what read an old copy has ended."""
_NEARLY = 1.0
"""A copy of which no more than a byte is missing is complete: time is a floating-point number."""


class TableMoves:
    """All migrations of a run."""

    def __init__(self, world: World, given: TableMovesInput, readers: ReadersOfTables, start_s: float) -> None:
        self._world = world
        self._given = given
        self._moves = sorted(given.moves, key=lambda move: move.t_s)
        self._readers = readers
        self._start_s = start_s
        self._regions = [member.region for member in world.regions.members]
        self._gpus = supplied_gpus(world.fleet)
        self._migrations: dict[int, Migration] = {}
        self._number = 0
        self._requested = 0
        """So many of the requested moves have been due."""
        self._left: dict[tuple[int, int], float] = {}
        """Bytes that each part of a copy under way still has to carry."""
        self._rates: dict[tuple[int, int], float] = {}
        self._then_s = start_s
        self._expected = 0
        """The token of the look that counts: earlier ones were put off."""
        self._looks_again = False
        self._begun: dict[int, int] = {}
        """Bytes of copies by the day on which they began."""
        self._wanted: frozenset[tuple[TableId, RegionId]] = frozenset()
        self._partitions = given.partitions_in(world.catalog)
        self._stored = stored_bytes(world.catalog, self._partitions)
        self.moved = 0
        """How many copies were completed."""
        self.moved_bytes = 0

    @property
    def goes_on(self) -> bool:
        """Whether any copy is still to come."""
        coming = any(migration.before_switch for migration in self._migrations.values())
        return (coming and self._looks_again) or self._requested < len(self._moves)

    def begin(self) -> None:
        """Every requested move is looked at when it is due."""
        for move in self._moves:
            self._world.events.add(self._start_s + move.t_s, Happens.TABLES)
        self._readers.on_wait(self._somebody_waits)

    def look(self, now: float, token: int) -> None:
        """Takes what has arrived, decides what is next, and shares the links out anew."""
        if token and token != self._expected:
            return
        self._enqueue_due(now)
        self._advance(now)
        if self._given.on_demand:
            self._copy_on_demand(now)
        waits = False
        while True:
            steps = decide(list(self._migrations.values()), self._around(now))
            for step in steps:
                self._carry_out(step, now)
            waits = any(isinstance(step, Wait) for step in steps)
            if not any(isinstance(step, BeginCopy | BeginDeletion | GiveUp | FailTry | Keep) for step in steps):
                break
            self._advance(now)
        self._forget_ended()
        self._expect(now, waits=waits)

    def _somebody_waits(self) -> None:
        """A workload has begun to wait for data."""
        if self._given.on_demand:
            self._world.events.add(self._world.clock.now(), Happens.TABLES)

    # ------------------------------------------------------------ what is asked for

    def _enqueue_due(self, now: float) -> None:
        """Requested moves, by time, as far as they are due."""
        while self._requested < len(self._moves) and self._start_s + self._moves[self._requested].t_s <= now:
            move = self._moves[self._requested]
            self._requested += 1
            table = self._world.catalog.table(move.table)
            if table is None or move.target == table.home:
                continue
            deadline_s = None if move.deadline_s is None else self._start_s + move.deadline_s
            leaves = table.home if move.moves_home else None
            newest = newest_to_copy(table, move.target, self._newest_partitions(move))
            self._enqueue(
                Migration(
                    0,
                    move.table,
                    table.size_bytes,
                    move.target,
                    leaves,
                    move.priority,
                    deadline_s,
                    newest_partitions=newest,
                    keeps_old_copy=move.moves_home and move.keeps_old_copy,
                )
            )

    def _newest_partitions(self, move: TableMoveAt) -> int | None:
        parts = self._partitions.get(move.table)
        if move.newest_share is None or parts is None:
            return move.newest_partitions
        return parts.newest_of_share(move.newest_share)

    def _enqueue(self, migration: Migration) -> None:
        """Unless the same is on the way already; where that has not begun, it brings what this one would."""
        for number, other in self._migrations.items():
            if (other.table, other.target) == (migration.table, migration.target) and not other.ended:
                newest = other.newest_partitions
                if other.state is MigrationState.PLANNED:
                    newest = wider(newest, migration.newest_partitions)
                # What is requested too is made also when no workload waits for it any more.
                on_demand = other.on_demand and migration.on_demand
                self._migrations[number] = replace(other, newest_partitions=newest, on_demand=on_demand)
                return
        self._number += 1
        self._migrations[self._number] = replace(migration, number=self._number)

    def _copy_on_demand(self, now: float) -> None:
        """For the workloads that no region can run for want of data."""
        world = self._world
        awaiting = self._readers.awaiting()
        waits = self._expected_waits_s() if awaiting else {}
        waiting = [self._awaiting(work, waits) for work in awaiting]
        free = Storage(self._given.capacity_bytes, self._stored).free_bytes(self._migrations.values())
        around = DataSurroundings(
            now,
            world.catalog.table,
            world.catalog.regions_holding,
            self._regions,
            self._given.links,
            free,
            on_the_way(self._migrations.values()),
            self._partitions.get,
        )
        choices = choose_copies(waiting, around)
        self._wanted = wanted_by(choices)
        for choice in choices:
            for copy in choice.copies if isinstance(choice, Chosen) else ():
                self._enqueue(
                    Migration(
                        0,
                        copy.table,
                        copy.size_bytes,
                        copy.target,
                        None,
                        copy.priority,
                        copy.deadline_s,
                        on_demand=True,
                        newest_partitions=copy.newest_partitions,
                    )
                )

    def _expected_waits_s(self) -> dict[RegionId, float]:
        """By region, as what runs and what waits for room is now."""
        held = {
            member.region: self._gpus[member.region] - member.inventory.idle_gpus
            for member in self._world.regions.members
        }
        queued = [
            ([self._regions[place] for place in work.eligible], work.workload.specification.base_gpus)
            for work in islice(self._world.queue.in_order(), MOST_QUEUED)
        ]
        return expected_waits_s(self._gpus, held, queued)

    def _awaiting(self, work: SimulatedWorkload, waits: Mapping[RegionId, float]) -> AwaitingWorkload:
        world, specification = self._world, work.workload.specification
        possible = []
        for member in world.regions.members:
            answer = member.bidder.abandons(specification)
            if answer is None or answer.missing_tables:
                possible.append(PossibleRegion(member.region, waits[member.region]))
        priority = work.quota_priority
        return AwaitingWorkload(work.workload.workload, priority, specification.tables, tuple(possible))

    # ------------------------------------------------------------ what is decided

    def _around(self, now: float) -> Surroundings:
        quota = self._given.bytes_per_day
        return Surroundings(
            now,
            self._world.catalog.table,
            self._regions,
            self._given.links,
            Storage(self._given.capacity_bytes, self._stored),
            quota_left_bytes=quota - self._begun.get(day_of(now), 0),
            quota_bytes=quota,
            read_in=self._readers.read_in,
            wanted=lambda migration: (migration.table, migration.target) in self._wanted,
            partitions=self._partitions.get,
        )

    def _carry_out(self, step: Step, now: float) -> None:
        migration = step.migration
        if isinstance(step, BeginCopy):
            begun = self._happens(
                migration,
                MigrationHappening.COPY_BEGAN,
                replace(
                    migration,
                    size_bytes=step.size_bytes,
                    copy_bytes=step.copy_bytes,
                    parts=step.parts,
                    partitions=step.partitions,
                    reason="",
                ),
            )
            for place, part in enumerate(begun.parts):
                self._left[begun.number, place] = float(part.bytes)
            self._begun[day_of(now)] = self._begun.get(day_of(now), 0) + step.copy_bytes
        elif isinstance(step, GiveUp):
            given_up = self._happens(migration, MigrationHappening.GIVEN_UP, replace(migration, reason=step.reason))
            self._happens(given_up, MigrationHappening.CLEANED)
        elif isinstance(step, FailTry):
            self._happens(migration, MigrationHappening.TRY_FAILED, replace(migration, reason=step.reason))
        elif isinstance(step, BeginDeletion):
            self._happens(self._happens(migration, MigrationHappening.DELETION_BEGAN), MigrationHappening.DELETED)
        elif isinstance(step, Keep):
            self._happens(migration, MigrationHappening.KEPT)
        if isinstance(step, GiveUp | FailTry):
            self._drop_parts(migration.number)

    def _happens(
        self, migration: Migration, happening: MigrationHappening, changed: Migration | None = None
    ) -> Migration:
        state = next_migration_state(migration.number, migration.state, happening)
        after = replace(changed or migration, state=state)
        self._migrations[migration.number] = after
        return after

    # ------------------------------------------------------------ what time does

    def _advance(self, now: float) -> None:
        """So much has been copied since the last look; what is complete counts from now on."""
        for key, rate in self._rates.items():
            if key in self._left:
                self._left[key] = max(0.0, self._left[key] - rate * (now - self._then_s))
        self._then_s = now
        for migration in sorted(self._migrations.values(), key=lambda each: each.number):
            if migration.state is MigrationState.COPYING and all(
                self._left[migration.number, place] < _NEARLY for place in range(len(migration.parts))
            ):
                self._drop_parts(migration.number)
                self._switch(self._happens(migration, MigrationHappening.COPIED), now)

    def _switch(self, migration: Migration, now: float) -> None:
        world = self._world
        table = world.catalog.table(migration.table)
        problem = switch_problem(table, migration)
        if table is None or problem:
            self._happens(migration, MigrationHappening.TRY_FAILED, replace(migration, reason=problem))
            return
        known = self._partitions.get(migration.table)
        after = switched_table(table, migration, known)
        for region, held in copies_of(table, known).items():
            self._stored[region] -= held
        if known is not None:
            self._partitions[migration.table] = known = after_copy(known, migration)
        for region, held in copies_of(after, known).items():
            self._stored[region] = self._stored.get(region, 0) + held
        world.catalog.record(after)
        self._happens(migration, MigrationHappening.VERIFIED, replace(migration, reason=""))
        self.moved += 1
        self.moved_bytes += migration.copy_bytes
        if world.log is not None:
            world.log.table_moved(after, table.home, migration, now)
        self._readers.table_moved(migration.table, now)

    def _drop_parts(self, number: int) -> None:
        for key in [key for key in self._left if key[0] == number]:
            del self._left[key]

    def _forget_ended(self) -> None:
        for number in [number for number, migration in self._migrations.items() if migration.ended]:
            del self._migrations[number]

    def _expect(self, now: float, *, waits: bool) -> None:
        """The next look: when a copy is complete; later, when something waits that time alone lets go on."""
        copying = [each for each in self._migrations.values() if each.state is MigrationState.COPYING]
        self._rates = share_out(transfers_of(copying), self._given.links, self._given.background_share)
        times = [
            now + self._left[key] / rate
            for key, rate in sorted(self._rates.items())
            if rate > 0 and self._left.get(key)
        ]
        if any(each.state is MigrationState.SWITCHED for each in self._migrations.values()):
            times.append(now + LOOK_AGAIN_S)
        elif waits and not math.isinf(self._given.bytes_per_day):
            times.append((day_of(now) + 1) * SECONDS_PER_DAY)
        self._expected += 1
        self._looks_again = bool(times)
        if times:
            self._world.events.add(max(now, min(times)), Happens.TABLES, token=self._expected)
