"""requests.yaml: how many machines, of which GPU model and how spread, each cluster of a region asks for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Annotated

from pydantic import Field

from domain.capacity_requests import (
    CapacityRequest,
    CapacityUnit,
    ClusterRequests,
    FailureDomain,
    why_fixed,
)
from domain.fleet import NO_GPU_MODEL, Fleet, Region
from domain.identifiers import ANY_GPU_MODEL, ClusterId, GpuModel
from formats.problems import FieldProblem, FormatError, suggestion
from formats.schema import Name, Schema, parse_schema
from formats.yaml_document import dump_document, load_document

GREATEST_AMOUNT = 100_000_000

_Amount = Annotated[int, Field(ge=0, le=GREATEST_AMOUNT)]
_Share = Annotated[float, Field(gt=0, le=1)]
_WHERE = MappingProxyType({FailureDomain.RACK: "most_per_rack", FailureDomain.POWER_DOMAIN: "most_per_power_domain"})


class CapacitySchema(Schema):
    gpu_model: Name | None = None
    machines: _Amount | None = None
    gpus: _Amount | None = None
    most_per_rack: _Share = 1.0
    most_per_power_domain: _Share = 1.0
    survives: Annotated[FailureDomain, Field(strict=False)] = FailureDomain.NONE
    spares: _Amount = 0
    spare_pool: Name | None = None


class ClusterRequestsSchema(Schema):
    cluster: Name
    capacity: list[CapacitySchema] = []


class RequestsSchema(Schema):
    requests: list[ClusterRequestsSchema]


def parse_requests(text: str, source: str = "requests.yaml") -> tuple[ClusterRequests, ...]:
    """The requests of a YAML text, in its order; raises FormatError with every problem."""
    return requests_from_document(load_document(text, source), source)


def requests_from_document(document: object, source: str = "requests") -> tuple[ClusterRequests, ...]:
    """The same of a parsed document (nested mappings and lists); raises FormatError with every problem."""
    schema = parse_schema(RequestsSchema, document, source)
    problems = [*_duplicates(schema), *_entry_problems(schema)]
    if not problems:
        requests = tuple([_cluster_requests(entry) for entry in schema.requests])
        problems = _pool_problems(requests)
        if not problems:
            return requests
    raise FormatError(source, problems)


def requests_document(requests: Iterable[ClusterRequests]) -> dict[str, object]:
    """As a document; `requests_from_document` gives the same back."""
    return {
        "requests": [
            {"cluster": str(one.cluster), "capacity": [_capacity_document(request) for request in one.capacity]}
            for one in requests
        ]
    }


def dump_requests(requests: Iterable[ClusterRequests]) -> str:
    """As YAML; `parse_requests` gives the same back."""
    return dump_document(requests_document(requests))


def check_requests(requests: Sequence[ClusterRequests], fleet: Fleet) -> list[FieldProblem]:
    """What is wrong with the requests for this fleet: clusters and models that it has not, more than a region has, and
    what no choice of machines could fulfil."""
    clusters = {cluster.cluster: (region, cluster) for region in fleet.regions for cluster in region.clusters}
    named = {one.cluster for one in requests}
    problems: list[FieldProblem] = []
    for r, one in enumerate(requests):
        if one.cluster not in clusters:
            hint = suggestion(one.cluster, [str(name) for name in clusters], "cluster")
            problems.append(FieldProblem(f"requests[{r}].cluster", f"there is no cluster {one.cluster}; {hint}"))
            continue
        region, cluster = clusters[one.cluster]
        refused = why_fixed(cluster)
        if refused:
            problems.append(FieldProblem(f"requests[{r}].cluster", f"{refused}; leave it out"))
            continue
        for k, request in enumerate(one.capacity):
            problems += _region_problems(request, region, named, f"requests[{r}].capacity[{k}]")
    return problems


# ---------------------------------------------------------------- the file alone


def _duplicates(schema: RequestsSchema) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    clusters: dict[str, int] = {}
    for r, entry in enumerate(schema.requests):
        first = clusters.setdefault(entry.cluster, r)
        if first != r:
            description = f"cluster {entry.cluster} is already at requests[{first}]; put all that it asks for there"
            problems.append(FieldProblem(f"requests[{r}].cluster", description))
        models: dict[str | None, int] = {}
        for k, capacity in enumerate(entry.capacity):
            first = models.setdefault(capacity.gpu_model, k)
            if first != k:
                what = capacity.gpu_model or "machines without GPUs"
                description = f"{what} is already at capacity[{first}] of this cluster; add the two up"
                problems.append(FieldProblem(f"requests[{r}].capacity[{k}].gpu_model", description))
    return problems


def _entry_problems(schema: RequestsSchema) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    for r, entry in enumerate(schema.requests):
        for k, capacity in enumerate(entry.capacity):
            field = f"requests[{r}].capacity[{k}]"
            if (capacity.machines is None) == (capacity.gpus is None):
                problems.append(FieldProblem(field, "must have either machines or gpus"))
            if capacity.gpus is not None and capacity.gpu_model is None:
                problems.append(FieldProblem(f"{field}.gpu_model", "is missing; say which model the GPUs are to be"))
            if capacity.gpu_model == ANY_GPU_MODEL:
                problems.append(FieldProblem(f"{field}.gpu_model", "must be a real model, or left out for none"))
            if capacity.survives is FailureDomain.RACK and capacity.most_per_power_domain < 1.0:
                description = (
                    "is rack, but most_per_power_domain is less than 1; say power_domain, which has racks in it, or leave "
                    "most_per_power_domain out"
                )
                problems.append(FieldProblem(f"{field}.survives", description))
    return problems


def _pool_problems(requests: Sequence[ClusterRequests]) -> list[FieldProblem]:
    """Requests that share spares have to mean the same by them."""
    pools: dict[tuple[str, str], list[tuple[str, CapacityRequest]]] = {}
    for r, one in enumerate(requests):
        for k, request in enumerate(one.capacity):
            if request.spare_pool:
                pool = pools.setdefault((request.spare_pool, request.gpu_model), [])
                pool.append((f"requests[{r}].capacity[{k}]", request))
    problems: list[FieldProblem] = []
    for members in pools.values():
        for (_, first), (field, request) in pairwise([members[0], *members]):
            for what in ("survives", "unit"):
                mine, theirs = getattr(request, what), getattr(first, what)
                if mine is not theirs:
                    name = f"{field}.survives" if what == "survives" else field
                    described = f"is {mine}, but {theirs} in another request of pool {request.spare_pool}"
                    problems.append(FieldProblem(name, f"{described}; spares are shared by those who ask alike"))
    return problems


def _cluster_requests(entry: ClusterRequestsSchema) -> ClusterRequests:
    cluster = ClusterId(entry.cluster)
    return ClusterRequests(cluster, tuple([_request(cluster, capacity) for capacity in entry.capacity]))


def _request(cluster: ClusterId, capacity: CapacitySchema) -> CapacityRequest:
    return CapacityRequest(
        cluster,
        GpuModel(capacity.gpu_model) if capacity.gpu_model is not None else NO_GPU_MODEL,
        (capacity.machines if capacity.machines is not None else capacity.gpus) or 0,
        CapacityUnit.MACHINES if capacity.machines is not None else CapacityUnit.GPUS,
        float(capacity.most_per_rack),
        float(capacity.most_per_power_domain),
        capacity.survives,
        capacity.spares,
        capacity.spare_pool or "",
    )


def _capacity_document(request: CapacityRequest) -> dict[str, object]:
    document: dict[str, object] = {} if request.gpu_model == NO_GPU_MODEL else {"gpu_model": str(request.gpu_model)}
    document[request.unit.value] = request.amount
    plain = CapacitySchema()
    for field in ("most_per_rack", "most_per_power_domain", "spares"):
        if getattr(request, field) != getattr(plain, field):
            document[field] = getattr(request, field)
    if request.survives is not FailureDomain.NONE:
        document["survives"] = request.survives.value
    if request.spare_pool:
        document["spare_pool"] = request.spare_pool
    return document


# ---------------------------------------------------------------- against a region


def _region_problems(request: CapacityRequest, region: Region, named: set[ClusterId], field: str) -> list[FieldProblem]:
    own = [
        (cluster.cluster, rack.power_domain, rack.rack, machine.gpus if request.unit is CapacityUnit.GPUS else 1)
        for cluster in region.clusters
        for rack in cluster.racks
        for machine in rack.machines
        if machine.gpu_model == request.gpu_model and not why_fixed(cluster)
    ]
    if not own:
        models = sorted({str(machine.gpu_model) for machine in region.machines() if machine.gpus})
        known = suggestion(request.gpu_model, models, "GPU model") if request.gpu_model else "name a gpu_model"
        description = f"region {region.region} has no {request.machines_named} that could change their cluster; {known}"
        return [FieldProblem(f"{field}.gpu_model", description)]
    amount_field = f"{field}.{request.unit.value}"
    there = sum(units for _, _, _, units in own)
    if request.amount > there:
        what = request.machines_named if request.unit is CapacityUnit.MACHINES else f"GPUs of {request.gpu_model}"
        return [FieldProblem(amount_field, f"is {request.amount}, but region {region.region} has {there} {what}")]
    in_named = sum(units for cluster, _, _, units in own if cluster in named)
    if request.amount > in_named:
        givers = ", ".join(sorted({cluster for cluster, *_ in own if cluster not in named}))
        description = (
            f"is {request.amount}, but the clusters that are named here have {in_named}; name those that are to give "
            f"machines away, without capacity: {givers}"
        )
        return [FieldProblem(amount_field, description)]
    parts: dict[FailureDomain, dict[str, int]] = {FailureDomain.RACK: {}, FailureDomain.POWER_DOMAIN: {}}
    for cluster, domain, rack, units in own:
        if cluster in named:
            for kind, name in ((FailureDomain.RACK, rack), (FailureDomain.POWER_DOMAIN, domain)):
                parts[kind][name] = parts[kind].get(name, 0) + units
    by_domain = request.survives is FailureDomain.POWER_DOMAIN or request.most_per_power_domain < 1.0
    if by_domain and "" in parts[FailureDomain.POWER_DOMAIN]:
        without = next(rack for _, domain, rack, _ in own if not domain)
        description = (
            f"asks about power domains, but rack {without} has none; give each rack its power_domain in the fleet"
        )
        which = "survives" if request.survives is FailureDomain.POWER_DOMAIN else "most_per_power_domain"
        return [FieldProblem(f"{field}.{which}", description)]
    return [*_share_problems(request, parts, field), *_failure_problems(request, parts, field)]


def _share_problems(
    request: CapacityRequest, parts: dict[FailureDomain, dict[str, int]], field: str
) -> list[FieldProblem]:
    """Shares under which the amount does not find room in all racks, or power domains, together."""
    problems: list[FieldProblem] = []
    for kind, where in _WHERE.items():
        most = sum(min(units, request.most_in(kind)) for units in parts[kind].values())
        if most < request.amount:
            description = (
                f"is {getattr(request, where)}: at most {request.most_in(kind)} in one, which makes {most} in all "
                f"{len(parts[kind])}, and {request.amount} are asked for; raise it"
            )
            problems.append(FieldProblem(f"{field}.{where}", description))
    return problems


def _failure_problems(
    request: CapacityRequest, parts: dict[FailureDomain, dict[str, int]], field: str
) -> list[FieldProblem]:
    """A failure that nothing survives: all that is left when the greatest domain fails is too little."""
    if request.survives is FailureDomain.NONE:
        return []
    units = sorted(min(there, request.most_in(request.survives)) for there in parts[request.survives].values())
    kind = request.survives.value.replace("_", " ")
    # The greatest fails.
    left = sum(units[:-1])
    if left >= request.amount:
        return []
    description = (
        f"is {request.survives}, but of {len(units)} {kind}s at most {left} are left when one fails, and {request.amount} "
        "are asked for; ask for less, raise the share, or leave it out"
    )
    return [FieldProblem(f"{field}.survives", description)]
