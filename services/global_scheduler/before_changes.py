"""How things were before they are changed: what the audit log has of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

from google.protobuf.json_format import MessageToDict

from domain.identifiers import MachineId, RegionId, WorkloadId
from services.database import fleet_store, tenant_store
from services.database.connection import AnyConnection
from services.wire.fleets import tenant_to_proto

Before: TypeAlias = Callable[[AnyConnection], Awaitable[Mapping[str, Any]]]

_MOST_NAMED = 1_000


async def tenants_before(connection: AnyConnection) -> Mapping[str, Any]:
    """All tenants in full, unless there are very many."""
    tenants = await tenant_store.load_tenants(connection)
    if len(tenants) > _MOST_NAMED:
        return {"tenants": len(tenants)}
    shown = [MessageToDict(tenant_to_proto(one), preserving_proto_field_name=True) for one in tenants]
    return {"tenants": shown}


async def fleet_before(connection: AnyConnection) -> Mapping[str, Any]:
    """The clusters of each region, and how many machines these have; with the tenants, which a fleet may replace."""
    regions = {
        str(one.region): {"clusters": one.clusters, "machines": one.machines, "gpus": one.gpus}
        for one in await fleet_store.summarise_regions(connection)
    }
    clusters = {
        str(region): list(map(str, names)) for region, names in (await fleet_store.load_outline(connection)).items()
    }
    return {"regions": regions, "clusters": clusters, **await tenants_before(connection)}


def states_before(workloads: Sequence[WorkloadId]) -> Before:
    """The states of these workloads; arrays have none of their own."""

    async def states(connection: AnyConnection) -> Mapping[str, Any]:
        cursor = await connection.execute(
            "SELECT workload, state, tenant FROM workloads WHERE workload = ANY(%s) ORDER BY workload",
            (list(workloads),),
        )
        return {row[0]: {"state": row[1], "tenant": row[2]} for row in await cursor.fetchall()}

    return states


def machines_before(states: Mapping[RegionId, Mapping[MachineId, Any]]) -> Mapping[str, Any]:
    """The states of machines, the first of many."""
    machines = {str(machine): state for of_region in states.values() for machine, state in of_region.items()}
    named = {
        machine: str(getattr(machines[machine], "value", machines[machine]))
        for machine in sorted(machines)[:_MOST_NAMED]
    }
    return {"machines": named, "all_machines": len(machines)}
