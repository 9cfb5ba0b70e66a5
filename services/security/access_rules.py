"""Who may call what: a rule for every method that any server of ours has. What has none may be called by nobody."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from services.security.roles import Role

_ADMIN, _OPERATOR, _TENANT, _READ_ONLY, _TIER = Role


@dataclass(frozen=True, slots=True)
class AccessRule:
    """Which roles may call a method."""

    roles: frozenset[Role]
    tenant_scoped: bool = False
    """Whether what it tells or does depends on whose tenants the caller's are."""
    unasked: bool = False
    """Whether no bearer token is asked for."""


_ADMINS = AccessRule(frozenset({_ADMIN}))
_OPERATORS = AccessRule(frozenset({_ADMIN, _OPERATOR}))
_SUBMITTERS = AccessRule(frozenset({_ADMIN, _TENANT}), tenant_scoped=True)
_OWNERS = AccessRule(frozenset({_ADMIN, _OPERATOR, _TENANT}), tenant_scoped=True)
_READERS = AccessRule(frozenset({_ADMIN, _OPERATOR, _TENANT, _READ_ONLY}), tenant_scoped=True)
_USERS = AccessRule(frozenset({_ADMIN, _OPERATOR, _TENANT, _READ_ONLY}))
_TIERS = AccessRule(frozenset({_TIER}))
_KNOWN = AccessRule(frozenset(Role))
_ANYBODY = AccessRule(frozenset(Role), unasked=True)
"""Health, which balancers ask for, and tasks, which prove by their attempt who they are."""


def _of(service: str, rules: Mapping[AccessRule, str]) -> dict[str, AccessRule]:
    return {f"/{service}/{method}": rule for rule, methods in rules.items() for method in methods.split()}


ACCESS_RULES: Mapping[str, AccessRule] = MappingProxyType(
    _of(
        "topmast.v1.GlobalScheduler",
        {
            _SUBMITTERS: "SubmitWorkload SubmitWorkloads",
            _READERS: "GetWorkload ListWorkloads WatchWorkload WatchEvents GetWorkloadGraph GetQueue GetStatus"
            " GetVirtualClusters ExplainMachine ListMachines ListTenants GetUsage",
            _USERS: "GetLoans GetFleet",
            _OWNERS: "CancelWorkload CancelWorkloads HoldWorkloads ReleaseWorkloads RequeueWorkloads ChangeWorkloads"
            " ResizeWorkload RetuneWorkload MigrateWorkload",
            _OPERATORS: "PlanMachines DeclareLost Drain Undrain SaveSnapshot",
            _ADMINS: "ApplyFleet BeginFleetUpload UploadFleet ApplyUploadedFleet ApplyTenants ApplyMachineRequests",
        },
    )
    | _of(
        "topmast.v1.DataPlacement",
        {
            _READERS: "ListTables ExplainTable",
            _OPERATORS: "ExportWarehouse PlanPlacement GetPlacementPlan ListTableMoves",
            _ADMINS: "ImportWarehouse ApplyPlacementPlan DeclareDataCapacity",
        },
    )
    | _of("topmast.v1.Packages", {_SUBMITTERS: "GetPackageLimits FindPackage UploadPackage"})
    | _of("topmast.v1.Access", {_KNOWN: "WhoAmI", _ADMINS: "CreateToken ListTokens RevokeToken ListAuditRecords"})
    | _of(
        "topmast.v1.RegionalScheduler",
        {
            _TIERS: "GetInventory PlanWorkload DrainMachine UndrainMachine DrainMachines UndrainMachines ResizeWorkload"
            " RetuneWorkload MigrateWorkload ReclaimMachines AnswerFurther"
        },
    )
    | _of(
        "topmast.v1.ClusterManager",
        {
            _TIERS: "ExecutePlan StopAttempt ResizeAttempt GetStatus WatchStatus ForgetAttempts",
            _READERS: "ReadLogs",
            _OWNERS: "OpenSession",
        },
    )
    | _of("topmast.v1.TrainingSession", {_ANYBODY: "Heartbeat CheckpointSaved"})
    | _of("topmast.v1.InferenceScheduler", {_TIERS: "GetDemand"})
    | _of("grpc.health.v1.Health", {_ANYBODY: "Check List Watch"})
    | _of("grpc.reflection.v1alpha.ServerReflection", {_KNOWN: "ServerReflectionInfo"})
)
"""By the path of the method, as gRPC calls it."""


def rule_of(path: str) -> AccessRule | None:
    """None: nobody may call it."""
    return ACCESS_RULES.get(path)
