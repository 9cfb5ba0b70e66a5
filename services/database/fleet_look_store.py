"""The fleet as people look at it: capacity of clusters by GPU model, machines with what is on them, what a name stands for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from domain.events import EventKind
from domain.fleet import MachineState
from domain.identifiers import ClusterId, MachineId, RackId, RegionId, TenantId
from services.database.connection import AnyConnection
from services.database.lease_store import CLUSTER_PREFIX, REGIONAL_PREFIX


class ScopeKind(StrEnum):
    """What a name may stand for."""

    MACHINE = "machine"
    RACK = "rack"
    CLUSTER = "cluster"
    REGION = "region"


@dataclass(frozen=True, slots=True, order=True)
class Scope:
    """Some machines of one region, by one name."""

    kind: ScopeKind
    region: RegionId
    name: str


@dataclass(frozen=True, slots=True)
class Capacity:
    """The machines of one GPU model in one cluster; GPUs = in use + free + draining + down + serving."""

    region: RegionId
    cluster: ClusterId
    gpu_model: str
    machines: int
    machines_up: int
    gpus: int
    gpus_in_use: int
    gpus_free: int
    gpus_draining: int
    gpus_down: int
    gpus_serving: int
    gpus_lent: int
    alive: bool
    lost: bool


@dataclass(frozen=True, slots=True)
class MachineFilter:
    """Which machines; what is None or empty excludes nothing."""

    region: str = ""
    cluster: str = ""
    rack: str = ""
    machine: str = ""
    states: tuple[MachineState, ...] = ()
    gpu_model: str | None = None
    occupied: bool = False


@dataclass(frozen=True, slots=True)
class Drained:
    """What the operator said who drained a machine."""

    reason: str
    drained_s: float
    deadline_s: float | None


@dataclass(frozen=True, slots=True)
class LookedAtMachine:
    """A machine as the database knows it."""

    machine: MachineId
    region: RegionId
    cluster: ClusterId
    rack: RackId
    state: MachineState
    gpu_model: str
    gpus: int
    cpus: float
    memory_gib: float
    drain: Drained | None


@dataclass(frozen=True, slots=True)
class Holder:
    """An attempt, as far as it is on one machine."""

    workload: str
    attempt: int
    tenant: TenantId
    tasks: int
    gpus: int


_TAKING_WORK = [state.value for state in MachineState if state.takes_work]
_DRAINING = [MachineState.DRAINING.value, MachineState.RETURNING.value]
_DOWN = [state.value for state in MachineState if state.is_down]
_LENT = [state.value for state in MachineState if state.is_lent]

_CONDITIONS = """
              AND (%(region)s::text = '' OR c.region = %(region)s) AND (%(cluster)s::text = '' OR m.cluster = %(cluster)s)
              AND (%(rack)s::text = '' OR m.rack = %(rack)s) AND (%(machine)s::text = '' OR m.machine = %(machine)s)
              AND (%(gpu_model)s::text IS NULL OR m.gpu_model = %(gpu_model)s)
              AND (%(states)s::text[] IS NULL OR m.state = ANY(%(states)s))
              AND (NOT %(occupied)s OR m.machine IN (SELECT p.machine FROM attempts a JOIN placements p
                   USING (workload, attempt) WHERE a.ended_s IS NULL))"""


async def capacities(
    connection: AnyConnection, region: str = "", cluster: str = "", gpu_model: str | None = None
) -> list[Capacity]:
    """In the order of the fleet, then by GPU model; a cluster without machines has one of no model."""
    cursor = await connection.execute(
        """WITH used AS (
               SELECT p.machine, sum(cardinality(p.gpu_indices)) AS gpus
                 FROM attempts a JOIN placements p USING (workload, attempt) WHERE a.ended_s IS NULL GROUP BY p.machine),
           looked AS (
               SELECT r.position AS region_position, r.region, c.position, c.cluster, coalesce(m.gpu_model, '') AS gpu_model,
                      m.machine, m.state, coalesce(m.gpus, 0) AS gpus, coalesce(u.gpus, 0) AS used
                 FROM regions r JOIN clusters c USING (region) LEFT JOIN machines m USING (cluster)
                 LEFT JOIN used u USING (machine)
                WHERE (%(region)s::text = '' OR r.region = %(region)s) AND (%(cluster)s::text = '' OR c.cluster = %(cluster)s)
                  AND (%(gpu_model)s::text IS NULL OR coalesce(m.gpu_model, '') = %(gpu_model)s))
           SELECT region, cluster, gpu_model, count(machine), count(machine) FILTER (WHERE state = ANY(%(taking)s)),
                  sum(gpus)::bigint, sum(used)::bigint, coalesce(sum(gpus - used) FILTER (WHERE state = ANY(%(taking)s)), 0)::bigint,
                  coalesce(sum(gpus - used) FILTER (WHERE state = ANY(%(draining)s)), 0)::bigint,
                  coalesce(sum(gpus - used) FILTER (WHERE state = ANY(%(down)s)), 0)::bigint,
                  coalesce(sum(gpus - used) FILTER (WHERE state = %(serving)s), 0)::bigint,
                  coalesce(sum(gpus) FILTER (WHERE state = ANY(%(lent)s)), 0)::bigint,
                  EXISTS (SELECT FROM leases WHERE name = %(of_region)s || region AND expires_at > clock_timestamp())
                  AND EXISTS (SELECT FROM leases WHERE name = %(of_cluster)s || cluster AND expires_at > clock_timestamp()),
                  EXISTS (SELECT FROM lost_clusters x WHERE x.cluster = looked.cluster)
             FROM looked GROUP BY region_position, region, position, cluster, gpu_model
            ORDER BY region_position, region, position, cluster, gpu_model""",
        {
            "region": region,
            "cluster": cluster,
            "gpu_model": gpu_model,
            "taking": _TAKING_WORK,
            "draining": _DRAINING,
            "down": _DOWN,
            "serving": MachineState.SERVING.value,
            "lent": _LENT,
            "of_region": REGIONAL_PREFIX,
            "of_cluster": CLUSTER_PREFIX,
        },
    )
    return [
        Capacity(RegionId(region), ClusterId(cluster), *figures)
        for region, cluster, *figures in await cursor.fetchall()
    ]


async def machines_after(
    connection: AnyConnection, wanted: MachineFilter, after: str, limit: int
) -> list[LookedAtMachine]:
    """The next machines by name that pass the filter."""
    cursor = await connection.execute(
        f"""SELECT m.machine, c.region, m.cluster, m.rack, m.state, m.gpu_model, m.gpus, m.cpus, m.memory_gib,
                   d.reason, d.drained_s, d.deadline_s
              FROM machines m JOIN clusters c USING (cluster) LEFT JOIN machine_drains d ON d.machine = m.machine
             WHERE m.machine > %(after)s{_CONDITIONS}
             ORDER BY m.machine LIMIT %(limit)s""",
        {
            "after": after,
            "limit": limit,
            "region": wanted.region,
            "cluster": wanted.cluster,
            "rack": wanted.rack,
            "machine": wanted.machine,
            "gpu_model": wanted.gpu_model,
            "states": [state.value for state in wanted.states] or None,
            "occupied": wanted.occupied,
        },
    )
    return [
        LookedAtMachine(
            MachineId(row[0]),
            RegionId(row[1]),
            ClusterId(row[2]),
            RackId(row[3]),
            MachineState(row[4]),
            gpu_model=row[5],
            gpus=row[6],
            cpus=row[7],
            memory_gib=row[8],
            drain=None if row[9] is None else Drained(row[9], row[10], row[11]),
        )
        for row in await cursor.fetchall()
    ]


async def holders_on(connection: AnyConnection, machines: Sequence[MachineId]) -> Mapping[MachineId, list[Holder]]:
    """What live attempts hold on these machines, sorted by attempt."""
    cursor = await connection.execute(
        """SELECT p.machine, a.workload, a.attempt, a.tenant, count(*), sum(cardinality(p.gpu_indices))
             FROM attempts a JOIN placements p USING (workload, attempt)
            WHERE a.ended_s IS NULL AND p.machine = ANY(%s)
            GROUP BY p.machine, a.workload, a.attempt, a.tenant ORDER BY p.machine, a.workload, a.attempt""",
        (list(machines),),
    )
    found: dict[MachineId, list[Holder]] = defaultdict(list)
    for machine, workload, attempt, tenant, tasks, gpus in await cursor.fetchall():
        found[MachineId(machine)].append(Holder(workload, attempt, TenantId(tenant), int(tasks), int(gpus)))
    return found


async def down_reasons(connection: AnyConnection, machines: Sequence[MachineId]) -> Mapping[MachineId, str]:
    """What the log said last of those of these machines of which it says that they were lost."""
    if not machines:
        return {}
    cursor = await connection.execute(
        """SELECT DISTINCT ON (details ->> 'machine') details ->> 'machine', details ->> 'reason' FROM events
            WHERE event = %s AND details ->> 'machine' = ANY(%s) ORDER BY details ->> 'machine', sequence DESC""",
        (EventKind.MACHINE_DOWN.value, list(machines)),
    )
    return {MachineId(row[0]): row[1] for row in await cursor.fetchall()}


async def scopes_named(connection: AnyConnection, name: str, region: str = "") -> list[Scope]:
    """Everything of that name, in that region or in any, sorted."""
    cursor = await connection.execute(
        """SELECT * FROM (
               SELECT 'machine' AS kind, c.region FROM machines m JOIN clusters c USING (cluster) WHERE m.machine = %(name)s
               UNION SELECT 'rack', c.region FROM machines m JOIN clusters c USING (cluster) WHERE m.rack = %(name)s
               UNION SELECT 'cluster', region FROM clusters WHERE cluster = %(name)s
               UNION SELECT 'region', region FROM regions WHERE region = %(name)s) AS named
            WHERE %(region)s::text = '' OR region = %(region)s""",
        {"name": name, "region": region},
    )
    return sorted(Scope(ScopeKind(kind), RegionId(where), name) for kind, where in await cursor.fetchall())


async def machines_in(connection: AnyConnection, scope: Scope) -> dict[MachineId, MachineState]:
    """The machines that it stands for, by name, and their states."""
    cursor = await connection.execute(
        """SELECT m.machine, m.state FROM machines m JOIN clusters c USING (cluster)
            WHERE c.region = %s
              AND CASE %s WHEN 'machine' THEN m.machine WHEN 'rack' THEN m.rack WHEN 'cluster' THEN m.cluster
                          ELSE c.region END = %s
            ORDER BY m.machine""",
        (scope.region, scope.kind.value, scope.name),
    )
    return {MachineId(row[0]): MachineState(row[1]) for row in await cursor.fetchall()}
