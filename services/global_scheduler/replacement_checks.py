"""Is this fleet, are these tenants acceptable? The checks of the files, on messages; paths are those of the message."""

from __future__ import annotations

from dataclasses import replace

from domain.fleet import DEFAULT_MECHANISM, Fleet
from domain.inference import DEFAULT_FORECAST, DEFAULT_HEADROOM, DEFAULT_LOOK_EVERY_S, DEFAULT_RECLAIMING
from domain.tenant import CPU_BUCKET, Tenant
from formats.fleet_file import GREATEST_MACHINES, FleetFile, fleet_file_from_document
from formats.problems import FieldProblem, FormatError
from formats.tenants_file import tenants_from_document
from regional_scheduler.forecasting import FORECASTERS
from regional_scheduler.forecasting.policy import ForecastLibraryMissing
from services.grpc_errors import InvalidArgument
from services.wire.fleets import DEFAULT_FAIR_SHARE_WEIGHT
from topmast.v1 import fleet_pb2

GREATEST_TENANTS = 100_000

_RESERVED_MODEL = f"must not be {CPU_BUCKET!r}, which is what the quota of CPUs is called"


def checked_fleet(message: fleet_pb2.Fleet) -> FleetFile:
    """The fleet and the tables of the message; raises InvalidArgument with every problem."""
    machines = sum(
        len(rack.machines) for region in message.regions for cluster in region.clusters for rack in cluster.racks
    )
    if machines > GREATEST_MACHINES:
        raise InvalidArgument.of(
            "fleet.regions", f"have {machines} machines together; at most {GREATEST_MACHINES} are possible"
        )
    try:
        described = fleet_file_from_document(_fleet_document(message))
    except FormatError as error:
        raise InvalidArgument(
            [replace(problem, field=fleet_field(problem.field)) for problem in error.problems]
        ) from error
    if CPU_BUCKET in described.fleet.gpu_models():
        raise InvalidArgument.of("fleet.regions", f"a GPU model {_RESERVED_MODEL}")
    missing = _forecast_problems(described.fleet)
    if missing:
        raise InvalidArgument(missing)
    return described


def checked_tenants(messages: tuple[fleet_pb2.Tenant, ...], path: str = "tenants") -> tuple[Tenant, ...]:
    """The tenants of the messages, which are the request's field `path`; raises InvalidArgument with every problem."""
    if len(messages) > GREATEST_TENANTS:
        raise InvalidArgument.of(path, f"are {len(messages)}; at most {GREATEST_TENANTS} are possible")
    try:
        tenants = tenants_from_document({"tenants": [_tenant_document(message) for message in messages]})
    except FormatError as error:
        raise InvalidArgument(
            [replace(problem, field=tenants_field(problem.field, path)) for problem in error.problems]
        ) from error
    reserved = [
        FieldProblem(f"{path}[{index}].gpu_quota.{CPU_BUCKET}", f"a GPU model {_RESERVED_MODEL}: set cpu_quota")
        for index, message in enumerate(messages)
        if CPU_BUCKET in message.gpu_quota
        or any(CPU_BUCKET in quota.gpu_quota for quota in message.further_quotas.values())
    ]
    if reserved:
        raise InvalidArgument(reserved)
    return tenants


def _forecast_problems(fleet: Fleet) -> list[FieldProblem]:
    """Forecasts that need a library which is not installed where the service runs."""
    problems: list[FieldProblem] = []
    for r, region in enumerate(fleet.regions):
        for c, cluster in enumerate(region.clusters):
            if cluster.inference is None:
                continue
            try:
                FORECASTERS[cluster.inference.forecast].check_installed()
            except ForecastLibraryMissing as missing:
                field = f"regions[{r}].clusters[{c}].inference.forecast"
                problems.append(FieldProblem(fleet_field(field), str(missing)))
    return problems


def fleet_field(field: str) -> str:
    """The path in the request of a field of fleet.yaml."""
    return f"fleet.{field}" if field else "fleet"


def tenants_field(field: str, path: str = "tenants") -> str:
    """The path in the request of a field of tenants.yaml, which groups the quotas, as the message does not."""
    within = field.removeprefix("tenants").replace(".quotas.", ".further_quotas.")
    if ".quota." in within or ".further_quotas." in within:
        within = within.replace(".quota.", ".").replace(".gpus", ".gpu_quota").replace(".cpus", ".cpu_quota")
    return path + within


def _fleet_document(message: fleet_pb2.Fleet) -> dict[str, object]:
    return {
        "regions": [
            {"region": region.region, "clusters": [_cluster_document(cluster) for cluster in region.clusters]}
            for region in message.regions
        ],
        "tables": [
            {
                "table": table.table,
                "size_bytes": table.size_bytes,
                "home": table.home,
                "replicas": list(table.replicas),
            }
            for table in message.tables
        ],
    }


def _cluster_document(message: fleet_pb2.Cluster) -> dict[str, object]:
    return {
        "cluster": message.cluster,
        "mechanism": message.mechanism or DEFAULT_MECHANISM,
        "racks": [
            {
                "rack": rack.rack,
                "power_domain": rack.power_domain or None,
                "machines": [_machine_document(machine) for machine in rack.machines],
            }
            for rack in message.racks
        ],
        "cells": _cells_document(message.cells) if message.HasField("cells") else None,
        "inference": _inference_document(message.inference) if message.HasField("inference") else None,
    }


def _inference_document(message: fleet_pb2.InferenceSide) -> dict[str, object]:
    return {
        "address": message.address or None,
        "series": message.series or None,
        "headroom": message.headroom if message.HasField("headroom") else DEFAULT_HEADROOM,
        "look_every_s": message.look_every_s or DEFAULT_LOOK_EVERY_S,
        "forecast": message.forecast or DEFAULT_FORECAST,
        "reclaiming": message.reclaiming or DEFAULT_RECLAIMING,
    }


def _cells_document(message: fleet_pb2.ClusterCells) -> dict[str, object]:
    return {
        "hierarchies": [
            {
                "hierarchy": hierarchy.hierarchy,
                "gpu_model": hierarchy.gpu_model,
                "levels": [{"level": level.level, "split": level.split or None} for level in hierarchy.levels],
                "machines": list(hierarchy.machines) or None,
            }
            for hierarchy in message.hierarchies
        ]
    }


def _machine_document(message: fleet_pb2.Machine) -> dict[str, object]:
    return {
        "machine": message.machine,
        "gpu_model": message.gpu_model or None,
        "gpus": message.gpus,
        "cpus": message.cpus,
        "memory_gib": message.memory_gib,
    }


def _tenant_document(message: fleet_pb2.Tenant) -> dict[str, object]:
    return {
        "tenant": message.tenant,
        "priority": message.priority,
        "quota": _quota_document(message),
        "quotas": {priority: _quota_document(quota) for priority, quota in message.further_quotas.items()},
        "fair_share_weight": message.fair_share_weight or DEFAULT_FAIR_SHARE_WEIGHT,
        "virtual_clusters": [_virtual_cluster_document(declared) for declared in message.virtual_clusters],
        "limits": {field.name: limit for field, limit in message.limits.ListFields()},
    }


def _quota_document(message: fleet_pb2.Tenant | fleet_pb2.PriorityQuota) -> dict[str, object]:
    return {
        "gpus": dict(message.gpu_quota),
        "cpus": message.cpu_quota if message.HasField("cpu_quota") else None,
    }


def _virtual_cluster_document(message: fleet_pb2.VirtualCluster) -> dict[str, object]:
    return {
        "cluster": message.cluster,
        "cells": [
            {"hierarchy": cells.hierarchy or None, "level": cells.level, "cells": cells.cells}
            for cells in message.cells
        ],
        "pinned": [
            {
                "name": pin.name,
                "hierarchy": pin.hierarchy or None,
                "level": pin.level,
                "machine": pin.machine,
                "gpu": pin.gpu,
            }
            for pin in message.pinned
        ],
        "gpu_model": message.gpu_model or None,
        "gpus": message.gpus or None,
        "machines": message.machines or None,
    }
