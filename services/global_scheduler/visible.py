"""What a caller who is limited to some tenants gets to see of what concerns several."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from domain.events import EventKind
from domain.identifiers import TenantId, WorkloadId
from services.database import ownership_store
from services.database.connection import AnyConnection
from services.security.principal import present_principal
from topmast.v1 import event_pb2

_OF_OTHERS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        EventKind.DISPATCHED.value: ("evicts",),
        EventKind.EVICTED.value: ("by", "by_attempt", "room_for"),
        EventKind.EVICTING.value: ("by", "by_attempt", "room_for"),
    }
)
"""Details that name workloads of whomsoever, by the kind of the event."""


def owners() -> tuple[str, ...] | None:
    """The tenants whose things the caller may see, sorted; None: all."""
    tenants = present_principal().tenants
    return None if tenants is None else tuple(sorted(tenants))


def owned_among(tenant: TenantId | None) -> tuple[str, ...] | None:
    """Of which tenants is shown who asks for those of one, or of all; None: of all. Of another's nothing, as of one that there is not."""
    visible = owners()
    if tenant is None:
        return visible
    return (tenant,) if visible is None or tenant in visible else ()


async def may_see(connection: AnyConnection, workload: WorkloadId) -> bool:
    """Whether the workload, or array, is there and of one of the caller's tenants; who sees everything may see it in any case."""
    visible = owners()
    return visible is None or bool(await ownership_store.owned_workloads(connection, [workload], visible))


def without_others(event: event_pb2.Event) -> event_pb2.Event:
    """An event of one tenant without the workload of another for which it happened."""
    for field in _OF_OTHERS.get(event.event, ()):
        if field in event.details.fields:
            del event.details.fields[field]
    return event
