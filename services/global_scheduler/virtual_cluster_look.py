"""Who owns and uses what in the clusters that are divided into cells, as the database says at one moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence

from cluster_manager.capacity.cluster_capacity import ClusterCapacity
from cluster_manager.cells.declared import region_with_virtual_clusters
from cluster_manager.cells.usage import CellUsage, cell_usage
from domain.fleet import Cluster, MachineState, Region
from domain.identifiers import MachineId, TenantId
from domain.life_cycle import State
from domain.placement import Holding, order_of_holding
from domain.tenant import Tenant
from services.database import attempt_store, fleet_store, queue_store, tenant_store
from services.database.attempt_store import StoredAttempt
from services.database.connection import AnyConnection
from topmast.v1 import global_scheduler_pb2 as messages


async def virtual_clusters(
    connection: AnyConnection, tenant: str = "", cluster: str = "", *, owners: Collection[str] | None = None
) -> messages.GetVirtualClustersResponse:
    """Of all clusters with cells and all tenants, or of those of this name. `owners`: of these tenants only."""
    fleet, states = await fleet_store.load_fleet(connection)
    tenants = await tenant_store.load_tenants(connection)
    waiting = await queue_store.over_quota_gpus(connection)
    answer = messages.GetVirtualClustersResponse()
    for region in fleet.regions:
        wanted = tuple(one for one in region.clusters if one.has_cells and cluster in ("", one.cluster))
        if wanted:
            attempts = await attempt_store.load_live(connection, region.region)
            divided = Region(region.region, wanted)
            # In a thread: the caller holds a lease, and answers calls.
            usages = await asyncio.to_thread(_usages, divided, states, tenants, attempts, waiting)
            for name, usage in usages.items():
                _add(answer, region, name, usage, lambda one: tenant in ("", one) and (owners is None or one in owners))
    return answer


def _usages(
    region: Region,
    states: Mapping[MachineId, MachineState],
    tenants: Sequence[Tenant],
    attempts: Sequence[StoredAttempt],
    waiting: Mapping[TenantId, int],
) -> dict[str, CellUsage]:
    declared = region_with_virtual_clusters(region, tenants)
    return {str(cluster.cluster): _usage(cluster, states, attempts, waiting) for cluster in declared.clusters}


def _usage(
    cluster: Cluster,
    states: Mapping[MachineId, MachineState],
    attempts: Sequence[StoredAttempt],
    waiting: Mapping[TenantId, int],
) -> CellUsage:
    capacity = ClusterCapacity(cluster, {machine.machine: states[machine.machine] for machine in cluster.machines()})
    by_order = sorted(
        attempts, key=lambda one: order_of_holding(one.key, one.dispatched_s, one.state is State.PREEMPTING)
    )
    for attempt in by_order:
        held = tuple(placement for placement in attempt.placements if placement.cluster == cluster.cluster)
        if held:
            standing, since_s = attempt.standing, attempt.dispatched_s
            capacity.hold(Holding(attempt.key, standing, since_s, held, cells=attempt.cells, tenant=attempt.tenant))
            if attempt.state is State.PREEMPTING:
                capacity.begin_eviction(attempt.key)
    return cell_usage(capacity, {attempt.key: attempt.tenant for attempt in attempts}, waiting)


def _add(
    answer: messages.GetVirtualClustersResponse,
    region: Region,
    cluster: str,
    usage: CellUsage,
    wanted: Callable[[str], bool],
) -> None:
    answer.clusters.add(
        region=region.region,
        cluster=cluster,
        gpus=usage.gpus,
        guaranteed_gpus=usage.guaranteed,
        opportunistic_gpus=usage.opportunistic,
        idle_gpus=usage.idle,
        out_of_use_gpus=usage.out_of_use,
    )
    for one in usage.tenants:
        if wanted(one.tenant):
            answer.tenants.add(
                tenant=one.tenant,
                cluster=cluster,
                owned_gpus=one.owned,
                guaranteed_gpus=one.guaranteed,
                opportunistic_gpus=one.opportunistic,
                downgraded_gpus=one.downgraded,
                bad_gpus=one.bad,
                fair_share_gpus=one.fair_share,
            )
    for level in usage.levels:
        if wanted(level.virtual_cluster):
            answer.levels.add(
                tenant=level.virtual_cluster,
                cluster=cluster,
                hierarchy=level.hierarchy,
                level=level.level,
                pinned_cell=level.pinned_cell or "",
                gpus_per_cell=level.gpus_per_cell,
                owned=level.owned,
                used=level.used,
                free=level.free,
                bad=level.bad,
            )
