"""Dry runs of applying: the very transaction that would apply is done and taken back, and what it would change is said."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from domain.fleet import Fleet
from domain.tenant import Tenant
from formats.fleet_file import FleetFile
from services.database import fleet_store, tenant_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.fleet_store import FleetRefused
from services.database.rehearsal import rehearse
from services.global_scheduler.applying import replacement
from services.global_scheduler.replacing import replace_tenants
from services.grpc_errors import PreconditionFailed
from topmast.v1 import global_scheduler_pb2 as messages

GREATEST_NAMES = 1_000
"""Of one list in an answer."""


async def changes_of_fleet(
    database: Database,
    described: FleetFile,
    tenants: tuple[Tenant, ...] | None,
    now: float,
    give_up_after_s: float | None,
) -> messages.DryRunChanges:
    """What applying would change; raises what applying raises, except what things as they stand are the reason of."""
    apply = replacement(described, tenants, now)

    async def changes(connection: AnyConnection) -> messages.DryRunChanges:
        before, _ = await fleet_store.load_fleet(connection)
        kinds = await asyncio.to_thread(_changes_of_fleets, before, described.fleet)
        del before
        if tenants is not None:
            kinds.append(await _changes_of_tenants(connection, tenants))
        return await _refusable(kinds, apply(connection))

    return await rehearse(database, changes, give_up_after_s=give_up_after_s)


async def changes_of_tenants(
    database: Database, tenants: tuple[Tenant, ...], give_up_after_s: float | None
) -> messages.DryRunChanges:
    """As `changes_of_fleet`, of tenants alone."""

    async def changes(connection: AnyConnection) -> messages.DryRunChanges:
        kinds = [await _changes_of_tenants(connection, tenants)]
        return await _refusable(kinds, replace_tenants(connection, tenants))

    return await rehearse(database, changes, give_up_after_s=give_up_after_s)


async def _refusable(kinds: Sequence[messages.KindChanges], applying: Awaitable[object]) -> messages.DryRunChanges:
    answer = messages.DryRunChanges(kinds=[kind for kind in kinds if _counts(kind)])
    try:
        await applying
    except PreconditionFailed as refused:
        answer.refused = str(refused)
        if isinstance(refused.__cause__, FleetRefused):
            for machine, attempt in refused.__cause__.in_use[:GREATEST_NAMES]:
                answer.drain_first.add(machine=machine, attempt=attempt)
    return answer


def _counts(kind: messages.KindChanges) -> int:
    return kind.added_count + kind.removed_count + kind.changed_count


def _changes_of_fleets(before: Fleet, after: Fleet) -> list[messages.KindChanges]:
    """Of regions, clusters and machines. One that moves to another place is changed."""
    kinds: tuple[tuple[str, Callable[[Fleet], Mapping[str, object]]], ...] = (
        ("region", _regions),
        ("cluster", _clusters),
        ("machine", _machines),
    )
    return [_difference(kind, of(before), of(after)) for kind, of in kinds]


def _regions(fleet: Fleet) -> dict[str, object]:
    return {region.region: None for region in fleet.regions}


def _clusters(fleet: Fleet) -> dict[str, object]:
    return {
        cluster.cluster: (region.region, cluster.mechanism, cluster.cells, cluster.inference)
        for region in fleet.regions
        for cluster in region.clusters
    }


def _machines(fleet: Fleet) -> dict[str, object]:
    return {
        machine.machine: (region.region, cluster.cluster, rack.rack, rack.power_domain, machine)
        for region in fleet.regions
        for cluster in region.clusters
        for rack in cluster.racks
        for machine in rack.machines
    }


async def _changes_of_tenants(connection: AnyConnection, after: Sequence[Tenant]) -> messages.KindChanges:
    before = await tenant_store.load_tenants(connection)
    return _difference(
        "tenant", {tenant.tenant: tenant for tenant in before}, {tenant.tenant: tenant for tenant in after}
    )


def _difference(kind: str, before: Mapping[str, object], after: Mapping[str, object]) -> messages.KindChanges:
    added, removed = sorted(after.keys() - before.keys()), sorted(before.keys() - after.keys())
    changed = sorted(name for name, one in after.items() if name in before and before[name] != one)
    return messages.KindChanges(
        kind=kind,
        added=added[:GREATEST_NAMES],
        removed=removed[:GREATEST_NAMES],
        changed=changed[:GREATEST_NAMES],
        added_count=len(added),
        removed_count=len(removed),
        changed_count=len(changed),
    )
