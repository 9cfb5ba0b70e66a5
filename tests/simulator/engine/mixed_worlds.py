"""Small worlds in which everything that Topmast does meets: owners of cells and their guests, several jobs in clusters of both
mechanisms, flexible tasks, CPUs to spare, machines on loan, quotas, levels, failures."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cluster_manager.cells.declared import declarations_of, fleet_with_virtual_clusters
from cluster_manager.tuning.tune import Tune
from domain.affinity import NO_JOB_AFFINITY, CellAffinity, JobAffinity
from domain.cells import CellHierarchy, CellLevel, ClusterCells
from domain.declared_cells import DeclaredCells, DeclaredVirtualCluster
from domain.eviction import VictimChoice
from domain.fleet import Cluster, Fleet, Rack, Region
from domain.identifiers import ANY_GPU_MODEL, ClusterId, JobName, RackId, RegionId, TenantId, WorkloadId
from domain.resources import Quota, TaskResources
from domain.tenant import Tenant
from domain.workload import Emulated, JobSpecification, Workload, WorkloadSpecification
from formats.scheduler_file import CompactionSection, EvictionSection, ReservationsSection
from formats.trace_workload import MODEL_LABEL
from global_scheduler.levels.attained_service import AttainedService
from regional_scheduler.elastic.lyra import LyraElastic
from simulator.baselines.mast import MAST
from simulator.engine.settings import CostSettings, FailureSettings, SimulationSettings
from simulator.inputs.loans import LoanSchedule, LoanStep
from simulator.policies.policy import Policy
from tests.cluster_manager.cells.worlds import Choices
from tests.simulator.engine.checked_run import V100, machine

LEVELS = (CellLevel("gpu"), CellLevel("socket", 2), CellLevel("machine", 2))
GPUS = 4
"""Of each machine; for each GPU 3 CPUs and 60 GiB, as the profiles of `profiled_run` expect."""
TENANTS = ("ads", "bio", "guest")


@dataclass(frozen=True, slots=True)
class MixedWorld:
    """Everything that a run needs, its policy included."""

    fleet: Fleet
    tenants: tuple[Tenant, ...]
    workloads: tuple[Workload, ...]
    loans: LoanSchedule
    policy: Policy
    settings: SimulationSettings


def mixed_world(choose: Choices) -> MixedWorld:
    """One or two regions, up to ten workloads."""
    regions = tuple(_region(choose, name) for name in ("east", "west")[: 1 + choose.one_in(4)])
    divided = [cluster for region in regions for cluster in region.clusters if cluster.mechanism == "cells"]
    tenants = tuple(_tenant(choose, number, divided) for number in range(len(TENANTS)))
    fleet = Fleet(regions)
    if any(tenant.virtual_clusters for tenant in tenants):
        fleet = fleet_with_virtual_clusters(fleet, declarations_of(tenants))
    workloads = tuple(_workload(choose, number) for number in range(2 + choose.below(9)))
    lenders = [cluster for region in regions for cluster in region.clusters if cluster.cluster.endswith("serving")]
    return MixedWorld(fleet, tenants, workloads, _loans(choose, lenders), _policy(choose), _settings(choose))


def _region(choose: Choices, name: str) -> Region:
    """A cluster of cells, and mostly one that packs, and one for inference."""
    cells = ClusterCells((CellHierarchy("v100", V100, LEVELS),))
    clusters = [replace(_cluster(f"{name}-divided", 1 + choose.below(3)), mechanism="cells", cells=cells)]
    if not choose.one_in(4):
        clusters.append(_cluster(f"{name}-packed", 1 + choose.below(2)))
    if not choose.one_in(3):
        clusters.append(_cluster(f"{name}-serving", 1 + choose.below(2)))
    return Region(RegionId(name), tuple(clusters))


def _cluster(name: str, machines: int) -> Cluster:
    made = [replace(machine(f"{name}-m{n}", GPUS), cpus=3.0 * GPUS, memory_gib=60.0 * GPUS) for n in range(machines)]
    return Cluster(ClusterId(name), (Rack(RackId(f"{name}-rack"), tuple(made)),))


def _tenant(choose: Choices, number: int, divided: list[Cluster]) -> Tenant:
    """The last one owns nothing; the others a machine or sockets, as long as there are some."""
    owned = []
    for cluster in divided:
        machines = sum(1 for _ in cluster.machines())
        if number == 0 and not choose.one_in(4):
            owned.append(DeclaredVirtualCluster(cluster.cluster, (DeclaredCells("machine", 1),)))
        if number == 1 and machines > 1 and not choose.one_in(3):
            owned.append(DeclaredVirtualCluster(cluster.cluster, (DeclaredCells("socket", 1 + choose.below(2)),)))
    quota = Quota.of({ANY_GPU_MODEL: choose.of((0, 2, 4, 8, 100))}, choose.of((None, None, 4.0)))
    return Tenant(TenantId(TENANTS[number]), choose.of((0, 1, 3)), quota, virtual_clusters=tuple(owned))


def _workload(choose: Choices, number: int) -> Workload:
    jobs = tuple(_job(choose, f"job{n}") for n in range(2 if choose.one_in(3) else 1))
    specification = WorkloadSpecification(
        f"w{number}",
        TenantId(choose.of(TENANTS)),
        jobs,
        labels=((MODEL_LABEL, choose.of(("hungry", "lean"))),) if not choose.one_in(4) else (),
        max_time_s=500.0 if choose.one_in(12) else None,
    )
    return Workload(WorkloadId(f"w{number}"), specification, choose.of((0.0, 0.0, 40.0, 300.0, 700.0)))


def _job(choose: Choices, name: str) -> JobSpecification:
    work = Emulated(choose.of((100.0, 400.0, 1000.0, 3000.0)), choose.of((0.0, 60.0)))
    if choose.one_in(6):
        resources = TaskResources(gpus=0, cpus=choose.of((1.0, 6.0, 12.0)), memory_gib=8.0)
        return JobSpecification(JobName(name), 1 + choose.below(2), resources, work)
    resources = TaskResources(gpus=choose.of((1, 1, 2, 4)), cpus=choose.of((None, None, None, 6.0)))
    tasks = 1 + choose.below(3)
    greatest = tasks + choose.of((0, 0, 1, 3))
    return JobSpecification(
        JobName(name),
        tasks,
        resources,
        work,
        max_tasks=greatest if greatest > tasks else 0,
        consolidate=choose.one_in(4),
        affinity=_affinity(choose),
        across_clusters=choose.one_in(6),
    )


def _affinity(choose: Choices) -> JobAffinity:
    """Mostly none."""
    if not choose.one_in(4):
        return NO_JOB_AFFINITY
    within = choose.of((None, CellAffinity("machine", hard=False), CellAffinity("machine", hard=True)))
    return JobAffinity(within, yields_to_downgrade=choose.one_in(2))


def _loans(choose: Choices, lenders: list[Cluster]) -> LoanSchedule:
    """At last all are on loan for good: whoever cannot start without them does then."""
    sizes = {cluster.cluster: sum(1 for _ in cluster.machines()) for cluster in lenders}
    steps = [
        LoanStep(t_s, cluster, choose.below(1 + machines))
        for t_s in (0.0, 150.0, 450.0, 900.0)
        for cluster, machines in sizes.items()
    ]
    return LoanSchedule((*steps, *(LoanStep(5_000.0, cluster, machines) for cluster, machines in sizes.items())))


def _policy(choose: Choices) -> Policy:
    return replace(
        MAST,
        name="mixed",
        levels=AttainedService((600.0, 3_000.0), 0.5) if choose.one_in(2) else None,
        elastic=None if choose.one_in(4) else LyraElastic(),
        tuning=None if choose.one_in(4) else Tune(),
    )


def _settings(choose: Choices) -> SimulationSettings:
    costly = choose.one_in(2)
    return SimulationSettings(
        costs=CostSettings(
            container_start_s=20.0 if costly else 0.0,
            checkpoint_save_s=10.0 if costly else 0.0,
            restore_s=5.0 if costly else 0.0,
            checkpoint_interval_s=choose.of((0.0, 100.0)),
        ),
        failures=FailureSettings(machine_mtbf_s=20_000.0 if choose.one_in(4) else 0.0, machine_mttr_s=300.0),
        scan_period_s=choose.of((0.0, 7.0, 60.0)),
        auction_latency_s=choose.of((0.0, 0.0, 3.0)),
        eviction=EvictionSection(
            minimum_run_time_s=choose.of((0.0, 0.0, 300.0)),
            evictions_per_workload_and_hour=choose.of((None, 2)),
            victims=VictimChoice.LEAST_WORK_DESTROYED,
        ),
        compaction=CompactionSection(enabled=choose.one_in(3), restart_s=10.0),
        reservations=ReservationsSection(enabled=choose.one_in(3), after_s=100.0, least_gpus=3, start_up_s=20.0),
        check_every_events=1,
    )
