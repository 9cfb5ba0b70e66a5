"""Which calls are written down in the audit log, and what they are about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf.message import Message

from services.security.principal import Principal

_ADMINISTRATION = frozenset(
    {
        "ApplyFleet",
        "ApplyMachineRequests",
        "ApplyPlacementPlan",
        "ApplyTenants",
        "ApplyUploadedFleet",
        "CreateToken",
        "DeclareDataCapacity",
        "DeclareLost",
        "Drain",
        "ExportWarehouse",
        "ImportWarehouse",
        "ListAuditRecords",
        "ListTokens",
        "PlanPlacement",
        "RevokeToken",
        "SaveSnapshot",
        "Undrain",
    }
)
_ON_WORKLOADS = frozenset(
    {
        "CancelWorkload",
        "CancelWorkloads",
        "ChangeWorkloads",
        "HoldWorkloads",
        "MigrateWorkload",
        "ReleaseWorkloads",
        "RequeueWorkloads",
        "ResizeWorkload",
        "RetuneWorkload",
    }
)
_ONLY_WHEN_REFUSED = frozenset({"ListAuditRecords", "ListTokens", "PlanPlacement"})
_FIELDS = ("workload", "workloads", "names", "region", "cluster", "token", "name", "upload", "plan")
"""Of requests: what they are about."""

_MOST_SUBJECTS = 1_000


def is_recorded(method: str, request: Message | None, principal: Principal) -> bool:
    """Administration always is; what happens to workloads is when the caller acts for all tenants, and not for the own ones.

    Dry runs change nothing. `request` None: it was refused before it was read.
    """
    name = method.rpartition("/")[2]
    if getattr(request, "dry_run", False) or getattr(getattr(request, "options", None), "dry_run", False):
        return False
    if name in _ON_WORKLOADS:
        return principal.tenants is None
    return name in _ADMINISTRATION and (request is None or name not in _ONLY_WHEN_REFUSED)


def subjects_of(request: Message | None) -> Sequence[str]:
    """The names of workloads, machines, regions, tokens that the request is about."""
    found: list[str] = []
    for field in _FIELDS:
        value: Any = getattr(request, field, "")
        if isinstance(value, str):
            found += [value] if value else []
        elif isinstance(value, int):
            found.append(str(value))
        else:
            found += map(str, value)
    return found[:_MOST_SUBJECTS]
