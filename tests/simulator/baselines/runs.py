"""Small runs without costs, in which every start can be worked out by hand; each is checked as a whole before it is used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from domain.fleet import Cluster, Fleet, Machine, Rack, Region
from domain.identifiers import (
    ANY_GPU_MODEL,
    ClusterId,
    GpuModel,
    MachineId,
    RackId,
    RegionId,
    TenantId,
    WorkloadId,
)
from domain.resources import Quota
from domain.tenant import Tenant
from formats.trace import TraceRow
from simulator.engine.settings import CostSettings, SimulationSettings
from simulator.engine.simulation import simulate
from simulator.engine.simulation_input import SimulationInput
from simulator.policies.policy import Policy
from simulator.policies.registry import policy_called
from simulator.results.conservation import check_conservation
from simulator.results.run_record import AttemptEnd, RunRecord
from simulator.validate import validate
from simulator.validation.record_fields import Record

FREE = SimulationSettings(
    costs=CostSettings(container_start_s=0.0, checkpoint_save_s=0.0, restore_s=0.0), scan_period_s=0.0
)
"""Nothing costs anything, and scan passes are made whenever there is news."""

T = TenantId("t")


def row(
    name: str,
    submit_s: float,
    duration_s: float,
    gpus: int,
    *,
    tenant: str = "t",
    cpus: float | None = None,
    tasks: int | None = None,
    region: str | None = None,
    gpu_model: str = ANY_GPU_MODEL,
) -> TraceRow:
    """A workload; on these fleets a task has one machine at most."""
    return TraceRow(
        WorkloadId(name),
        TenantId(tenant),
        submit_s,
        duration_s,
        gpus,
        tasks=tasks,
        cpus=cpus,
        gpu_model=GpuModel(gpu_model),
        region=RegionId(region) if region is not None else None,
    )


def region_of(name: str, *machine_gpus: int, cpus_per_gpu: float = 4.0, gpu_model: str = "V100") -> Region:
    """A region of one rack, with a machine for each number of GPUs."""
    machines = tuple(
        Machine(MachineId(f"{name}-m{number}"), GpuModel(gpu_model), gpus, gpus * cpus_per_gpu, gpus * 16.0)
        for number, gpus in enumerate(machine_gpus)
    )
    rack = Rack(RackId(f"{name}-rack"), machines)
    return Region(RegionId(name), (Cluster(ClusterId(f"{name}-cluster"), (rack,)),))


def one_machine(gpus: int) -> Fleet:
    return Fleet((region_of("east", gpus),))


@dataclass(frozen=True)
class BaselineRun:
    """A run that the validator and the laws of conservation found to be in order."""

    record: RunRecord
    events: list[Record]

    @property
    def first_starts(self) -> dict[str, float]:
        """When each workload first ran."""
        workloads = self.record.workloads
        return dict(zip(workloads.ids, workloads.first_started_s.tolist(), strict=True))

    @property
    def ends(self) -> dict[str, float]:
        workloads = self.record.workloads
        return dict(zip(workloads.ids, workloads.ended_s.tolist(), strict=True))

    @property
    def regions(self) -> dict[str, str]:
        """Where each workload ran last."""
        attempts, ids = self.record.attempts, self.record.workloads.ids
        pairs = zip(attempts.workload.tolist(), attempts.region.tolist(), strict=True)
        return {ids[workload]: self.record.regions[region] for workload, region in pairs}

    @property
    def preemptions(self) -> list[tuple[float, str, str]]:
        """When which workload was evicted for which."""
        attempts, ids = self.record.attempts, self.record.workloads.ids
        evicted = np.flatnonzero(attempts.end == AttemptEnd.PREEMPTED)
        return sorted(
            (float(attempts.ended_s[a]), ids[int(attempts.workload[a])], ids[int(attempts.evicted_by[a])])
            for a in evicted
        )


def run(
    policy: str | Policy,
    fleet: Fleet,
    rows: Sequence[TraceRow],
    *,
    settings: SimulationSettings = FREE,
    seed: int = 1,
    weights: Mapping[str, float] | None = None,
    priorities: Mapping[str, int] | None = None,
) -> BaselineRun:
    """Runs the rows to their end; every tenant has all the quota that there is."""
    assert rows
    chosen = policy if isinstance(policy, Policy) else policy_called(policy)
    quota = Quota.of({ANY_GPU_MODEL: 1_000_000})
    tenants = [
        Tenant(name, (priorities or {}).get(name, 0), quota, (weights or {}).get(name, 1.0))
        for name in sorted({row.tenant for row in rows})
    ]
    events: list[Record] = []
    record = simulate(
        SimulationInput("hand-made", rows, fleet, tenants),
        chosen,
        settings,
        seed,
        sink=lambda event: events.append(event.as_json()),
    )
    report = validate(events, fleet, tenants, complete=True)
    assert report.valid, str(report)
    check_conservation(record)
    assert len(record.attempts) >= len(rows)
    return BaselineRun(record, events)
