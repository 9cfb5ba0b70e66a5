"""A request for every method, about workloads or tables of one tenant: as harmless as there is one."""

from __future__ import annotations

from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor

from tests.security.guarded_service import FOREIGN, FOREIGN_TABLE, OWN, OWN_TABLE, GuardedService

MISSING = "w0000000000000"
_MISSING_TABLE = "nowhere.clicks"

_RUNNING_WANTED = frozenset({"ReadLogs", "OpenSession", "ResizeWorkload", "RetuneWorkload", "MigrateWorkload"})


def sample(method: MethodDescriptor, guarded: GuardedService, tenant: str | None) -> Any:
    """`tenant` None: about what does not exist."""
    request: Any = message_factory.GetMessageClass(method.input_type)()
    by_tenant = guarded.running if method.name in _RUNNING_WANTED else guarded.waiting
    workload = MISSING if tenant is None else by_tenant[tenant]
    table = {None: _MISSING_TABLE, OWN: OWN_TABLE, FOREIGN: FOREIGN_TABLE}[tenant]
    fields = method.input_type.fields_by_name
    if method.name in {"SubmitWorkload", "SubmitWorkloads"}:
        _fill_submission(request if method.name == "SubmitWorkload" else request.requests.add(), tenant, table)
        return request
    if method.name == "OpenSession":
        request.opening.workload = workload
        request.opening.command.arguments.append("true")
        return request
    for field, value in (("workload", workload), ("table", table), ("tenant", "nobody" if tenant is None else tenant)):
        if field in fields and fields[field].message_type is None:
            setattr(request, field, value)
    if method.name in {"GetUsage", "WatchEvents"}:
        request.ClearField("workload")
    if "workloads" in fields:
        request.workloads.append(workload)
    if "dry_run" in fields:
        request.dry_run = True
    return request


def _fill_submission(request: Any, tenant: str | None, table: str) -> None:
    specification = request.specification
    specification.name = "asked"
    specification.tenant = "nobody" if tenant is None else tenant
    job = specification.jobs.add()
    job.name, job.tasks = "main", 1
    job.resources.gpus, job.resources.gpu_model = 1, "any"
    job.emulated.duration_s = 10.0
    specification.tables.add().table = table
    request.dry_run = True
