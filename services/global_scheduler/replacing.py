"""A new fleet, new tenants: stored as a whole or refused.

When a tenant's quota gets other buckets, its live attempts are charged to other buckets too: their charges and the
ledger of within-quota use change in the same transaction, so that I4 can be kept with the new quota from then on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import MappingProxyType

from psycopg.types.json import Jsonb

from domain.events import Event, EventKind
from domain.fleet import Fleet, MachineState
from domain.identifiers import ClusterId, MachineId, RegionId, TenantId
from domain.machine_life_cycle import MachineHappening
from domain.machine_moves import MoveState
from domain.table import Table
from domain.tenant import Tenant, quota_charges, quota_limits
from services.database import (
    catalog_store,
    event_store,
    fleet_store,
    machine_move_store,
    refusal_store,
    tenant_store,
)
from services.database.catalog_store import TablesRefused
from services.database.channels import SCAN_CHANNEL
from services.database.connection import AnyConnection, wake_after_commit
from services.database.fleet_store import FleetRefused
from services.database.lease_store import hold_regions
from services.database.revision_store import Subject, lock_revision
from services.database.tenant_store import TenantsRefused
from services.global_scheduler.virtual_cluster_checks import require_match
from services.grpc_errors import PreconditionFailed
from services.regional_scheduler.machine_states import record_machine_happening
from services.wire.workloads import specification_from_proto
from topmast.v1 import workload_pb2

_UPS = MappingProxyType({MachineState.DOWN: 1, MachineState.DRAINING: 1, MachineState.DRAINING_DOWN: 2})
"""How often a machine in that state has yet to be said to be up."""


async def replace_fleet(
    connection: AnyConnection,
    fleet: Fleet,
    tables: Sequence[Table],
    now: float,
    tenants: Sequence[Tenant] | None = None,
) -> None:
    """The fleet and the tables of one fleet file; and all tenants, unless they stay as they are (None).

    Raises PreconditionFailed while something runs on a machine that would disappear, or where the fleet has not the virtual
    clusters of the tenants that stay; where a table would be named that is just being deleted; InvalidArgument where what is given does not match; and as `replace_tenants`.

    A machine that disappears while it is down or drained ends that in the event log: one that comes later under its name is up.
    """
    await require_match(connection, fleet, tenants)
    ups = await _ups_of_disappearing(connection, fleet, now)
    try:
        await fleet_store.apply_fleet(connection, fleet)
    except FleetRefused as refused:
        raise PreconditionFailed("MACHINES_IN_USE", "fleet", str(refused)) from refused
    await event_store.append(connection, ups)
    await _end_machine_moves(connection, fleet, now)
    try:
        await catalog_store.apply_tables(connection, tables)
    except TablesRefused as refused:
        raise PreconditionFailed("TABLES", "fleet", str(refused)) from refused
    await _require_homes(connection)
    wake_after_commit(connection, SCAN_CHANNEL)
    if tenants is not None:
        await _store_tenants(connection, tenants)
    # Last: whoever moves the walk of the auctions may wait for what is locked above.
    await refusal_store.doubt_all(connection)


async def _require_homes(connection: AnyConnection) -> None:
    """Raises PreconditionFailed where a region without which the fleet would be is the home of a table; a copy that lies in
    one is forgotten.
    """
    homeless, first = await catalog_store.homeless_tables(connection)
    if homeless:
        raise PreconditionFailed(
            "TABLES_AT_HOME",
            "fleet",
            f"{homeless} tables have their home in regions that the fleet would not have, {first} first; move them before"
            " (topmast data plan --live), or drop them by an import without them",
        )
    await catalog_store.forget_copies_elsewhere(connection)


async def _end_machine_moves(connection: AnyConnection, fleet: Fleet, now: float) -> None:
    """Machines that were on their way to another cluster, and are elsewhere by this fleet, are on their way no more: what
    drained for that alone takes work again."""
    moves = await machine_move_store.load_all_moves(connection)
    if not moves:
        return
    placed = await asyncio.to_thread(_places, fleet)
    ended: list[MachineId] = []
    for move in moves:
        region, cluster = placed.get(move.machine, (None, None))
        if cluster == move.from_cluster:
            continue
        ended.append(move.machine)
        if region is not None and move.state is not MoveState.WAITING:
            reason = f"it is in cluster {cluster} by the fleet that was applied"
            await record_machine_happening(connection, region, move.machine, MachineHappening.UNDRAINED, reason, now)
    await machine_move_store.remove_moves(connection, ended)


def _places(fleet: Fleet) -> dict[MachineId, tuple[RegionId, ClusterId]]:
    """Where each machine is."""
    return {
        machine.machine: (region.region, cluster.cluster)
        for region in fleet.regions
        for cluster in region.clusters
        for machine in cluster.machines()
    }


async def _ups_of_disappearing(connection: AnyConnection, after: Fleet, now: float) -> list[Event]:
    """One event for each thing that the log still says of them when nothing can happen to them any more."""
    await lock_revision(connection, Subject.FLEET)
    before, _ = await fleet_store.load_fleet(connection)
    gone = await asyncio.to_thread(_gone, before, after)
    if not gone:
        return []
    # A region may be writing this very moment that one of them is down.
    await hold_regions(connection, sorted({region for region, _, _ in gone}))
    states = await fleet_store.states_of(connection, [machine for _, _, machine in gone])
    return [
        Event(
            now,
            EventKind.MACHINE_UP,
            region=region,
            cluster=cluster,
            details={"machine": machine, "reason": "it was taken out of the fleet"},
        )
        for region, cluster, machine in gone
        for _ in range(_UPS.get(states[machine], 0))
    ]


def _gone(before: Fleet, after: Fleet) -> list[tuple[RegionId, ClusterId, MachineId]]:
    """The machines that only the one before has, with where they are."""
    kept = {machine.machine for region in after.regions for machine in region.machines()}
    return [
        (region.region, cluster.cluster, machine.machine)
        for region in before.regions
        for cluster in region.clusters
        for machine in cluster.machines()
        if machine.machine not in kept
    ]


async def replace_tenants(connection: AnyConnection, tenants: Sequence[Tenant]) -> None:
    """Raises PreconditionFailed while a tenant that would disappear has workloads that have not ended, and InvalidArgument
    where the fleet has not their virtual clusters."""
    await require_match(connection, None, tenants)
    await _store_tenants(connection, tenants)


async def _store_tenants(connection: AnyConnection, tenants: Sequence[Tenant]) -> None:
    before = {tenant.tenant: _buckets(tenant) for tenant in await tenant_store.load_tenants(connection)}
    try:
        # From here on no region writes anything in the name of its present lease, and no scan pass re-classifies.
        await tenant_store.apply_tenants(connection, tenants)
    except TenantsRefused as refused:
        raise PreconditionFailed("TENANTS_IN_USE", "tenants", str(refused)) from refused
    rebucketed = {
        tenant.tenant: tenant
        for tenant in tenants
        if tenant.tenant in before and before[tenant.tenant] != _buckets(tenant)
    }
    await _charge_anew(connection, rebucketed)


def _buckets(tenant: Tenant) -> tuple[int, frozenset[str]]:
    """What decides which buckets its workloads are charged to."""
    return tenant.priority, frozenset(quota_limits(tenant))


async def _charge_anew(connection: AnyConnection, tenants: dict[TenantId, Tenant]) -> None:
    """Charges the live attempts of these tenants to the buckets of their present quotas."""
    if not tenants:
        return
    cursor = await connection.execute(
        """SELECT a.workload, a.attempt, a.tenant, w.specification FROM attempts a JOIN workloads w USING (workload)
            WHERE a.ended_s IS NULL AND a.tenant = ANY(%s) ORDER BY a.workload, a.attempt FOR UPDATE OF a""",
        (sorted(tenants),),
    )
    workloads, attempts, charges = [], [], []
    for workload, attempt, tenant, serialized in await cursor.fetchall():
        specification = specification_from_proto(workload_pb2.WorkloadSpecification.FromString(bytes(serialized)))
        workloads.append(workload)
        attempts.append(attempt)
        charges.append(Jsonb(quota_charges(specification, tenants[TenantId(tenant)])))
    await connection.execute(
        """UPDATE attempts a SET charges = u.charges
             FROM unnest(%s::text[], %s::int[], %s::jsonb[]) AS u (workload, attempt, charges)
            WHERE a.workload = u.workload AND a.attempt = u.attempt""",
        (workloads, attempts, charges),
    )
    await connection.execute("DELETE FROM quota_use WHERE tenant = ANY(%s)", (sorted(tenants),))
    await connection.execute(
        """INSERT INTO quota_use (tenant, bucket, amount)
           SELECT a.tenant, c.bucket, sum(c.amount::bigint)
             FROM attempts a CROSS JOIN LATERAL jsonb_each_text(a.charges) AS c (bucket, amount)
            WHERE a.ended_s IS NULL AND a.within_quota AND a.tenant = ANY(%s)
            GROUP BY a.tenant, c.bucket""",
        (sorted(tenants),),
    )
