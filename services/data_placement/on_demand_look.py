"""Looks which workloads wait for data, and chooses what is copied where for them (data_placement.on_demand)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import structlog

from data_placement.catalog import Catalog
from data_placement.expected_waits import MOST_QUEUED, expected_waits_s, supplied_gpus
from data_placement.links import Links
from data_placement.migrations.migration import Migration
from data_placement.migrations.storage import Storage
from data_placement.on_demand import (
    AwaitingWorkload,
    Choice,
    Chosen,
    DataSurroundings,
    NotChosen,
    PossibleRegion,
    choose_copies,
    on_the_way,
    wanted_by,
)
from domain.identifiers import RegionId, TableId, WorkloadId
from domain.life_cycle import State
from domain.table_partitions import TablePartitions
from domain.workload import WorkloadSpecification
from regional_scheduler.hosting import HostingRegions
from services.data_placement import migration_store
from services.data_placement.data_use_look import QueuedWorkloads, gpus_held
from services.data_placement.migration_store import WantedMigration
from services.data_placement.partitions_look import PartitionsLook
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.global_scheduler.surroundings import Surroundings, SurroundingsKeeper

MOST_AWAITING = 500
"""So many workloads are looked at at a time; the next look is at those behind them."""
NOT_AGAIN_S = 3_600.0
"""Where all tries of a copy have failed none is made for so long: meanwhile the workload may find its tables elsewhere."""
MOST_SAID = 20_000
"""Of so many workloads it is remembered what was said of them."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class OnDemand:
    """What workloads wait for, and which copies nobody has asked for yet."""

    wanted_copies: frozenset[tuple[TableId, RegionId]] = frozenset()
    copies: tuple[WantedMigration, ...] = ()
    complete: bool = True
    """False: more workloads wait than were looked at, so that nothing can be said to be unwanted."""

    def wanted(self, migration: Migration) -> bool:
        """Whether anybody waits for what it brings."""
        return not self.complete or (migration.table, migration.target) in self.wanted_copies


@dataclass(frozen=True, slots=True)
class _Queue:
    awaiting: tuple[tuple[WorkloadId, int, WorkloadSpecification], ...]
    queued: tuple[tuple[WorkloadId, int, WorkloadSpecification], ...]
    held: dict[RegionId, int]
    given_up: Mapping[tuple[TableId, RegionId], str] = field(default_factory=dict)
    """Why copies have just been given up there."""


class OnDemandLook:
    """Chooses for the workloads that are AWAITING_DATA."""

    def __init__(self, surroundings: SurroundingsKeeper, storing: Collection[RegionId] | None = None) -> None:
        """`storing`: the regions whose storage is known; None: tables are no files here."""
        self._surroundings = surroundings
        self._storing = storing
        self._workloads = QueuedWorkloads()
        self._said: dict[WorkloadId, str] = {}
        self._passed = 0
        """So many of the queue were looked at before; those that get nothing hold up nobody behind them."""

    async def look(
        self,
        database: Database,
        migrations: Sequence[Migration],
        storage: Storage,
        links: Links,
        partitions: PartitionsLook,
        now: float,
    ) -> OnDemand:
        """What is wanted now; raises DatabaseUnavailable."""
        load = partial(self._load, now=now)
        queue = await database.run(load, snapshot=True)
        if not queue.awaiting and self._passed:
            self._passed = 0
            queue = await database.run(load, snapshot=True)
        if not queue.awaiting:
            self._said.clear()
            return OnDemand()
        is_end = len(queue.awaiting) < MOST_AWAITING
        complete = is_end and not self._passed
        self._passed = 0 if is_end else self._passed + MOST_AWAITING
        present = self._surroundings.present()
        partial_tables = _read_in_part(queue, present.catalog)
        known: Mapping[TableId, TablePartitions] = {}
        if partial_tables:
            known = await database.run(partial(partitions.now, tables=partial_tables), snapshot=True)
        around = DataSurroundings(
            now,
            present.catalog.table,
            present.catalog.regions_holding,
            sorted(present.regions),
            links,
            storage.free_bytes(migrations),
            on_the_way(migrations),
            known.get,
            partial(self._why_not, queue.given_up),
        )
        # In a thread: routes are searched in graphs. Nothing that it reads changes in place but single tables.
        choices = await asyncio.to_thread(_choose, queue, present, around)
        self._say(choices, complete)
        wanted = wanted_by(choices)
        copies = tuple(
            WantedMigration(
                copy.table,
                copy.target,
                None,
                copy.priority,
                copy.deadline_s,
                on_demand=True,
                newest_partitions=copy.newest_partitions,
            )
            for choice in choices
            if isinstance(choice, Chosen)
            for copy in choice.copies
        )
        return OnDemand(wanted, copies, complete)

    def _why_not(self, given_up: Mapping[tuple[TableId, RegionId], str], table: TableId, region: RegionId) -> str:
        """Why no copy can be made there; empty: it can."""
        if self._storing is not None and region not in self._storing:
            return f"nothing says where {region} stores tables: data.regions.{region}.storage"
        reason = given_up.get((table, region))
        return "" if reason is None else f"a copy of {table} to {region} has just failed: {reason}"

    async def _load(self, connection: AnyConnection, now: float) -> _Queue:
        awaiting = await self._workloads.head(connection, (State.AWAITING_DATA,), MOST_AWAITING, self._passed)
        if not awaiting:
            return _Queue((), (), {})
        queued = await self._workloads.head(connection, (State.PENDING, State.WAITING), MOST_QUEUED)
        given_up = await migration_store.load_given_up_on_demand(connection, now - NOT_AGAIN_S)
        return _Queue(tuple(awaiting), tuple(queued), await gpus_held(connection), given_up)

    def _say(self, choices: Sequence[Choice], complete: bool) -> None:
        """In the log, once for each workload."""
        said: dict[WorkloadId, str] = {} if complete or len(self._said) > MOST_SAID else dict(self._said)
        for choice in choices:
            if isinstance(choice, NotChosen):
                if self._said.get(choice.workload) != choice.reason:
                    _log.info("no copy on demand", workload=choice.workload, reason=choice.reason)
                said[choice.workload] = choice.reason
            else:
                said[choice.workload] = choice.region
                if choice.copies:
                    tables = [copy.table for copy in choice.copies]
                    _log.info("copies on demand", workload=choice.workload, region=choice.region, tables=tables)
        self._said = said


def _choose(queue: _Queue, present: Surroundings, around: DataSurroundings) -> list[Choice]:
    room_in = _where_queued_could_run(queue, present.hosting, present.catalog)
    waits = expected_waits_s(supplied_gpus(present.fleet), queue.held, room_in)
    waiting = [
        AwaitingWorkload(
            workload,
            priority,
            specification.tables,
            tuple(PossibleRegion(region, waits[region]) for region in present.hosting.able(specification)),
        )
        for workload, priority, specification in queue.awaiting
    ]
    return choose_copies(waiting, around)


def _read_in_part(queue: _Queue, catalog: Catalog) -> list[TableId]:
    """Of the tables that workloads wait for, those of which a copy may lack some: only what it lacks has to be copied."""
    found: set[TableId] = set()
    for _, _, specification in queue.awaiting:
        for each in specification.tables:
            table = catalog.table(each.table)
            if table is not None and table.is_copied_in_part(each.newest_partitions):
                found.add(each.table)
    return sorted(found)


def _where_queued_could_run(
    queue: _Queue, hosting: HostingRegions, catalog: Catalog
) -> list[tuple[Sequence[RegionId], int]]:
    """Of what waits for room: the regions that have hardware and tables for it, and its GPUs."""
    return [
        (
            [
                region
                for region in hosting.able(specification)
                if not catalog.missing_tables(region, specification.tables)
            ],
            specification.base_gpus,
        )
        for _, _, specification in queue.queued
    ]
