"""Simulations with cells: what owners run starts exactly when it would in a private cluster, whatever others do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from domain.cells import CellHierarchy, CellLevel, ClusterCells, OwnedCells, VirtualCluster
from domain.fleet import Fleet
from domain.identifiers import ANY_GPU_MODEL, TenantId, VirtualClusterId
from domain.resources import Quota
from domain.tenant import Tenant
from formats.trace import TraceRow
from simulator.policies.registry import policies
from simulator.results.figures import figures_of
from tests.simulator.engine.checked_run import V100, checked_run, machine, region, row

LEVELS = tuple(CellLevel(name, split) for name, split in (("gpu", 1), ("switch", 2), ("socket", 2), ("node", 2)))
OWNERS = (
    VirtualCluster(VirtualClusterId("a"), (OwnedCells("V100", "node", 3),)),
    VirtualCluster(VirtualClusterId("b"), (OwnedCells("V100", "node", 2), OwnedCells("V100", "socket", 2))),
)
UNLIMITED = Quota.of({ANY_GPU_MODEL: 1_000_000})
NONE = Quota.of({})
LOW = TenantId("low")
PASS_S = 60.0


def fleet(*owners: VirtualCluster) -> Fleet:
    """Six machines of eight GPUs in two racks, all of which the two owners have."""
    (cluster,) = region("r", *([machine(f"m{r}{n}", 8) for n in range(3)] for r in range(2))).clusters
    divided = ClusterCells((CellHierarchy("V100", V100, LEVELS),), owners)
    in_cells = replace(cluster, mechanism="cells", cells=divided)
    return Fleet((replace(region("r"), clusters=(in_cells,)),))


def trace(seed: int, tenant: str, count: int = 60) -> list[TraceRow]:
    generator = np.random.default_rng(seed)
    submitted_s = np.cumsum(generator.exponential(40.0, count))
    durations_s = generator.lognormal(6.0, 1.0, count)
    gpus = generator.choice([1, 1, 2, 4, 8, 16], count)
    return [
        row(f"{tenant}{n:02}", float(submitted_s[n]), float(durations_s[n]), int(gpus[n]), tenant) for n in range(count)
    ]


def starts(rows: Sequence[TraceRow], owners: Sequence[VirtualCluster], policy: str = "mast") -> dict[str, float]:
    """When each workload starts. Owners have quota for everything; the tenant `low` has no cells, and no quota either where
    the policy looks at that.
    """
    quota = NONE if policy == "mast" else UNLIMITED
    tenants = [Tenant(TenantId(str(owner.virtual_cluster)), 0, UNLIMITED) for owner in owners]
    return checked_run(
        policies()[policy], rows, fleet(*owners), [*tenants, Tenant(LOW, 0, quota)], check_every_events=50
    ).starts()


@pytest.mark.parametrize("seed", [1, 2])
def test_never_starts_an_owners_job_later_than_in_its_private_cluster(seed: int) -> None:
    """While a third tenant fills whatever is idle. The first job of all sets the clock of the scan passes."""
    first = row("first", 0.0, 1.0, 1, str(LOW))
    ours = {owner: trace(seed + n, str(owner.virtual_cluster)) for n, owner in enumerate(OWNERS)}
    low = trace(seed + 7, str(LOW))
    shared = starts([first, *low, *(job for rows in ours.values() for job in rows)], OWNERS)
    for owner, rows in ours.items():
        private = starts([first, *rows], [owner])
        waited = [job.workload_id for job in rows if private[job.workload_id] > job.submit_s + PASS_S]
        assert len(waited) > len(rows) // 4, "there is something to wait for"
        assert {job.workload_id: shared[job.workload_id] for job in rows} == {
            job.workload_id: private[job.workload_id] for job in rows
        }


def test_figures_tell_what_was_guaranteed_and_what_was_opportunistic() -> None:
    """Also those that are made from the log alone."""
    ours = [job for seed, owner in enumerate(OWNERS) for job in trace(seed, str(owner.virtual_cluster))]
    tenants = [Tenant(TenantId(str(owner.virtual_cluster)), 0, UNLIMITED) for owner in OWNERS]
    rows = [row("first", 0.0, 1.0, 1, str(LOW)), *trace(9, str(LOW)), *ours]
    run = checked_run(policies()["mast"], rows, fleet(*OWNERS), [*tenants, Tenant(LOW, 0, NONE)])
    figures = figures_of(run.record)
    assert figures.guaranteed is not None
    assert figures.opportunistic is not None
    assert (figures.guaranteed.workloads, figures.opportunistic.workloads) == (len(ours), len(rows) - len(ours))
    assert figures.guaranteed.preemptions == 0
    assert figures.opportunistic.preemptions == figures.preemptions > 0
    assert figures.opportunistic.preempted_gpus == figures.preempted_gpus >= figures.preemptions
    for name, group in figures.by_tenant.items():
        assert group.guaranteed_gpu_s == (0.0 if name == LOW else group.gpu_s)


ORDERINGS = ("fifo", "tiresias_las", "sjf")


@pytest.mark.parametrize("policy", ORDERINGS)
def test_never_starts_an_owners_job_otherwise_than_in_its_private_cluster_whatever_orders_them(policy: str) -> None:
    """Queues inside a virtual cluster are ordered as they would be alone: HiveD leaves the order to whatever policy."""
    first = row("first", 0.0, 1.0, 1, str(LOW))
    ours = {owner: trace(30 + n, str(owner.virtual_cluster), 40) for n, owner in enumerate(OWNERS)}
    low = trace(37, str(LOW), 40)
    shared = starts([first, *low, *(job for rows in ours.values() for job in rows)], OWNERS, policy)
    for owner, rows in ours.items():
        private = starts([first, *rows], [owner], policy)
        assert sum(private[job.workload_id] > job.submit_s for job in rows) > len(rows) // 4, (
            "there is something to wait for"
        )
        assert {job.workload_id: shared[job.workload_id] for job in rows} == {
            job.workload_id: private[job.workload_id] for job in rows
        }
