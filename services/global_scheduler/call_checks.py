"""Keeps callers who are limited to some tenants from what is others'.

What belongs to another tenant is answered as what does not exist, by one and the same path: before a servicer sees the request,
so that no answer, and no time that it takes, tells the two apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from google.protobuf.message import Message

from domain.identifiers import WorkloadId
from formats.problems import in_quotes
from services.database import ownership_store
from services.database.engine import Database
from services.global_scheduler.recorded_calls import is_recorded, subjects_of
from services.global_scheduler.request_checks import several_workloads, workload_named
from services.grpc_errors import CallRefused, InvalidArgument, NotFound, PreconditionFailed
from services.security.audit import begin_audit, present_audit
from services.security.call_records import CallRecords
from services.security.principal import Principal

_PATIENCE_REAL_S = 10.0
_NAMED = 20
_SERVICE = "/topmast.v1.GlobalScheduler/"

_Names = Callable[[Any], Sequence[WorkloadId]]


def _one(request: Any) -> Sequence[WorkloadId]:
    return (workload_named(request.workload),)


def _several(request: Any) -> Sequence[WorkloadId]:
    return several_workloads(request.workloads)


WORKLOADS_OF_REQUESTS: Mapping[str, _Names] = MappingProxyType(
    {
        f"{_SERVICE}{method}": names
        for names, methods in (
            (
                _one,
                "GetWorkload WatchWorkload CancelWorkload GetWorkloadGraph ResizeWorkload RetuneWorkload MigrateWorkload",
            ),
            (_several, "CancelWorkloads HoldWorkloads ReleaseWorkloads RequeueWorkloads ChangeWorkloads"),
        )
        for method in methods.split()
    }
)
"""Which workloads a request is about, by the path of the method."""


class GlobalCallChecks:
    """What the global scheduler asks of calls beside the role of who makes them."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._records = CallRecords(database)

    async def check(self, method: str, request: Message, principal: Principal) -> None:
        """Raises NotFound for workloads that are not of the caller's tenants, whether there are such or not."""
        if is_recorded(method, request, principal):
            begin_audit(method, request, principal, subjects_of(request))
        if principal.tenants is None:
            return
        names_of = WORKLOADS_OF_REQUESTS.get(method)
        if names_of is not None:
            await self._require_own(names_of(request), principal.tenants)
        elif method == f"{_SERVICE}SubmitWorkload":
            await self._require_own_submissions([request], principal.tenants)
        elif method == f"{_SERVICE}SubmitWorkloads":
            await self._require_own_submissions(getattr(request, "requests"), principal.tenants)  # noqa: B009 -- a message of any kind

    async def ended(
        self, method: str, request: Message | None, principal: Principal, refusal: CallRefused | None
    ) -> None:
        """Records what is recorded and is not yet: what was refused, and what happened in no transaction of ours."""
        call = present_audit()
        if call is None and refusal is not None and is_recorded(method, request, principal):
            call = begin_audit(method, request, principal, () if request is None else subjects_of(request))
        if call is not None:
            await self._records.ended(call, principal, refusal)

    async def _require_own(self, names: Sequence[WorkloadId], tenants: frozenset[str]) -> None:
        own = await self._database.run(
            lambda connection: ownership_store.owned_workloads(connection, names, tenants),
            give_up_after_s=_PATIENCE_REAL_S,
        )
        for name in names:
            if name not in own:
                raise NotFound("workload", name)

    async def _require_own_submissions(self, requests: Sequence[Any], tenants: frozenset[str]) -> None:
        """Raises InvalidArgument for tenants and tables that are not of the caller's tenants, whether there are such or not."""
        own = ", ".join(sorted(tenants)[:_NAMED])
        for request in requests:
            tenant = request.specification.tenant
            if tenant not in tenants:
                described = f"there is no tenant {in_quotes(tenant)} for whom you may submit; yours: {own}"
                raise InvalidArgument.of("specification.tenant", described)
        tables = sorted({table.table for request in requests for table in request.specification.tables})
        if tables:
            readable = await self._database.run(
                lambda connection: ownership_store.readable_tables(connection, tables, tenants),
                give_up_after_s=_PATIENCE_REAL_S,
            )
            for table in tables:
                if table not in readable:
                    described = f"there is no table {in_quotes(table)} that your tenants may read"
                    raise InvalidArgument.of("specification.tables", described)
        await self._require_own_packages(requests)

    async def _require_own_packages(self, requests: Sequence[Any]) -> None:
        """Raises PreconditionFailed for a package that was not uploaded for the tenant of its workload, whether it is stored or not."""
        named = {request.specification.package for request in requests} - {""}
        if not named:
            return
        owners = await self._database.run(
            lambda connection: ownership_store.owners_of_packages(connection, named), give_up_after_s=_PATIENCE_REAL_S
        )
        for request in requests:
            package = request.specification.package
            if package and request.specification.tenant not in owners.get(package, set()):
                raise PreconditionFailed(
                    "PACKAGE_NOT_STORED",
                    "specification.package",
                    f"specification.package: package {package} is not stored here; upload its folder again (UploadPackage)",
                )
