"""Carries migrations of tables out: looks what is to be done, writes it down, has it done, writes down what came of it.

All of it under one lease. What was under way when the last holder stopped goes on from what is written: the states are
in PostgreSQL, and whatever files there are is seen again by the movers.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import structlog

from data_placement.links import Links
from data_placement.migrations.bandwidth import share_out, transfers_of
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
    retry_after_s,
)
from data_placement.migrations.life_cycle import MigrationHappening, MigrationState
from data_placement.migrations.migration import Migration
from data_placement.migrations.storage import Storage
from domain.identifiers import RegionId, TableId
from domain.table import Table
from domain.table_partitions import TablePartitions
from formats.data_section import DataSection
from services.clock import ServiceClock
from services.data_placement import data_use_look, migration_store
from services.data_placement.migration_store import MigrationChanged
from services.data_placement.movers.choice import mover_for
from services.data_placement.movers.mover import Course, Mover
from services.data_placement.movers.orders import MoverOrder, MoverOutcome, MoverTask, OrderedPart, Partition
from services.data_placement.moving_settings import MovingSettings
from services.data_placement.on_demand_look import OnDemandLook
from services.data_placement.partitions_look import PartitionsLook
from services.database.channels import CATALOG_CHANNEL, DATA_CHANNEL, SCAN_CHANNEL
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.errors import DatabaseUnavailable
from services.database.lease_store import Lease, LeaseLost, assert_held
from services.database.partition_copy_store import load_partition_files
from services.database.revision_store import load_revisions
from services.global_scheduler.surroundings import SurroundingsKeeper

_LOOK_REAL_S = 1.0
_RETRY_REAL_S = 1.0
"""After a look that failed for the database's sake; a deletion or cleaning that failed waits longer."""
_CLEAN_AGAIN_REAL_S = 30.0
_OLD_COPY_STAYS_REAL_S = 2.0
"""After the switch: by then what was being dispatched to it is known to run there."""

MOST_SETTLING = 4
"""So many movers at a time remove what was only written to make copies."""

_TASK_OF = {
    MigrationState.COPYING: MoverTask.COPY,
    MigrationState.VERIFYING: MoverTask.VERIFY,
    MigrationState.WITHDRAWN: MoverTask.CLEAN,
    MigrationState.DELETING: MoverTask.DELETE,
}

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Look:
    """What the database says."""

    migrations: tuple[Migration, ...]
    tables: Mapping[TableId, Table]
    storage: Storage
    links: Links
    partitions: Mapping[TableId, TablePartitions]
    """Of tables of which a migration copies a part."""
    unsettled: tuple[Migration, ...]
    """Those that have switched, and what was only written for that is still there."""
    begun_today_bytes: int
    read: frozenset[tuple[TableId, RegionId]]


@dataclass(slots=True)
class _UnderWay:
    """A task that a mover is at."""

    state: MigrationState
    course: Course
    work: asyncio.Task[None]


class MigrationLoop:
    """`run` under a lease until cancelled."""

    def __init__(
        self,
        database: Database,
        clock: ServiceClock,
        surroundings: SurroundingsKeeper,
        settings: MovingSettings,
        mover: Mover,
    ) -> None:
        self._database = database
        self._clock = clock
        self._surroundings = surroundings
        self._settings = settings
        self._mover = mover
        storing = [RegionId(region) for region, _ in settings.storage]
        self._on_demand = OnDemandLook(surroundings, storing or None)
        self._under_way: dict[int, _UnderWay] = {}
        self._ended: set[int] = set()
        """Migrations of which a task has ended since the look that is being taken began: it may not have seen that."""
        self._stored: tuple[int, Storage] | None = None
        """By the catalog's revision."""
        self._partitions = PartitionsLook()
        self._settling: dict[int, int] = {}
        """How often it was tried to remove what is left of a copy, by migration."""
        self._look_again: Callable[[], None] = _nothing
        self._certain_until_real_s: Callable[[], float] = _forever

    async def run(self, lease: Lease, certain_until_real_s: Callable[[], float]) -> None:
        """What it writes counts only while the lease is ours; when it ends, no mover goes on.

        `certain_until_real_s` says until when no other process can have the lease: movers change nothing after that, also
        where this process, or they, have been stopped for a while and do not know it.
        """
        self._certain_until_real_s = certain_until_real_s
        try:
            async with self._database.listen(DATA_CHANNEL, CATALOG_CHANNEL, SCAN_CHANNEL) as subscription:
                self._look_again = subscription.wake
                taken_over = False
                while True:
                    try:
                        if not taken_over:
                            await self._database.run(partial(_take_over, lease=lease))
                            taken_over = True
                        await self.look(lease)
                    except (DatabaseUnavailable, MigrationChanged, LeaseLost) as error:
                        # A lease that is over, but that no other process has taken, is soon renewed; else the tier ends us.
                        _log.warning("migrations cannot be looked at", error=str(error))
                        await asyncio.sleep(_RETRY_REAL_S)
                        continue
                    await subscription.wait(_LOOK_REAL_S)
        finally:
            await self._stop()

    async def look(self, lease: Lease) -> None:
        """Decides what is next, writes it down, and has it done."""
        if not self._surroundings.known:
            return
        self._ended.clear()
        look = await self._database.run(self._load, snapshot=True)
        wanted: Callable[[Migration], bool] = _always
        if self._settings.on_demand:
            found = await self._on_demand.look(
                self._database, look.migrations, look.storage, look.links, self._partitions, self._clock.now()
            )
            wanted = found.wanted
            if found.copies:
                await self._database.run(partial(_enqueue, lease=lease, wanted=found.copies, now=self._clock.now()))
                look = await self._database.run(self._load, snapshot=True)
        # In a thread: routes are searched in graphs, and the lease is kept meanwhile.
        steps = await asyncio.to_thread(decide, look.migrations, self._around(look, wanted))
        changed = await self._write(steps, lease)
        present = {each.number: each for each in look.migrations} | {each.number: each for each in changed}
        self._have_done(list(present.values()), look, lease)
        await self._tell_progress(lease)
        self._share_out(list(present.values()), look.links)

    # ------------------------------------------------------------ looking

    async def _load(self, connection: AnyConnection) -> _Look:
        now = self._clock.now()
        migrations = await migration_store.load_active(connection)
        tables = await migration_store.load_tables(connection, [each.table for each in migrations])
        revision = (await load_revisions(connection)).catalog
        if self._stored is None or self._stored[0] != revision:
            self._stored = (revision, await migration_store.load_storage(connection))
        capacity = await migration_store.load_capacity(connection)
        partial = [each.table for each in migrations if _copies_a_part(each, tables.get(each.table))]
        switched = [each.table for each in migrations if each.state is MigrationState.SWITCHED]
        return _Look(
            tuple(migrations),
            tables,
            Storage(capacity, self._stored[1].stored_bytes),
            await migration_store.load_links(connection),
            await self._partitions.of(connection, partial, revision),
            tuple(await migration_store.load_unsettled(connection)),
            await migration_store.bytes_begun_today(connection, now),
            await data_use_look.read_by_live_attempts(connection, switched),
        )

    def _around(self, look: _Look, wanted: Callable[[Migration], bool]) -> Surroundings:
        quota = self._settings.quota_bytes
        return Surroundings(
            self._clock.now(),
            look.tables.get,
            sorted(self._surroundings.present().regions),
            look.links,
            look.storage,
            quota_left_bytes=quota - look.begun_today_bytes,
            quota_bytes=quota,
            read_in=lambda table, region: (table, region) in look.read,
            wanted=wanted,
            partitions=look.partitions.get,
        )

    # ------------------------------------------------------------ writing

    async def _write(self, steps: Sequence[Step], lease: Lease) -> list[Migration]:
        """Everything that was decided, in one transaction; the migrations as they are after that."""
        changes = [step for step in steps if not isinstance(step, Wait)]
        reasons = {step.migration.number: step.reason for step in steps if isinstance(step, Wait)}

        async def write(connection: AnyConnection) -> list[Migration]:
            await assert_held(connection, lease)
            await migration_store.store_reasons(connection, reasons)
            return [await self._write_step(connection, step, lease.token) for step in changes]

        if not changes and not reasons:
            return []
        for step in changes:
            if isinstance(step, GiveUp | FailTry):
                await self._stop_one(step.migration.number)
        return await self._database.run(write)

    async def _write_step(self, connection: AnyConnection, step: Step, token: int) -> Migration:
        now, migration = self._clock.now(), step.migration
        advance = partial(migration_store.advance, connection, migration, token=token, now=now)
        if isinstance(step, BeginCopy):
            changes = {
                "size_bytes": step.size_bytes,
                "copy_bytes": step.copy_bytes,
                "parts": step.parts,
                "partitions": step.partitions,
                "reason": "",
            }
            return await advance(MigrationHappening.COPY_BEGAN, changes=changes)
        if isinstance(step, FailTry):
            return await advance(MigrationHappening.TRY_FAILED, changes={"reason": step.reason, "retry_s": now})
        if isinstance(step, GiveUp):
            return await advance(MigrationHappening.GIVEN_UP, changes={"reason": step.reason})
        if isinstance(step, BeginDeletion):
            return await migration_store.begin_deletion(connection, migration, token, now)
        if isinstance(step, Keep):
            return await advance(MigrationHappening.KEPT, changes={"reason": step.reason})
        return migration

    # ------------------------------------------------------------ having it done

    def _have_done(self, migrations: Sequence[Migration], look: _Look, lease: Lease) -> None:
        """Each migration that is in a state with a task has a mover at it."""
        tasks = [(migration, _TASK_OF[migration.state]) for migration in migrations if migration.state in _TASK_OF]
        tasks += [(migration, MoverTask.SETTLE) for migration in self._to_settle(look)]
        for migration, task in tasks:
            if migration.number in self._under_way or migration.number in self._ended:
                continue
            course = Course(len(migration.parts), self._certain_until_real_s)
            work = asyncio.create_task(self._do(migration, task, course, look, lease))
            self._under_way[migration.number] = _UnderWay(migration.state, course, work)

    def _to_settle(self, look: _Look) -> list[Migration]:
        """A few at a time, those first that have waited longest: storage that cannot be reached holds up nobody else."""
        found = [each for each in look.unsettled if each.state not in _TASK_OF and each.number not in self._under_way]
        self._settling = {each.number: self._settling.get(each.number, 0) for each in look.unsettled}
        free = MOST_SETTLING - sum(1 for number in self._settling if number in self._under_way)
        chosen = sorted(found, key=lambda each: (self._settling[each.number], each.number))[: max(0, free)]
        for each in chosen:
            self._settling[each.number] += 1
        return chosen

    async def _do(self, migration: Migration, task: MoverTask, course: Course, look: _Look, lease: Lease) -> None:
        try:
            if task in (MoverTask.CLEAN, MoverTask.DELETE):
                task, kept = await self._as_the_catalog_says(migration, task)
                if kept:
                    await self._keep(migration, lease)
                    return
            order = await self._order(migration, task, look, lease.token)
            outcome = await self._mover.carry_out(order, course)
            if outcome.remark:
                _log.warning("a migration leaves something behind", migration=migration.number, remark=outcome.remark)
            if not outcome.done and task not in (MoverTask.COPY, MoverTask.VERIFY):
                _log.warning("a mover failed", migration=migration.number, task=task.value, reason=outcome.reason)
                where = migration.leaves if task is MoverTask.DELETE else migration.target
                if where in self._surroundings.present().regions:
                    await self._say_why_it_stays(migration, f"it stays in {where} for now: {outcome.reason}", lease)
                    await asyncio.sleep(_CLEAN_AGAIN_REAL_S)
                    return
                # The region takes no room of anything any more, and its storage may never answer again.
                outcome = MoverOutcome(remark=f"its files stay in {where}, which is not in the fleet: {outcome.reason}")
            if task is MoverTask.SETTLE and migration.state is not MigrationState.WITHDRAWN:
                await self._database.run(partial(_settled, lease=lease, number=migration.number))
            else:
                await self._record(migration, outcome, lease)
        except (DatabaseUnavailable, MigrationChanged, LeaseLost) as error:
            _log.warning("what became of a migration is not recorded yet", migration=migration.number, error=str(error))
            await asyncio.sleep(_RETRY_REAL_S)
        except Exception:  # noqa: BLE001 - whatever it is, the other migrations go on
            # Whatever it is, it concerns one migration: the others go on, and this one does not begin anew at once.
            _log.exception("a migration cannot be carried out now", migration=migration.number, task=task.value)
            await asyncio.sleep(_CLEAN_AGAIN_REAL_S)
        finally:
            self._under_way.pop(migration.number, None)
            self._ended.add(migration.number)
            self._look_again()

    async def _say_why_it_stays(self, migration: Migration, reason: str, lease: Lease) -> None:
        async def write(connection: AnyConnection) -> None:
            await assert_held(connection, lease)
            await migration_store.store_reasons(connection, {migration.number: reason})

        await self._database.run(write)

    async def _as_the_catalog_says(self, migration: Migration, task: MoverTask) -> tuple[MoverTask, bool]:
        """What may be removed now: the catalog may have been told since that the copy counts. True: nothing may."""
        tables = await self._database.run(partial(migration_store.load_tables, names=[migration.table]), snapshot=True)
        table = tables.get(migration.table)
        held = () if table is None else table.regions
        if task is MoverTask.CLEAN and migration.target in held:
            return MoverTask.SETTLE, False
        return task, task is MoverTask.DELETE and migration.leaves in held

    async def _keep(self, migration: Migration, lease: Lease) -> None:
        reason = f"the catalog names the copy in {migration.leaves} again"

        async def record(connection: AnyConnection) -> None:
            await assert_held(connection, lease)
            await migration_store.advance(
                connection, migration, MigrationHappening.KEPT, lease.token, self._clock.now(), {"reason": reason}
            )

        await self._database.run(record)

    async def _order(self, migration: Migration, task: MoverTask, look: _Look, token: int) -> MoverOrder:
        partitions = await self._database.run(partial(load_partition_files, table=migration.table), snapshot=True)
        table = look.tables.get(migration.table)
        source = migration.leaves or (migration.target if table is None else table.home)
        return MoverOrder(
            task,
            migration.number,
            token,
            migration.table,
            migration.target,
            source,
            self._settings.storage,
            tuple(OrderedPart(tuple(map(str, part.path)), part.bytes) for part in migration.parts),
            tuple(
                Partition(name, size, checksum)
                for name, size, checksum in partitions
                if not migration.partitions or name in migration.partitions
            ),
            migration.size_bytes,
        )

    async def _record(self, migration: Migration, outcome: MoverOutcome, lease: Lease) -> None:
        """Writes down how a task ended."""
        now, token = self._clock.now(), lease.token

        async def record(connection: AnyConnection) -> Migration:
            await assert_held(connection, lease)
            advance = partial(migration_store.advance, connection, migration, token=token, now=now)
            if not outcome.done:
                failures = migration.failures + 1
                retry_s = now + retry_after_s(failures)
                changes = {"failures": failures, "retry_s": retry_s, "reason": outcome.reason}
                return await advance(MigrationHappening.TRY_FAILED, changes=changes)
            if migration.state is MigrationState.COPYING:
                copied = migration.copy_bytes if migration.partitions else migration.size_bytes
                await migration_store.store_copied_bytes(connection, {migration.number: copied}, token)
                return await advance(MigrationHappening.COPIED)
            if migration.state is MigrationState.VERIFYING:
                return await migration_store.switch(connection, migration, token, now, now + self._old_copy_stays_s())
            if migration.state is MigrationState.WITHDRAWN:
                changes = {"reason": outcome.remark or migration.reason}
                return await advance(MigrationHappening.CLEANED, changes=changes)
            return await advance(MigrationHappening.DELETED, changes={"reason": outcome.remark})

        after = await self._database.run(record)
        _log.info("migration", migration=after.number, table=after.table, state=after.state.value, reason=after.reason)

    def _old_copy_stays_s(self) -> float:
        return _OLD_COPY_STAYS_REAL_S / self._clock.real_seconds(1.0)

    # ------------------------------------------------------------ pace and end

    def _share_out(self, migrations: Sequence[Migration], links: Links) -> None:
        """Every copy under way gets its part of the links, as they are now."""
        copying = [
            each for each in migrations if each.state is MigrationState.COPYING and each.number in self._under_way
        ]
        rates = share_out(transfers_of(copying), links, self._settings.background_share)
        for migration in copying:
            self._under_way[migration.number].course.grant(
                [rates.get((migration.number, place), 0.0) for place in range(len(migration.parts))]
            )

    async def _tell_progress(self, lease: Lease) -> None:
        copied = {
            number: under_way.course.copied_bytes
            for number, under_way in self._under_way.items()
            if under_way.state is MigrationState.COPYING and under_way.course.copied_bytes
        }
        if copied:
            await self._database.run(partial(migration_store.store_copied_bytes, copied=copied, token=lease.token))

    async def _stop_one(self, number: int) -> None:
        under_way = self._under_way.pop(number, None)
        if under_way is not None:
            under_way.work.cancel()
            await asyncio.gather(under_way.work, return_exceptions=True)

    async def _stop(self) -> None:
        for number in sorted(self._under_way):
            await self._stop_one(number)


async def _take_over(connection: AnyConnection, lease: Lease) -> None:
    await assert_held(connection, lease)
    await migration_store.take_over(connection, lease.token)


async def _enqueue(
    connection: AnyConnection, lease: Lease, wanted: Sequence[migration_store.WantedMigration], now: float
) -> None:
    await assert_held(connection, lease)
    await migration_store.enqueue(connection, wanted, now)


async def _settled(connection: AnyConnection, lease: Lease, number: int) -> None:
    await assert_held(connection, lease)
    await migration_store.mark_settled(connection, number)


def _copies_a_part(migration: Migration, table: Table | None) -> bool:
    """Whether it brings some partitions alone, or the rest of what the target has."""
    if migration.newest_partitions is not None:
        return True
    if table is None or migration.target in table.regions_up_to_date:
        return False
    return migration.target in table.replicas or migration.target in dict(table.newest_held)


def _always(_migration: Migration) -> bool:
    return True


def _nothing() -> None:
    return None


def _forever() -> float:
    return math.inf


def migration_loop_for(
    section: DataSection, database: Database, clock: ServiceClock, surroundings: SurroundingsKeeper
) -> MigrationLoop | None:
    """As scheduler.yaml has it; None where nothing says how tables move: then what is enqueued stays so."""
    mover = mover_for(section, clock)
    return None if mover is None else MigrationLoop(database, clock, surroundings, MovingSettings.of(section), mover)
