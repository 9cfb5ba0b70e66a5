"""Virtual clusters for a trace that comes without any: each tenant gets machines by its share of the work (HiveD §5.1)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cluster_manager.cells.declared import Weights, fleet_with_virtual_clusters
from cluster_manager.cells.hierarchy import Chain, chains_of
from domain.cells import tenant_of_virtual_cluster
from domain.declared_cells import Declarations, DeclaredCells, DeclaredVirtualCluster
from domain.fleet import CELLS_MECHANISM, Cluster, Fleet
from domain.identifiers import ANY_GPU_MODEL, GpuModel, TenantId
from domain.resources import Quota
from domain.tenant import Tenant
from formats.problems import FieldProblem, FormatError
from formats.trace import TraceRow
from formats.trace_workload import tasks_for_gpus
from simulator.inputs.tenants import tenants_of_trace

OPTION = "--vcs-of-trace"


def virtual_clusters_of_trace(fleet: Fleet, rows: Iterable[TraceRow]) -> Declarations:
    """A virtual cluster in each cluster with GPUs for each tenant of the rows that asks for such, by tenant.

    The rule, for the machines of each hierarchy of each cluster: a tenant's part of them is its part of the GPU-seconds
    that are asked of their model (rows that take any model ask it of all), in whole machines by largest remainder, but at
    least what its largest workload takes, and at least one. Tenants whose part is less than that get it, and the others share what
    is left. So all machines are owned. Raises FormatError where the machines are too few for that.
    """
    demands = _demands(rows)
    if not demands:
        raise FormatError(
            OPTION, [FieldProblem("", "no workload of the trace asks for GPUs, so there is nothing to own")]
        )
    owned: dict[TenantId, list[DeclaredVirtualCluster]] = {}
    for region in fleet.regions:
        for cluster in region.clusters:
            for tenant, cells in _shares(cluster, demands).items():
                owned.setdefault(tenant, []).append(DeclaredVirtualCluster(cluster.cluster, tuple(cells)))
    without = sorted(set(demands) - set(owned))
    if without:
        models = ", ".join(fleet.gpu_models()) or "none"
        description = f"{without[0]} asks for GPU models that no machine has; there are {models}"
        raise FormatError(OPTION, [FieldProblem("gpu_model", description)])
    return {tenant: tuple(declared) for tenant, declared in sorted(owned.items())}


def divided(fleet: Fleet, declarations: Declarations, source: str, weights: Weights = ()) -> Fleet:
    """The fleet with these virtual clusters, the clusters that they name divided into cells whatever placed jobs there.

    Raises FormatError where they do not match.
    """
    named = {declared.cluster for owned in declarations.values() for declared in owned}
    regions = tuple(
        replace(
            region,
            clusters=tuple(
                replace(cluster, mechanism=CELLS_MECHANISM) if cluster.cluster in named else cluster
                for cluster in region.clusters
            ),
        )
        for region in fleet.regions
    )
    return fleet_with_virtual_clusters(Fleet(regions), declarations, source, weights)


def owning(tenants: Iterable[Tenant], declarations: Declarations) -> tuple[Tenant, ...]:
    """The tenants with these virtual clusters and no others."""
    return tuple(replace(tenant, virtual_clusters=tuple(declarations.get(tenant.tenant, ()))) for tenant in tenants)


def tenants_with_quotas_of_cells(rows: Sequence[TraceRow], fleet: Fleet) -> tuple[Tenant, ...]:
    """The tenants of the trace, each with the GPUs of its cells as its quota; a tenant that owns none is always over quota."""
    owned = owned_gpus(fleet)
    return tuple(
        replace(tenant, quota=Quota.of({ANY_GPU_MODEL: owned.get(tenant.tenant, 0)}))
        for tenant in tenants_of_trace(rows, sum(owned.values()))
    )


def owned_gpus(fleet: Fleet) -> dict[TenantId, int]:
    """GPUs of all cells that each tenant owns, pinned ones too; tenants that own none are left out."""
    gpus: dict[TenantId, int] = {}
    for cluster in fleet.clusters_with_cells():
        sizes = {chain.name: chain for chain in chains_of(cluster, cluster.cells.hierarchies)}
        for owner in cluster.cells.virtual_clusters:
            owned = [(cells.chain, cells.level, cells.cells) for cells in owner.cells]
            owned += [(pinned.chain, pinned.level, 1) for pinned in owner.pinned]
            for name, level, count in owned:
                chain = sizes[name]
                tenant = tenant_of_virtual_cluster(owner.virtual_cluster)
                gpus[tenant] = gpus.get(tenant, 0) + count * chain.sizes[chain.level_called(level)]
    return {tenant: count for tenant, count in sorted(gpus.items()) if count}


@dataclass(slots=True)
class _Demand:
    """What a tenant asks for, by GPU model."""

    gpu_seconds: dict[GpuModel, float] = field(default_factory=dict)
    sizes: dict[GpuModel, dict[int, None]] = field(default_factory=dict)
    """Numbers of GPUs that single workloads ask for."""

    def add(self, row: TraceRow) -> None:
        self.gpu_seconds[row.gpu_model] = self.gpu_seconds.get(row.gpu_model, 0.0) + row.gpus * row.duration_s
        self.sizes.setdefault(row.gpu_model, {})[row.gpus] = None

    def of(self, model: GpuModel) -> float:
        return self.gpu_seconds.get(model, 0.0) + self.gpu_seconds.get(ANY_GPU_MODEL, 0.0)

    def asks_for(self, model: GpuModel) -> bool:
        return model in self.sizes or ANY_GPU_MODEL in self.sizes

    def most_machines(self, chain: Chain) -> int:
        """What its largest workload takes, at least one."""
        sizes = {**self.sizes.get(chain.gpu_model, {}), **self.sizes.get(ANY_GPU_MODEL, {})}
        return max((machines_of_gang(gpus, chain.gpus_per_machine) for gpus in sizes), default=1)


def machines_of_gang(gpus: int, gpus_per_machine: int) -> int:
    """Machines that a workload of so many GPUs takes when it is cut into the fewest equal tasks."""
    tasks = tasks_for_gpus(gpus, gpus_per_machine)
    return math.ceil(tasks / max(1, gpus_per_machine * tasks // max(1, gpus)))


def _demands(rows: Iterable[TraceRow]) -> dict[TenantId, _Demand]:
    demands: dict[TenantId, _Demand] = {}
    for row in rows:
        if row.gpus > 0:
            demands.setdefault(row.tenant, _Demand()).add(row)
    return dict(sorted(demands.items()))


def _shares(cluster: Cluster, demands: Mapping[TenantId, _Demand]) -> dict[TenantId, list[DeclaredCells]]:
    """What each tenant gets of the cluster's machines with GPUs."""
    owned: dict[TenantId, list[DeclaredCells]] = {}
    for chain in chains_of(cluster, cluster.cells.hierarchies):
        askers = {tenant: demand for tenant, demand in demands.items() if demand.asks_for(chain.gpu_model)}
        least = [demand.most_machines(chain) for demand in askers.values()]
        if sum(least) > len(chain.machines):
            description = (
                f"cluster {cluster.cluster} has {len(chain.machines)} machines with {chain.gpu_model}, and the largest "
                f"workloads of its {len(askers)} tenants take {sum(least)}: each tenant is to own what its largest one "
                "takes; add machines, or state virtual clusters (--vcs)"
            )
            raise FormatError(OPTION, [FieldProblem("machines", description)])
        weights = [demand.of(chain.gpu_model) for demand in askers.values()]
        shares = whole_shares(weights, least, len(chain.machines)) if askers else []
        for tenant, machines in zip(askers, shares, strict=True):
            level = chain.name_of(chain.machine_level)
            owned.setdefault(tenant, []).append(DeclaredCells(level, machines, chain.name))
    return owned


def whole_shares(weights: Sequence[float], least: Sequence[int], total: int) -> list[int]:
    """Whole numbers that add up to `total`, in proportion to the weights by largest remainder, each at least as given.

    A part that is less than its least becomes that; the others share what is left. Of equal remainders the first gets more.
    """
    at_least: set[int] = set()
    while True:
        free = [position for position in range(len(weights)) if position not in at_least]
        left = total - sum(least[position] for position in at_least)
        weight = sum(weights[position] for position in free)
        parts = {position: left * weights[position] / weight if weight > 0 else left / len(free) for position in free}
        short = [position for position in free if parts[position] < least[position]]
        if not short:
            break
        at_least.update(short)
    shares = list(least)
    for position in free:
        shares[position] = math.floor(parts[position])
    remainders = sorted(free, key=lambda position: (shares[position] - parts[position], position))
    for position in remainders[: total - sum(shares)]:
        shares[position] += 1
    return shares
