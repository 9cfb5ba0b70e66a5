"""The fleet: replaced as a whole, never under what runs on it; machine states survive a replacement."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

from psycopg.rows import TupleRow
from sqlalchemy import ColumnElement, delete, func, not_, select

from domain.fleet import Cluster, Fleet, Machine, MachineState, Rack, Region
from domain.identifiers import ClusterId, GpuModel, MachineId, RackId, RegionId
from formats.cell_hierarchies import cells_document, cells_from_document
from formats.inference_side import inference_document, inference_from_document
from formats.problems import listed
from services.database import channels
from services.database.connection import AnyConnection, wake_after_commit
from services.database.core_statements import any_of, execute, upsert_rows
from services.database.drain_advice import names_to_drain
from services.database.large_results import ROWS_AT_ONCE, all_rows
from services.database.lease_store import fence_regions, hold_regions
from services.database.revision_store import Subject, lock_revision, raise_revision
from services.database.tables.attempts import ATTEMPTS
from services.database.tables.fleet import CLUSTERS, MACHINES, REGIONS

FLEET_CHANNEL = channels.FLEET_CHANNEL


class FleetRefused(Exception):
    """The fleet cannot be replaced by this one now; says why. `in_use` are the machines in the way, with the attempts there."""

    def __init__(self, sentence: str, in_use: Sequence[tuple[str, str]] = ()) -> None:
        self.in_use = tuple(in_use)
        super().__init__(sentence)


@dataclass(frozen=True, slots=True)
class RegionSummary:
    """One region at a glance."""

    region: RegionId
    clusters: int
    machines: int
    machines_up: int
    gpus: int
    gpus_in_use: int
    live_attempts: int
    machines_on_loan: int


class _MachineRow(NamedTuple):
    machine: str
    region: str
    cluster: str
    gpu_model: str
    gpus: int
    cpus: float
    memory_gib: float
    rack: str
    position: int
    is_inference: bool
    """Its cluster serves inference."""
    power_domain: str

    @property
    def substance(self) -> tuple[object, ...]:
        """What running work relies on. The rack and the place in it may change under it."""
        return *self[1:7], self.is_inference


@dataclass(frozen=True, slots=True)
class _Difference:
    """What another fleet comes to, compared with what is stored."""

    disappearing: Sequence[str]
    """Machines on which nothing may be held: they go, or become other ones under their name."""
    losing: Sequence[RegionId]
    """The regions that have these, sorted."""
    gone: Sequence[str]
    """Names that nothing has any more, sorted."""
    changed: Sequence[_MachineRow]
    """New machines, and those of which anything is different."""


def _difference(fleet: Fleet, stored: Sequence[TupleRow]) -> _Difference:
    wanted = {row.machine: row for row in _machine_rows(fleet)}
    present = {row.machine: row for row in (_MachineRow(*row) for row in stored)}
    disappearing = [
        row for name, row in present.items() if name not in wanted or wanted[name].substance != row.substance
    ]
    return _Difference(
        [row.machine for row in disappearing],
        sorted({RegionId(row.region) for row in disappearing}),
        sorted(present.keys() - wanted.keys()),
        [row for name, row in wanted.items() if present.get(name) != row],
    )


async def apply_fleet(connection: AnyConnection, fleet: Fleet) -> int:
    """Replaces the fleet and returns its revision; applying the same one again changes nothing.

    A machine of the same name keeps its state. A machine that changes region, cluster or hardware, or from training to
    inference or back, counts as one that disappears and another one that comes: that of inference begins by serving it. Regions take the change over as they work; only where a cluster moves from
    one region to another both schedulers start anew: its manager must learn whose orders count.

    Raises FleetRefused while an attempt is on a machine that would disappear, or a place is kept there for one. Names
    are taken to be unique.
    """
    revision = await lock_revision(connection, Subject.FLEET)
    stored = await _load_machine_rows(connection)
    # In a thread: leases are kept, and calls answered, while many thousands of machines are compared.
    difference = await asyncio.to_thread(_difference, fleet, stored)
    if difference.disappearing:
        await hold_regions(connection, difference.losing)
        await require_idle(connection, difference.disappearing, stored)
    await fence_regions(connection, await _regions_that_exchange_clusters(connection, fleet))
    outline_changed = await _store_outline(connection, fleet, difference.gone, difference.changed)
    if not (difference.changed or difference.gone or outline_changed):
        return revision
    wake_after_commit(connection, FLEET_CHANNEL)
    return await raise_revision(connection, Subject.FLEET)


async def load_fleet(
    connection: AnyConnection, region: RegionId | None = None
) -> tuple[Fleet, dict[MachineId, MachineState]]:
    """The fleet, in the order in which it was applied, and the state of every machine. Empty: none was applied yet.

    With a `region`, only that one of its regions, if it has it.
    """
    of_region = [] if region is None else [CLUSTERS.c.region == region]
    rows = await all_rows(
        connection,
        select(
            MACHINES.c.cluster,
            MACHINES.c.rack,
            MACHINES.c.machine,
            MACHINES.c.gpu_model,
            MACHINES.c.gpus,
            MACHINES.c.cpus,
            MACHINES.c.memory_gib,
            MACHINES.c.state,
            MACHINES.c.power_domain,
        )
        .select_from(MACHINES.join(CLUSTERS))
        .where(*of_region)
        .order_by(MACHINES.c.cluster, MACHINES.c.position),
    )
    outline = (
        select(REGIONS.c.region, CLUSTERS.c.cluster, CLUSTERS.c.mechanism, CLUSTERS.c.cells, CLUSTERS.c.inference)
        .select_from(REGIONS.outerjoin(CLUSTERS))
        .where(*([] if region is None else [REGIONS.c.region == region]))
        .order_by(REGIONS.c.position, REGIONS.c.region, CLUSTERS.c.position)
    )
    cursor = await execute(connection, outline)
    clusters = await cursor.fetchall()
    # In a thread: leases are kept, and calls answered, while many thousands of machines are made.
    return await asyncio.to_thread(_fleet_of_rows, clusters, rows)


def _cluster_of_row(row: Sequence[Any], racks: Mapping[ClusterId, tuple[Rack, ...]]) -> Cluster:
    _, name, mechanism, cells, inference = row
    cluster = ClusterId(name)
    side = inference_from_document(inference)
    return Cluster(cluster, racks.get(cluster, ()), mechanism, cells_from_document(cells), side)


async def states_of(connection: AnyConnection, machines: Sequence[MachineId]) -> dict[MachineId, MachineState]:
    """The states of those of these machines that there are."""
    query = select(MACHINES.c.machine, MACHINES.c.state).where(any_of(MACHINES.c.machine, machines))
    return {MachineId(row[0]): MachineState(row[1]) for row in await all_rows(connection, query)}


async def machines_named(connection: AnyConnection, machines: Sequence[MachineId]) -> list[Machine]:
    """Those of these machines that there are, by name."""
    columns = (MACHINES.c.machine, MACHINES.c.gpu_model, MACHINES.c.gpus, MACHINES.c.cpus, MACHINES.c.memory_gib)
    query = select(*columns).where(any_of(MACHINES.c.machine, machines)).order_by(MACHINES.c.machine)
    rows = await all_rows(connection, query)
    return [Machine(MachineId(row[0]), GpuModel(row[1]), row[2], row[3], row[4]) for row in rows]


async def machines_of_cluster(
    connection: AnyConnection, cluster: ClusterId
) -> tuple[RegionId | None, tuple[MachineId, ...]]:
    """The cluster's region (None: the fleet has no such cluster), and its machines in their order."""
    cursor = await execute(connection, select(CLUSTERS.c.region).where(CLUSTERS.c.cluster == cluster))
    row = await cursor.fetchone()
    rows = await all_rows(
        connection,
        select(MACHINES.c.machine)
        .where(MACHINES.c.cluster == cluster)
        .order_by(MACHINES.c.position, MACHINES.c.machine),
    )
    return None if row is None else RegionId(row[0]), tuple(MachineId(row[0]) for row in rows)


async def region_names(connection: AnyConnection) -> list[RegionId]:
    """All regions, sorted by name; empty: no fleet was applied yet."""
    return [RegionId(row[0]) for row in await all_rows(connection, select(REGIONS.c.region).order_by(REGIONS.c.region))]


async def load_outline(connection: AnyConnection) -> dict[RegionId, list[ClusterId]]:
    """The clusters of each region, in the order of the fleet; empty: no fleet was applied yet."""
    query = (
        select(REGIONS.c.region, CLUSTERS.c.cluster)
        .select_from(REGIONS.outerjoin(CLUSTERS))
        .order_by(REGIONS.c.position, REGIONS.c.region, CLUSTERS.c.position)
    )
    found: dict[RegionId, list[ClusterId]] = {}
    for region, cluster in await all_rows(connection, query):
        clusters = found.setdefault(RegionId(region), [])
        if cluster is not None:
            clusters.append(ClusterId(cluster))
    return found


async def clusters_of(connection: AnyConnection, region: RegionId) -> list[ClusterId]:
    """The clusters of the region, sorted by name; empty when there is no such region."""
    query = select(CLUSTERS.c.cluster).where(CLUSTERS.c.region == region).order_by(CLUSTERS.c.cluster)
    return [ClusterId(row[0]) for row in await all_rows(connection, query)]


async def summarise_regions(connection: AnyConnection) -> list[RegionSummary]:
    """All regions, in the order of the fleet."""
    live = (
        select(ATTEMPTS.c.region, func.sum(ATTEMPTS.c.gpus).label("gpus"), func.count().label("attempts"))
        .where(ATTEMPTS.c.ended_s.is_(None))
        .group_by(ATTEMPTS.c.region)
        .subquery("live")
    )
    cursor = await execute(
        connection,
        select(
            REGIONS.c.region,
            func.count(CLUSTERS.c.cluster.distinct()),
            func.count(MACHINES.c.machine),
            _machines_in([state for state in MachineState if state.takes_work]),
            func.coalesce(func.sum(MACHINES.c.gpus), 0),
            # A region has one row of live attempts, repeated for each of its machines; a sum of ints is a bigint.
            func.coalesce(func.max(live.c.gpus), 0),
            func.coalesce(func.max(live.c.attempts), 0),
            _machines_in([state for state in MachineState if state.is_lent]),
        )
        .select_from(REGIONS.outerjoin(CLUSTERS).outerjoin(MACHINES).outerjoin(live, live.c.region == REGIONS.c.region))
        .group_by(REGIONS.c.region, REGIONS.c.position)
        .order_by(REGIONS.c.position, REGIONS.c.region),
    )
    return [RegionSummary(RegionId(row[0]), *row[1:]) for row in await cursor.fetchall()]


def _machines_in(states: Sequence[MachineState]) -> ColumnElement[int]:
    """How many machines of a group are in one of these states."""
    return func.count(MACHINES.c.machine).filter(any_of(MACHINES.c.state, [state.value for state in states]))


# ---------------------------------------------------------------- what must not disappear


async def _regions_that_exchange_clusters(connection: AnyConnection, fleet: Fleet) -> list[RegionId]:
    """Those that a cluster leaves for another one, and those that it comes to, sorted."""
    wanted = {cluster.cluster: region.region for region in fleet.regions for cluster in region.clusters}
    cursor = await execute(connection, select(CLUSTERS.c.cluster, CLUSTERS.c.region))
    moves = [
        (RegionId(region), wanted[ClusterId(cluster)])
        for cluster, region in await cursor.fetchall()
        if wanted.get(ClusterId(cluster), region) != region
    ]
    return sorted({region for move in moves for region in move})


async def require_idle(
    connection: AnyConnection, machines: Sequence[str], present: Sequence[TupleRow] | None = None
) -> None:
    """Raises FleetRefused while anything is held, or kept, on one of these machines; it says what to drain.

    `present`: all machines that there are, in the order of _MachineRow; None: only these matter.
    """
    cursor = await connection.execute(
        # What is held, what is kept for attempts that migrate, and what was given up and is not free yet.
        """WITH used AS (
               SELECT p.machine, a.workload, a.attempt
                 FROM attempts a JOIN placements p USING (workload, attempt) WHERE a.ended_s IS NULL
               UNION
               SELECT place ->> 'machine', workload, attempt
                 FROM reserved_places, jsonb_array_elements(placements) AS place
               UNION
               SELECT task ->> 'machine', a.workload, a.attempt
                 FROM placement_revisions r JOIN attempts a USING (workload, attempt),
                      jsonb_array_elements(r.change -> 'released') AS task
                WHERE a.ended_s IS NULL AND r.change IS NOT NULL)
           SELECT used.machine, used.workload, used.attempt
             FROM used JOIN unnest(%s::text[]) AS u (machine) ON used.machine = u.machine
            ORDER BY used.machine, used.workload, used.attempt""",
        (list(machines),),
    )
    rows = await cursor.fetchall()
    if rows:
        named = listed([f"{machine} ({workload}#{attempt})" for machine, workload, attempt in rows])
        places = {row.machine: (row.region, row.cluster) for row in (_MachineRow(*row) for row in present or ())}
        to_drain = names_to_drain({row[0] for row in rows}, set(machines), places)
        raise FleetRefused(
            f"work is running on machines that would disappear or change: {named}; drain them first"
            f" (topmast drain {' '.join(to_drain)} --wait) and apply it again, or keep them in the fleet",
            [(machine, f"{workload}#{attempt}") for machine, workload, attempt in rows],
        )


# ---------------------------------------------------------------- regions, clusters, machines


def _machine_rows(fleet: Fleet) -> Iterator[_MachineRow]:
    for region in fleet.regions:
        for cluster in region.clusters:
            placed = ((rack, machine) for rack in cluster.racks for machine in rack.machines)
            for position, (rack, machine) in enumerate(placed):
                yield _MachineRow(
                    machine.machine,
                    region.region,
                    cluster.cluster,
                    machine.gpu_model,
                    machine.gpus,
                    machine.cpus,
                    machine.memory_gib,
                    rack.rack,
                    position,
                    cluster.inference is not None,
                    rack.power_domain,
                )


def _fleet_of_rows(
    outline: Sequence[TupleRow], machines: Sequence[TupleRow]
) -> tuple[Fleet, dict[MachineId, MachineState]]:
    """What `load_fleet` returns, of its rows."""
    racks = {
        ClusterId(cluster): tuple(
            Rack(
                RackId(rack),
                tuple(
                    Machine(MachineId(name), GpuModel(gpu_model), gpus, cpus, memory_gib)
                    for _, _, name, gpu_model, gpus, cpus, memory_gib, _, _ in in_rack
                ),
                power_domain,
            )
            for (rack, power_domain), in_rack in groupby(in_cluster, key=lambda row: (str(row[1]), str(row[8])))
        )
        for cluster, in_cluster in groupby(machines, key=lambda row: str(row[0]))
    }
    regions = tuple(
        Region(RegionId(region), tuple(_cluster_of_row(row, racks) for row in clusters if row[1] is not None))
        for region, clusters in groupby(outline, key=lambda row: str(row[0]))
    )
    return Fleet(regions), {MachineId(row[2]): MachineState(row[7]) for row in machines}


async def _load_machine_rows(connection: AnyConnection) -> list[TupleRow]:
    """Of all machines, in the order of _MachineRow."""
    return await all_rows(
        connection,
        select(
            MACHINES.c.machine,
            CLUSTERS.c.region,
            MACHINES.c.cluster,
            MACHINES.c.gpu_model,
            MACHINES.c.gpus,
            MACHINES.c.cpus,
            MACHINES.c.memory_gib,
            MACHINES.c.rack,
            MACHINES.c.position,
            CLUSTERS.c.inference.is_not(None),
            MACHINES.c.power_domain,
        )
        .select_from(MACHINES.join(CLUSTERS))
        .order_by(MACHINES.c.machine),
    )


async def _store_outline(
    connection: AnyConnection, fleet: Fleet, gone: Sequence[str], changed: Sequence[_MachineRow]
) -> bool:
    """Writes regions, clusters and machines; returns whether regions or clusters are others than before."""
    before = await _load_outline(connection)
    regions = [(region.region, position) for position, region in enumerate(fleet.regions)]
    clusters = [
        (
            cluster.cluster,
            region.region,
            position,
            cluster.mechanism,
            cells_document(cluster.cells),
            None if cluster.inference is None else inference_document(cluster.inference),
        )
        for region in fleet.regions
        for position, cluster in enumerate(region.clusters)
    ]
    await execute(connection, upsert_rows(REGIONS, ("region", "position"), regions))
    columns = ("cluster", "region", "position", "mechanism", "cells", "inference")
    await execute(connection, upsert_rows(CLUSTERS, columns, clusters))
    await execute(connection, delete(MACHINES).where(any_of(MACHINES.c.machine, gone)))
    await _store_machines(connection, changed)
    await _begin_on_their_side(connection)
    await execute(connection, delete(CLUSTERS).where(not_(any_of(CLUSTERS.c.cluster, [row[0] for row in clusters]))))
    await execute(connection, delete(REGIONS).where(not_(any_of(REGIONS.c.region, [row[0] for row in regions]))))
    return before != await _load_outline(connection)


async def _load_outline(connection: AnyConnection) -> list[tuple[object, ...]]:
    cursor = await execute(
        connection,
        select(
            REGIONS.c.region,
            REGIONS.c.position,
            CLUSTERS.c.cluster,
            CLUSTERS.c.position,
            CLUSTERS.c.mechanism,
            CLUSTERS.c.cells,
            CLUSTERS.c.inference,
        )
        .select_from(REGIONS.outerjoin(CLUSTERS))
        .order_by(REGIONS.c.region, CLUSTERS.c.cluster),
    )
    return await cursor.fetchall()


async def _store_machines(connection: AnyConnection, rows: Sequence[_MachineRow]) -> None:
    """A machine that is already known keeps its state."""
    names = ("machine", "cluster", "gpu_model", "gpus", "cpus", "memory_gib", "rack", "position", "power_domain")
    for first in range(0, len(rows), ROWS_AT_ONCE):
        values = [(row.machine, *row[2:9], row.power_domain) for row in rows[first : first + ROWS_AT_ONCE]]
        await execute(connection, upsert_rows(MACHINES, names, values))


async def _begin_on_their_side(connection: AnyConnection) -> None:
    """Machines that are new on their side, be it training or inference, begin there; one that is down stays so."""
    await connection.execute(
        """UPDATE machines m
              SET state = CASE WHEN m.state = ANY (%(failed)s)
                               THEN CASE WHEN c.inference IS NULL THEN %(down)s ELSE %(serving_down)s END
                               ELSE CASE WHEN c.inference IS NULL THEN %(up)s ELSE %(serving)s END END
             FROM clusters c
            WHERE c.cluster = m.cluster AND (c.inference IS NOT NULL) <> (m.state = ANY (%(of_inference)s))""",
        {
            "failed": [state.value for state in MachineState if state.is_down],
            "of_inference": [state.value for state in MachineState if state.is_of_inference],
            "up": MachineState.UP.value,
            "down": MachineState.DOWN.value,
            "serving": MachineState.SERVING.value,
            "serving_down": MachineState.SERVING_DOWN.value,
        },
    )
