"""Which runs there are: two cluster sizes, three schedulers, and private, quota and HiveD for each (HiveD §5.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from domain.cells import CellHierarchy, CellLevel
from domain.declared_cells import Declarations, DeclaredCells, DeclaredVirtualCluster
from domain.fleet import Fleet
from domain.identifiers import GpuModel, TenantId
from domain.tenant import HIGHEST_PRIORITY, Tenant
from formats.trace import TraceRow
from global_scheduler.levels.time_slice import TimeSlice
from simulator.baselines.gandiva import GANDIVA
from simulator.engine.settings import CostSettings, SimulationSettings
from simulator.engine.simulation_input import SimulationInput
from simulator.inputs.fleets import FleetSource, fleet_from
from simulator.inputs.tenants import unlimited_tenants
from simulator.inputs.virtual_clusters import (
    divided,
    machines_of_gang,
    owning,
    tenants_with_quotas_of_cells,
    virtual_clusters_of_trace,
    whole_shares,
)
from simulator.policies.policy import Policy
from simulator.policies.registry import policy_called

DAY_S = 86_400.0
SHARES_FROM_DAY, SHARES_UNTIL_DAY = 49.0, 77.0
"""The busy weeks, whose work decides who owns how much."""
FROM_DAY, UNTIL_DAY = 49.0, 53.0
"""What is simulated was submitted on these days."""
SIZES: Mapping[str, int] = MappingProxyType({"normal": 1080, "overloaded": 776})
"""GPUs: as many as would be in use at the end of these days if everything started at once, and 200 / 279 of it: §5.2
has 279 machines, and 200."""
GPUS_PER_MACHINE = 8
LEVELS = tuple(CellLevel(name, split) for name, split in (("gpu", 1), ("switch", 2), ("socket", 2), ("machine", 2)))
"""HiveD §5.1: node, CPU socket, PCIe switch, GPU."""
GPU_MODEL = GpuModel("V100")
SCHEDULERS = ("fifo", "tiresias_las", "gandiva_1h")
SLICE_S = 3600.0
OPPORTUNISTIC_SHARE = 1 / 3
OPPORTUNISTIC = "-opportunistic"
"""Ends the name of the tenant that submits what its owner declares to be opportunistic."""
SEED = 2020
RUN_SEED = 1

PRIVATE, QUOTA, HIVED = "private", "quota", "hived"
DECLARED, STATIC, MULTI_LEVEL = "declared", "static", "multi_level"


@dataclass(frozen=True, slots=True)
class Case:
    """One run, or one for each tenant alone."""

    size: str
    scheduler: str
    arm: str
    """private: each tenant alone; quota: all share, without cells; hived: all share, within quota in cells; declared: a third of
    the workloads is opportunistic for good, all others guaranteed; static and multi_level: the same with cells that are
    bound for good, or of several levels."""
    instant: bool = False
    """An eviction takes no time."""

    @property
    def settings(self) -> SimulationSettings:
        costs = CostSettings(checkpoint_save_s=0.0) if self.instant else CostSettings()
        return SimulationSettings().model_copy(
            update={"costs": costs, "check_every_events": 0, "trace_regions_bind": False}
        )

    @property
    def policy(self) -> Policy:
        """With scan passes, and so with quotas, where quotas decide what is guaranteed."""
        sliced = self.scheduler == "gandiva_1h"
        policy = replace(GANDIVA, levels=TimeSlice(SLICE_S)) if sliced else policy_called(self.scheduler)
        return replace(policy, scans=True) if self.arm in {QUOTA, HIVED} else policy


def all_cases() -> tuple[Case, ...]:
    """Every run of the document, the long ones first."""
    arms = (HIVED, PRIVATE, QUOTA)
    return (
        *(Case(size, scheduler, DECLARED, instant=True) for size in SIZES for scheduler in reversed(SCHEDULERS)),
        *(Case(size, scheduler, arm) for scheduler in reversed(SCHEDULERS) for size in SIZES for arm in arms),
        *(Case(size, SCHEDULERS[0], arm) for size in SIZES for arm in (DECLARED, STATIC, MULTI_LEVEL)),
    )


def input_of(case: Case, trace: Sequence[TraceRow]) -> SimulationInput:
    """What a run of the case is given; for `private` the shared fleet, of which each tenant's part is to be taken."""
    shares = [row for row in trace if SHARES_FROM_DAY <= row.submit_s / DAY_S < SHARES_UNTIL_DAY]
    rows = [row for row in trace if FROM_DAY <= row.submit_s / DAY_S < UNTIL_DAY]
    fleet = _fleet(case.size)
    machine_cells = virtual_clusters_of_trace(fleet, shares)
    declarations = _multi_level(machine_cells, shares) if case.arm == MULTI_LEVEL else machine_cells
    shared = divided(fleet, declarations, "the shares")
    if case.arm == STATIC:
        shared = _bound_for_good(shared)
    if case.arm in {DECLARED, STATIC, MULTI_LEVEL}:
        rows = declared_opportunistic(rows)
    tenants = tenants_of(case, rows, shared)
    if case.arm == QUOTA:
        return SimulationInput("philly", rows, fleet, tenants)
    return SimulationInput("philly", rows, shared, owning(tenants, declarations))


def tenants_of(case: Case, rows: Sequence[TraceRow], shared: Fleet) -> tuple[Tenant, ...]:
    """With the GPUs of their cells as quotas where these count."""
    if case.arm in {QUOTA, HIVED}:
        return tenants_with_quotas_of_cells(rows, shared)
    return unlimited_tenants(rows, default_priority=HIGHEST_PRIORITY)


def declared_opportunistic(rows: Sequence[TraceRow]) -> list[TraceRow]:
    """A third of the workloads, drawn from a seed, is submitted by tenants that own nothing."""
    draws = np.random.default_rng(SEED).random(len(rows)).tolist()
    return [
        replace(row, tenant=TenantId(f"{row.tenant}{OPPORTUNISTIC}")) if draw < OPPORTUNISTIC_SHARE else row
        for row, draw in zip(rows, draws, strict=True)
    ]


def _fleet(size: str) -> Fleet:
    """One cluster, with the levels of the paper."""
    source = FleetSource(gpus=SIZES[size], gpus_per_machine=GPUS_PER_MACHINE, gpu_model=GPU_MODEL)
    fleet = fleet_from(source)
    (region,) = fleet.regions
    (cluster,) = region.clusters
    hierarchy = CellHierarchy(str(GPU_MODEL), GPU_MODEL, LEVELS)
    divided_so = replace(cluster, cells=replace(cluster.cells, hierarchies=(hierarchy,)))
    return Fleet((replace(region, clusters=(divided_so,)),))


def _multi_level(declarations: Declarations, rows: Sequence[TraceRow]) -> Declarations:
    """As many GPUs, in cells of the sizes that each tenant's work asks for, and machines enough for its largest workload."""
    asked: dict[TenantId, list[float]] = {}
    largest: dict[TenantId, int] = {}
    for row in rows:
        weights = asked.setdefault(row.tenant, [0.0] * len(LEVELS))
        weights[_level_of(row.gpus)] += row.gpus * row.duration_s
        largest[row.tenant] = max(largest.get(row.tenant, 0), row.gpus)
    return {
        tenant: tuple(_in_levels(one, asked[tenant], largest[tenant]) for one in owned)
        for tenant, owned in declarations.items()
    }


def _in_levels(declared: DeclaredVirtualCluster, weights: Sequence[float], largest: int) -> DeclaredVirtualCluster:
    """In whole machines' worth of each level."""
    (machines,) = declared.cells
    least = [0] * (len(LEVELS) - 1) + [machines_of_gang(largest, GPUS_PER_MACHINE) if largest > 4 else 0]
    shares = whole_shares(weights, least, machines.cells)
    cells = [
        DeclaredCells(level.name, share * (GPUS_PER_MACHINE >> number), machines.hierarchy)
        for number, (level, share) in enumerate(zip(LEVELS, shares, strict=True))
        if share
    ]
    return replace(declared, cells=tuple(cells))


def _level_of(gpus: int) -> int:
    """The lowest level whose cells hold so many GPUs; the machine for what is larger."""
    return min(max(gpus - 1, 0).bit_length(), len(LEVELS) - 1)


def _bound_for_good(fleet: Fleet) -> Fleet:
    regions = tuple(
        replace(
            region,
            clusters=tuple(
                replace(cluster, cells=replace(cluster.cells, static_binding=True)) for cluster in region.clusters
            ),
        )
        for region in fleet.regions
    )
    return Fleet(regions)
