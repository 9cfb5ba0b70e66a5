"""What a client asks to apply: checked, then stored. The same for one message and for a fleet that came in parts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection

from domain.fleet import Fleet
from domain.tenant import Tenant
from formats.fleet_file import FleetFile
from services.database.connection import AnyConnection, channels_woken
from services.global_scheduler.replacement_checks import checked_fleet, checked_tenants
from services.global_scheduler.replacing import replace_fleet
from topmast.v1 import global_scheduler_pb2 as messages


async def checked_request(request: messages.ApplyFleetRequest) -> tuple[FleetFile, tuple[Tenant, ...] | None]:
    """The fleet with its tables, and the tenants (None: they stay as they are); raises InvalidArgument with every problem."""
    described = await asyncio.to_thread(checked_fleet, request.fleet)
    if not request.HasField("tenants"):
        return described, None
    return described, await asyncio.to_thread(checked_tenants, tuple(request.tenants.tenants), "tenants.tenants")


def replacement(
    described: FleetFile, tenants: tuple[Tenant, ...] | None, now: float
) -> Callable[[AnyConnection], Awaitable[frozenset[str]]]:
    """The transaction that replaces what was there; returns the channels that it wakes."""

    async def replace_all(connection: AnyConnection) -> frozenset[str]:
        await replace_fleet(connection, described.fleet, described.tables, now, tenants)
        return channels_woken(connection)

    return replace_all


def applied_message(
    fleet: Fleet, tenants: Collection[Tenant] | None, changes: messages.DryRunChanges | None = None
) -> messages.ApplyFleetResponse:
    """How much is in force now; with what would change, how much would be."""
    machines = [machine for region in fleet.regions for machine in region.machines()]
    return messages.ApplyFleetResponse(
        regions=len(fleet.regions),
        clusters=sum(len(region.clusters) for region in fleet.regions),
        machines=len(machines),
        gpus=sum(machine.gpus for machine in machines),
        tenants=len(tenants or ()),
        changes=changes,
    )
