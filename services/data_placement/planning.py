"""Makes one plan, in a process of its own: reads the catalog, solves, and stores what was found for review.

It speaks to the service through the plan's row in the database alone, so it does not matter who started it, nor where.
`python -m services.data_placement.planning` reads a request from standard input, for the address of a database may hold a
password, and runs it; a Ray task calls `make_plan`.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.random import default_rng
from pydantic import TypeAdapter

from data_placement.placement_plan import PlacementPlan
from data_placement.plan_choices import PlanChoices, plan_by_choices
from data_placement.plan_document import community_document, figures_document, proposed_moves
from domain.identifiers import RegionId
from domain.warehouse import Warehouse
from formats.problems import FormatError
from formats.warehouse_folder import read_warehouse
from services.database import catalog_store, community_store, plan_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.errors import DatabaseUnavailable
from services.database.partition_copy_store import load_bytes_held_alone
from services.database.plan_store import PlanGivenUp, StoredMove
from services.database.warehouse_export import write_csv_files
from services.runtime.clock_record import load_clock
from services.simulation.memory import peak_memory_mib

_PROGRESS_INTERVAL_REAL_S = 0.5


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """Which plan to make."""

    database_url: str
    plan: int
    choices: PlanChoices
    history_days: int

    def as_json(self) -> bytes:
        """As `from_json` reads it."""
        return TypeAdapter(PlanRequest).dump_json(self)

    @staticmethod
    def from_json(text: bytes) -> PlanRequest:
        """Raises pydantic.ValidationError for what is no request."""
        return TypeAdapter(PlanRequest).validate_json(text)


def make_plan(request: PlanRequest) -> None:
    """Makes the plan; what goes wrong is stored as its problem."""
    try:
        asyncio.run(_make_plan(request))
    except PlanGivenUp:
        return
    except FormatError as error:
        # It names the setting and the remedy itself.
        asyncio.run(_store_problem(request, str(error)))
    except Exception as error:  # noqa: BLE001 - whatever it is, whoever waits for the plan must learn it
        asyncio.run(_store_problem(request, f"{type(error).__name__}: {error}"))


async def _make_plan(request: PlanRequest) -> None:
    async with Database(request.database_url, connections=2) as database:
        clock = await database.run(load_clock)
        begun_real_s = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="topmast-plan-") as folder:
            await _tell(database, request.plan, "reading the catalog", 0.0)
            write = partial(_write, folder=Path(folder), now_s=clock.now(), history_days=request.history_days)
            revision, fingerprints, held_alone = await database.run(write, snapshot=True)
            await _tell(database, request.plan, "reading the catalog", 0.5)
            warehouse = with_room_taken(await asyncio.to_thread(read_warehouse, Path(folder)), held_alone)
        watcher = _Watcher(request, database)
        rng = default_rng(request.choices.seed)
        found = await asyncio.to_thread(plan_by_choices, warehouse, request.choices, rng, watcher)
        if watcher.given_up:
            raise PlanGivenUp
        await _tell(database, request.plan, "storing the plan", 0.0)
        figures = figures_document(
            warehouse, found, request.choices, time.monotonic() - begun_real_s, peak_memory_mib()
        )
        hints = region_hints(warehouse, found, fingerprints)
        await database.run(partial(_store_communities, plan=request.plan, warehouse=warehouse, found=found))
        finish = partial(
            plan_store.finish_plan,
            plan=request.plan,
            figures=figures,
            moves=StoredMoves(warehouse, found),
            hints=hints,
            revision=revision,
            now_s=clock.now(),
        )
        await database.run(finish)


class StoredMoves:
    """The moves of a plan, each made when it is asked for, again each time: there may be millions of them."""

    def __init__(self, warehouse: Warehouse, found: PlacementPlan) -> None:
        self._warehouse = warehouse
        self._found = found

    def __iter__(self) -> Iterator[StoredMove]:
        for place, move in enumerate(proposed_moves(self._warehouse, self._found)):
            yield StoredMove(
                position=place,
                table=move.table,
                source=move.source,
                target=move.target,
                kind=move.kind,
                size_bytes=move.size_bytes,
                priority=move.priority,
                reason=move.reason,
                newest_share=move.newest_share,
            )


async def _write(
    connection: AnyConnection, folder: Path, now_s: float, history_days: int
) -> tuple[int, dict[str, str], dict[str, int]]:
    """Writes the files; returns the catalog's revision, the fingerprints of readers by name, and by region the bytes of
    partitions that it holds alone.
    """
    await write_csv_files(connection, folder, now_s, history_days)
    cursor = await connection.execute("SELECT name, fingerprint FROM data_readers WHERE fingerprint IS NOT NULL")
    fingerprints = {str(name): str(fingerprint) for name, fingerprint in await cursor.fetchall()}
    return await catalog_store.catalog_revision(connection), fingerprints, await load_bytes_held_alone(connection)


async def _store_communities(connection: AnyConnection, plan: int, warehouse: Warehouse, found: PlacementPlan) -> None:
    label = found.communities.of_table
    members = np.flatnonzero(label >= 0).tolist()
    names = warehouse.tables.names
    await community_store.store_communities(
        connection,
        plan,
        map(community_document, found.communities.described),
        ((str(names[table]), int(label[table])) for table in members),
    )


def with_room_taken(warehouse: Warehouse, taken_bytes: Mapping[str, int]) -> Warehouse:
    """The warehouse whose regions have so much less room: a plan knows whole copies alone, and what parts of tables take
    stays taken.
    """
    regions = warehouse.regions
    taken = np.array([taken_bytes.get(name, 0) for name in regions.names], regions.storage_bytes.dtype)
    return replace(warehouse, regions=replace(regions, storage_bytes=np.maximum(regions.storage_bytes - taken, 0)))


def region_hints(warehouse: Warehouse, found: PlacementPlan, fingerprints: Mapping[str, str]) -> dict[str, RegionId]:
    """By fingerprint, the region that the plan gave to most of its GPU hours; of equal ones the first."""
    jobs, names = warehouse.jobs, warehouse.regions.names
    best: dict[str, tuple[float, RegionId]] = {}
    for job, name in enumerate(jobs.names):
        fingerprint, region = fingerprints.get(name), int(found.replicas.job_region[job])
        if fingerprint is None or region < 0:
            continue
        hours = float(jobs.gpu_hours[job])
        if fingerprint not in best or hours > best[fingerprint][0]:
            best[fingerprint] = (hours, RegionId(names[region]))
    return {fingerprint: region for fingerprint, (_, region) in sorted(best.items())}


async def _tell(database: Database, plan: int, stage: str, done: float) -> None:
    wanted = await database.run(partial(plan_store.record_progress, plan=plan, stage=stage, done=done))
    if not wanted:
        raise PlanGivenUp


async def _store_problem(request: PlanRequest, problem: str) -> None:
    async with Database(request.database_url, connections=1) as database:
        clock = await database.run(load_clock)
        await database.run(partial(plan_store.abandon_plan, problem=problem, now_s=clock.now(), plan=request.plan))


class _Watcher:
    """Is told by the solver how far it is, in its thread; says so in the database, and when to stop."""

    def __init__(self, request: PlanRequest, database: Database) -> None:
        self._request = request
        self._database = database
        self._loop = asyncio.get_running_loop()
        self._begun_real_s = time.monotonic()
        self._told_real_s = 0.0
        self.given_up = False

    def __call__(self, what: str, done: float) -> bool:
        now_real_s = time.monotonic()
        if now_real_s - self._told_real_s >= _PROGRESS_INTERVAL_REAL_S:
            self._told_real_s = now_real_s
            self._tell(what, done)
        limit_s = self._request.choices.time_limit_s
        return not self.given_up and (limit_s is None or now_real_s - self._begun_real_s < limit_s)

    def _tell(self, what: str, done: float) -> None:
        told = self._database.run(
            partial(plan_store.record_progress, plan=self._request.plan, stage=what, done=done),
            give_up_after_s=_PROGRESS_INTERVAL_REAL_S,
        )
        try:
            self.given_up = not asyncio.run_coroutine_threadsafe(told, self._loop).result()
        except DatabaseUnavailable:
            # Progress can be told later; the plan goes on.
            return


def main() -> int:
    """Makes the plan of the request on standard input."""
    make_plan(PlanRequest.from_json(sys.stdin.buffer.read()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
