"""tenants.yaml: what each tenant may use, and how important that is."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field

from domain.identifiers import ANY_GPU_MODEL, GpuModel, TenantId
from domain.resources import Quota
from domain.tenant import HIGHEST_PRIORITY, LOWEST_PRIORITY, Tenant
from domain.tenant_limits import NO_LIMITS, TenantLimits
from formats.problems import FieldProblem, FormatError, suggestion
from formats.schema import Name, Schema, parse_schema, whole_number_keys
from formats.text_stream import read_text
from formats.virtual_clusters import (
    VirtualClusterSchema,
    declared_virtual_clusters,
    virtual_cluster_problems,
    virtual_clusters_document,
)
from formats.yaml_document import dump_document, load_document

GREATEST_QUOTA_GPUS = 100_000_000
GREATEST_QUOTA_CPUS = 1e10
GREATEST_LIMIT = 1_000_000_000
LEAST_WEIGHT = 1e-6
GREATEST_WEIGHT = 1e6
NUMBERED_FIELDS = ("quotas",)
"""Mappings by priority: their keys may be whole numbers in YAML."""


def _gpus_by_model(value: object) -> object:
    """A plain number is a quota of GPUs of any model."""
    return {str(ANY_GPU_MODEL): value} if isinstance(value, int) and not isinstance(value, bool) else value


class QuotaSchema(Schema):
    gpus: Annotated[
        dict[Name, Annotated[int, Field(ge=0, le=GREATEST_QUOTA_GPUS)]], BeforeValidator(_gpus_by_model)
    ] = {}
    cpus: Annotated[float, Field(ge=0, le=GREATEST_QUOTA_CPUS)] | None = None


_Priority = Annotated[int, Field(ge=HIGHEST_PRIORITY, le=LOWEST_PRIORITY)]


class LimitsSchema(Schema):
    """What is left out is not limited."""

    max_pending: Annotated[int, Field(ge=0, le=GREATEST_LIMIT)] | None = None
    max_running: Annotated[int, Field(ge=0, le=GREATEST_LIMIT)] | None = None
    submissions_per_s: Annotated[float, Field(gt=0, le=1e6)] | None = None
    submissions_burst: Annotated[int, Field(ge=1, le=GREATEST_LIMIT)] | None = None


class TenantSchema(Schema):
    tenant: Name
    priority: _Priority
    quota: QuotaSchema | None = None
    """At that priority."""
    quotas: Annotated[dict[_Priority, QuotaSchema], BeforeValidator(whole_number_keys)] = {}
    """At further priorities; or at all, where `quota` is left out."""
    fair_share_weight: Annotated[float, Field(ge=LEAST_WEIGHT, le=GREATEST_WEIGHT)] = 1.0
    virtual_clusters: list[VirtualClusterSchema] = []
    limits: LimitsSchema | None = None


class TenantsSchema(Schema):
    tenants: list[TenantSchema]


class _QuotasSchema(Schema):
    quotas: Annotated[dict[_Priority, QuotaSchema], BeforeValidator(whole_number_keys)]


def read_tenants(path: Path) -> tuple[Tenant, ...]:
    """The tenants of a file, in its order; raises FormatError with every problem."""
    return parse_tenants(read_text(path), str(path))


def parse_tenants(text: str, source: str = "tenants.yaml") -> tuple[Tenant, ...]:
    """The tenants of a YAML text, in its order; raises FormatError with every problem."""
    return tenants_from_document(load_document(text, source, numbered_fields=NUMBERED_FIELDS), source)


def tenants_from_document(document: object, source: str = "tenants") -> tuple[Tenant, ...]:
    """The tenants of a parsed document; raises FormatError with every problem."""
    schema = parse_schema(TenantsSchema, document, source)
    problems = [
        problem
        for index, entry in enumerate(schema.tenants)
        for problem in (
            *_quota_problems(entry, f"tenants[{index}]"),
            *_limit_problems(entry.limits, f"tenants[{index}].limits"),
            *virtual_cluster_problems(entry.virtual_clusters, f"tenants[{index}].virtual_clusters"),
        )
    ]
    if problems:
        raise FormatError(source, problems)
    tenants = tuple(_tenant(entry) for entry in schema.tenants)
    problems = check_tenants(tenants)
    if problems:
        raise FormatError(source, problems)
    return tenants


def tenants_document(tenants: Sequence[Tenant]) -> dict[str, object]:
    """The tenants as a document; `tenants_from_document` gives the same tenants back."""
    return {"tenants": [_tenant_document(tenant) for tenant in tenants]}


def dump_tenants(tenants: Sequence[Tenant]) -> str:
    """The tenants as YAML; `parse_tenants` gives the same tenants back."""
    return dump_document(tenants_document(tenants))


def check_tenants(tenants: Sequence[Tenant], gpu_models: Collection[str] | None = None) -> list[FieldProblem]:
    """What is wrong between the tenants: none at all, a name twice; and, when the fleet's models are
    given, a quota for a model that no machine has.
    """
    problems: list[FieldProblem] = []
    if not tenants:
        problems.append(FieldProblem("tenants", "is empty; there must be at least one"))
    first_place: dict[TenantId, int] = {}
    for index, tenant in enumerate(tenants):
        first = first_place.setdefault(tenant.tenant, index)
        if first != index:
            description = f"tenant {tenant.tenant} is already at tenants[{first}]; names are unique, rename one"
            problems.append(FieldProblem(f"tenants[{index}].tenant", description))
        if gpu_models is None:
            continue
        for priority, quota in tenant.quotas:
            field = "quota" if priority == tenant.priority else f"quotas.{priority}"
            for model, _ in quota.gpus:
                if model != ANY_GPU_MODEL and model not in gpu_models:
                    description = f"no machine has this GPU model; {suggestion(model, gpu_models, 'GPU model')}"
                    problems.append(FieldProblem(f"tenants[{index}].{field}.gpus.{model}", description))
    return problems


def quotas_document(quotas: Sequence[tuple[int, Quota]]) -> dict[str, object]:
    """Quotas by priority as a document, with text for keys; `quotas_from_document` gives the same quotas back."""
    return {str(priority): _quota_document(quota) for priority, quota in quotas}


def quotas_from_document(document: object, source: str = "quotas") -> tuple[tuple[int, Quota], ...]:
    """Quotas by priority, ascending; raises FormatError with every problem."""
    schema = parse_schema(_QuotasSchema, {"quotas": document}, source)
    return tuple((priority, _quota(quota)) for priority, quota in sorted(schema.quotas.items()))


def _quota_problems(schema: TenantSchema, path: str) -> list[FieldProblem]:
    if schema.quota is None or schema.priority not in schema.quotas:
        return []
    described = f"is the tenant's own priority, whose quota is given as {path}.quota already; keep one of them"
    return [FieldProblem(f"{path}.quotas.{schema.priority}", described)]


def limits_document(limits: TenantLimits) -> dict[str, object]:
    """The limits that there are as a document; `limits_from_document` gives the same back."""
    return {name: limit for name, limit in asdict(limits).items() if limit is not None}


def limits_from_document(document: object, source: str = "limits") -> TenantLimits:
    """Raises FormatError with every problem."""
    return _limits(parse_schema(LimitsSchema, document, source))


def _limits(schema: LimitsSchema) -> TenantLimits:
    rate = schema.submissions_per_s
    return TenantLimits(
        schema.max_pending, schema.max_running, None if rate is None else float(rate), schema.submissions_burst
    )


def _limit_problems(schema: LimitsSchema | None, path: str) -> list[FieldProblem]:
    if schema is None or schema.submissions_burst is None or schema.submissions_per_s is not None:
        return []
    return [FieldProblem(f"{path}.submissions_burst", "is of no use without submissions_per_s; say both or neither")]


def _quota(schema: QuotaSchema) -> Quota:
    gpus = {GpuModel(model): count for model, count in schema.gpus.items()}
    return Quota.of(gpus, float(schema.cpus) if schema.cpus is not None else None)


def _tenant(schema: TenantSchema) -> Tenant:
    own = schema.quota or schema.quotas.get(schema.priority) or QuotaSchema()
    return Tenant(
        TenantId(schema.tenant),
        schema.priority,
        _quota(own),
        float(schema.fair_share_weight),
        declared_virtual_clusters(schema.virtual_clusters),
        tuple((at, _quota(quota)) for at, quota in sorted(schema.quotas.items()) if at != schema.priority),
        _limits(schema.limits) if schema.limits is not None else NO_LIMITS,
    )


def _quota_document(quota: Quota) -> dict[str, object]:
    document: dict[str, object] = {"gpus": {str(model): count for model, count in quota.gpus}}
    if quota.cpus is not None:
        document["cpus"] = quota.cpus
    return document


def _tenant_document(tenant: Tenant) -> dict[str, object]:
    document = {
        "tenant": str(tenant.tenant),
        "priority": tenant.priority,
        "quota": _quota_document(tenant.quota),
        "fair_share_weight": tenant.fair_share_weight,
    }
    if tenant.further_quotas:
        document["quotas"] = quotas_document(tenant.further_quotas)
    if tenant.limits != NO_LIMITS:
        document["limits"] = limits_document(tenant.limits)
    if tenant.virtual_clusters:
        document["virtual_clusters"] = virtual_clusters_document(tenant.virtual_clusters)
    return document
