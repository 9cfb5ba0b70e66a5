"""Who holds the machines that a waiting workload could use, and which of them take no work. Inside the caller's transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from domain.fleet import MachineState
from domain.identifiers import RegionId, WorkloadId
from services.database.connection import AnyConnection


@dataclass(frozen=True, slots=True)
class CapacityHolder:
    """A workload of the same tenant, or all those of other tenants at one priority, in one region."""

    region: RegionId
    workload: WorkloadId | None
    """None: of other tenants."""
    name: str
    priority: int
    workloads: int
    gpus: int
    cpus: float


@dataclass(frozen=True, slots=True)
class OutOfUse:
    """Machines of one region that take no work."""

    region: RegionId
    state: MachineState
    """DRAINING or DOWN; what is both is DOWN."""
    machines: int
    gpus: int
    """All of theirs, also those that still have work."""


_DOWN = [state.value for state in (MachineState.DOWN, MachineState.DRAINING_DOWN)]
"""Of training's own machines: what inference has not lent is none that a workload could use."""


async def load_out_of_use(
    connection: AnyConnection, regions: Sequence[RegionId], *, models: Sequence[str] | None, with_gpus: bool
) -> list[OutOfUse]:
    """Machines of these regions and GPU models (None: of all) that are drained or down, by region and state.

    With `with_gpus` only machines with GPUs.
    """
    if not regions:
        return []
    cursor = await connection.execute(
        """SELECT c.region, CASE WHEN m.state = ANY(%(down)s) THEN 'down' ELSE 'draining' END AS state,
                  count(*), coalesce(sum(m.gpus), 0)::bigint
             FROM machines m JOIN clusters c USING (cluster)
            WHERE c.region = ANY(%(regions)s) AND (m.state = ANY(%(down)s) OR m.state = 'draining')
              AND (%(models)s::text[] IS NULL OR m.gpu_model = ANY(%(models)s::text[]))
              AND (NOT %(with_gpus)s OR m.gpus > 0)
            GROUP BY 1, 2 ORDER BY 1, 2""",
        {
            "regions": list(regions),
            "down": _DOWN,
            "models": None if models is None else list(models),
            "with_gpus": with_gpus,
        },
    )
    return [OutOfUse(RegionId(row[0]), MachineState(row[1]), row[2], row[3]) for row in await cursor.fetchall()]


async def load_holders(
    connection: AnyConnection,
    workload: WorkloadId,
    regions: Sequence[RegionId],
    *,
    models: Sequence[str] | None,
    with_gpus: bool,
) -> list[CapacityHolder]:
    """What runs in these regions on machines of these GPU models (None: of all), those with most first within their region.

    With `with_gpus` only what holds GPUs. Those of other tenants than that of the workload are summed up by priority.
    """
    if not regions:
        return []
    cursor = await connection.execute(
        """WITH held AS (
                SELECT a.region, a.priority, a.workload, sum(cardinality(p.gpu_indices)) AS gpus,
                       sum(p.millicpus) / 1000.0 AS cpus, a.tenant = asking.tenant AS own
                  FROM workloads asking
                  JOIN attempts a ON a.ended_s IS NULL AND a.region = ANY(%(regions)s)
                  JOIN placements p ON p.workload = a.workload AND p.attempt = a.attempt
                  JOIN machines m USING (machine)
                 WHERE asking.workload = %(workload)s
                   AND (%(models)s::text[] IS NULL OR m.gpu_model = ANY(%(models)s::text[]))
                   AND (NOT %(with_gpus)s OR cardinality(p.gpu_indices) > 0)
                 GROUP BY a.region, a.priority, a.workload, a.tenant, asking.tenant)
           SELECT h.region, CASE WHEN h.own THEN h.workload END AS named, coalesce(max(w.name) FILTER (WHERE h.own), ''),
                  h.priority, count(*), sum(h.gpus)::bigint AS gpus, sum(h.cpus)::float8 AS cpus
             FROM held h JOIN workloads w ON w.workload = h.workload
            GROUP BY h.region, named, h.priority
            ORDER BY h.region, gpus DESC, cpus DESC, named NULLS LAST, h.priority""",
        {
            "regions": list(regions),
            "workload": workload,
            "models": None if models is None else list(models),
            "with_gpus": with_gpus,
        },
    )
    return [
        CapacityHolder(RegionId(row[0]), None if row[1] is None else WorkloadId(row[1]), *row[2:])
        for row in await cursor.fetchall()
    ]
