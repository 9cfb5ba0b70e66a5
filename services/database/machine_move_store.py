"""Machines to clusters: what clusters ask for, the machines on their way, and their change of cluster.

Inside the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from psycopg.types.json import Jsonb

from data_placement.machine_assignment.region_machines import RegionMachines
from domain.capacity_requests import ClusterRequests
from domain.identifiers import ClusterId, MachineId, RegionId
from domain.machine_moves import MachineMovement, MoveState
from formats.capacity_requests_file import requests_document, requests_from_document
from services.database import fleet_store
from services.database.channels import FLEET_CHANNEL
from services.database.connection import AnyConnection, wake_after_commit
from services.database.revision_store import Subject, raise_revision


@dataclass(frozen=True, slots=True)
class StoredRequests:
    """What the clusters of a region ask for."""

    region: RegionId
    requests: tuple[ClusterRequests, ...]
    revision: int
    """Grows with every application."""
    applied_s: float
    decided_s: float | None = None
    """When it was last decided which machines belong where; None: not yet."""
    decision: Mapping[str, object] | None = None
    """What came of it."""


async def store_requests(
    connection: AnyConnection, region: RegionId, requests: Iterable[ClusterRequests], now: float
) -> int:
    """Replaces what the clusters of the region ask for; returns the revision. The region's scheduler looks at it soon."""
    cursor = await connection.execute(
        """INSERT INTO machine_requests (region, requests, revision, applied_s) VALUES (%s, %s, 1, %s)
           ON CONFLICT (region) DO UPDATE
              SET requests = excluded.requests, revision = machine_requests.revision + 1, applied_s = excluded.applied_s,
                  decided_s = NULL
           RETURNING revision""",
        (region, Jsonb(requests_document(requests)), now),
    )
    row = await cursor.fetchone()
    wake_after_commit(connection, FLEET_CHANNEL)
    if row is None:
        raise LookupError(f"the requests of {region} vanished")
    return int(row[0])


async def load_requests(connection: AnyConnection, region: RegionId | None = None) -> dict[RegionId, StoredRequests]:
    """Of all regions for which some were applied, or of that one; by region."""
    cursor = await connection.execute(
        """SELECT region, requests, revision, applied_s, decided_s, decision FROM machine_requests
            WHERE %(region)s::text IS NULL OR region = %(region)s ORDER BY region""",
        {"region": region},
    )
    return {
        RegionId(name): StoredRequests(
            RegionId(name), requests_from_document(document, f"the stored requests of {name}"), *more
        )
        for name, document, *more in await cursor.fetchall()
    }


async def store_decision(
    connection: AnyConnection, region: RegionId, decided_s: float, decision: Mapping[str, object]
) -> None:
    """What was decided for the requests."""
    await connection.execute(
        "UPDATE machine_requests SET decided_s = %s, decision = %s WHERE region = %s",
        (decided_s, Jsonb(dict(decision)), region),
    )


async def load_moves(connection: AnyConnection, region: RegionId) -> dict[MachineId, MachineMovement]:
    """The machines of the region that are on their way, by name."""
    return {move.machine: move for move in await load_all_moves(connection, region)}


async def load_all_moves(connection: AnyConnection, region: RegionId | None = None) -> list[MachineMovement]:
    """The machines that are on their way, of all regions or of that one, by name."""
    cursor = await connection.execute(
        """SELECT machine, from_cluster, to_cluster, state, decided_s, deadline_s FROM machine_moves
            WHERE %(region)s::text IS NULL OR region = %(region)s ORDER BY machine""",
        {"region": region},
    )
    return [
        MachineMovement(
            MachineId(machine), ClusterId(source), ClusterId(target), MoveState(state), decided_s, deadline_s
        )
        for machine, source, target, state, decided_s, deadline_s in await cursor.fetchall()
    ]


async def store_moves(connection: AnyConnection, region: RegionId, moves: Sequence[MachineMovement]) -> None:
    """These machines are on their way, as far as they say."""
    await connection.execute(
        """INSERT INTO machine_moves (machine, region, from_cluster, to_cluster, state, decided_s, deadline_s)
           SELECT u.machine, %s, u.source, u.target, u.state, u.decided_s, u.deadline_s
             FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::float[], %s::float[])
                  AS u (machine, source, target, state, decided_s, deadline_s)
           ON CONFLICT (machine) DO UPDATE
              SET to_cluster = excluded.to_cluster, state = excluded.state, decided_s = excluded.decided_s,
                  deadline_s = excluded.deadline_s, from_cluster = excluded.from_cluster, region = excluded.region""",
        (
            region,
            [move.machine for move in moves],
            [move.from_cluster for move in moves],
            [move.to_cluster for move in moves],
            [move.state.value for move in moves],
            [move.decided_s for move in moves],
            [move.deadline_s for move in moves],
        ),
    )


async def remove_moves(connection: AnyConnection, machines: Iterable[MachineId]) -> None:
    """These are not on their way any more."""
    await connection.execute("DELETE FROM machine_moves WHERE machine = ANY (%s)", (sorted(machines),))


async def load_region_machines(connection: AnyConnection, region: RegionId) -> RegionMachines | None:
    """The region with what its machines are doing and where they are going; None: the fleet has no such region."""
    fleet, states = await fleet_store.load_fleet(connection, region)
    if not fleet.regions:
        return None
    cursor = await connection.execute(
        """SELECT p.machine, greatest(1, sum(cardinality(p.gpu_indices)))::int
             FROM attempts a JOIN placements p USING (workload, attempt)
            WHERE a.region = %s AND a.ended_s IS NULL GROUP BY p.machine""",
        (region,),
    )
    running = {MachineId(machine): int(gpus) for machine, gpus in await cursor.fetchall()}
    moves = await load_moves(connection, region)
    moving = frozenset([move.machine for move in moves.values() if move.state is not MoveState.WAITING])
    return RegionMachines(fleet.regions[0], states, running, moving)


async def change_clusters(connection: AnyConnection, moves: Mapping[MachineId, ClusterId]) -> None:
    """The machines belong to these clusters of their region from now on; the fleet's revision grows.

    The caller holds the lock of that revision. A machine stands behind those of its rack; where the cluster has none of its
    rack, the rack stands behind all others. Raises FleetRefused while anything is held on one of them.
    """
    await fleet_store.require_idle(connection, sorted(moves))
    for cluster in sorted(set(moves.values())):
        cursor = await connection.execute(
            """SELECT machine, rack, position, cluster = %(cluster)s FROM machines
                WHERE cluster = %(cluster)s OR machine = ANY (%(coming)s)
                ORDER BY cluster <> %(cluster)s, CASE WHEN cluster = %(cluster)s THEN position END, rack, machine""",
            {"cluster": cluster, "coming": sorted(name for name, target in moves.items() if target == cluster)},
        )
        by_rack: dict[str, list[tuple[str, int | None]]] = {}
        for machine, rack, position, is_there in await cursor.fetchall():
            by_rack.setdefault(rack, []).append((machine, position if is_there else None))
        ordered = [row for rack in by_rack.values() for row in rack]
        changed = [(name, position) for position, (name, before) in enumerate(ordered) if position != before]
        await connection.execute(
            """UPDATE machines m SET cluster = %s, position = u.position
                 FROM unnest(%s::text[], %s::int[]) AS u (machine, position) WHERE m.machine = u.machine""",
            (cluster, [name for name, _ in changed], [position for _, position in changed]),
        )
    await raise_revision(connection, Subject.FLEET)
    wake_after_commit(connection, FLEET_CHANNEL)
