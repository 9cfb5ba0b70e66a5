"""A simulation whose event log, tables and inventories are checked before anybody looks at the result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from data_placement.catalog import Catalog
from domain.events import JsonValue
from domain.fleet import NO_GPU_MODEL, Cluster, Fleet, Machine, Rack, Region
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
from domain.table import Table
from domain.tenant import Tenant
from domain.workload import Workload, WorkloadSpecification
from formats.trace import TraceRow
from simulator.engine.failures import Failures
from simulator.engine.settings import CostSettings, SimulationSettings
from simulator.engine.simulation import Simulation
from simulator.engine.simulation_input import SimulationInput
from simulator.inputs.actions import ActionAt
from simulator.inputs.loans import LoanSchedule
from simulator.inputs.table_moves import TableMovesInput
from simulator.policies.policy import Policy
from simulator.results.conservation import check_conservation
from simulator.results.run_record import RunRecord, WorkloadEnd
from simulator.validate import validate

V100 = GpuModel("V100")
NOBODY_PAYS = CostSettings(container_start_s=0.0, checkpoint_save_s=0.0, restore_s=0.0, checkpoint_interval_s=0.0)
NO_COSTS = SimulationSettings(costs=NOBODY_PAYS)
"""Starting, saving and restoring take no time; nothing fails."""
UNLIMITED = 1_000_000
Record = Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class CheckedRun:
    """What a run said, by its tables and by its log."""

    record: RunRecord
    log: tuple[Record, ...]

    def by_name(self) -> Iterator[tuple[str, float, float, int]]:
        """Of each workload: its name, first start, end, and how it ended."""
        table = self.record.workloads
        for row, name in enumerate(table.ids):
            yield name, float(table.first_started_s[row]), float(table.ended_s[row]), int(table.end[row])

    def starts(self) -> dict[str, float]:
        """When each workload first worked."""
        return {name: start_s for name, start_s, _, _ in self.by_name()}

    def ends(self) -> dict[str, float]:
        """When each workload was over."""
        return {name: end_s for name, _, end_s, _ in self.by_name()}

    def mean_jct_s(self) -> float:
        return float(np.mean(self.record.workloads.ended_s - self.record.workloads.submitted_s))


def checked_run(
    policy: Policy,
    rows: Sequence[TraceRow],
    fleet: Fleet,
    tenants: Sequence[Tenant] | None = None,
    settings: SimulationSettings = NO_COSTS,
    seed: int = 1,
    failures: Failures | None = None,
    loans: LoanSchedule | None = None,
    tables: Sequence[Table] = (),
    actions: Sequence[ActionAt] = (),
    workloads: Sequence[Workload] = (),
    check_every_events: int = 1,
    table_moves: TableMovesInput | None = None,
) -> CheckedRun:
    """Runs, and raises when the log breaks an invariant, a law is not conserved, or an inventory is not in order.

    Without tenants, every tenant of the rows may use everything. `failures` replaces those of the settings.
    """
    chosen = tuple(tenants) if tenants is not None else unlimited([*rows, *(w.specification for w in workloads)])
    log: list[Record] = []
    simulation = Simulation(
        SimulationInput(
            "test",
            rows,
            fleet,
            chosen,
            loans,
            workloads,
            catalog=Catalog(tables),
            actions=actions,
            table_moves=table_moves,
        ),
        policy,
        settings.model_copy(update={"check_every_events": check_every_events}),
        seed,
        lambda event: log.append(event.as_json()),
        failures,
    )
    record = simulation.run()
    for member in simulation.world.regions.members:
        member.inventory.check()
    assert not record.counts.invariants_broken, [told for told in log if told["event"] == "invariant_broken"]
    check_conservation(record)
    ends = set(record.workloads.end.tolist())
    if not record.broken_off:
        assert ends <= _possible_ends([*rows, *(one.specification for one in workloads)]), ends
    if ends != {WorkloadEnd.REFUSED}:
        report = validate(
            log,
            fleet,
            chosen,
            tables=tables,
            complete=not record.broken_off,
            rule=settings.eviction.rule(policy.eviction),
        )
        assert report.valid, str(report)
    return CheckedRun(record, tuple(log))


def _possible_ends(given: Sequence[TraceRow | WorkloadSpecification]) -> set[WorkloadEnd]:
    """Only what has a time limit may fail."""
    limited = any(one.max_time_s is not None for one in given)
    return {WorkloadEnd.COMPLETED, WorkloadEnd.REFUSED} | ({WorkloadEnd.FAILED} if limited else set())


def unlimited(rows: Sequence[TraceRow | WorkloadSpecification]) -> tuple[Tenant, ...]:
    """The tenants of the rows, each with more quota than there is hardware."""
    return tuple(Tenant(name, 0, Quota.of({ANY_GPU_MODEL: UNLIMITED})) for name in sorted({row.tenant for row in rows}))


def machine(name: str, gpus: int, model: GpuModel = V100, cpus: float | None = None) -> Machine:
    """12 CPUs and 64 GiB for each GPU; a machine without GPUs is told its CPUs and has 4 GiB for each."""
    if gpus == 0:
        return Machine(MachineId(name), NO_GPU_MODEL, 0, cpus or 32.0, 4.0 * (cpus or 32.0))
    return Machine(MachineId(name), model, gpus, cpus or 12.0 * gpus, 64.0 * gpus)


def region(name: str, *racks: Sequence[Machine]) -> Region:
    """One cluster of these racks, named after the region."""
    members = tuple(Rack(RackId(f"{name}-k{number}"), tuple(rack)) for number, rack in enumerate(racks))
    return Region(RegionId(name), (Cluster(ClusterId(f"{name}-c"), members),))


def one_region(machines: int, gpus: int) -> Fleet:
    """Equal machines in one rack."""
    return Fleet((region("r", [machine(f"m{number:03}", gpus) for number in range(machines)]),))


def row(name: str, submit_s: float, duration_s: float, gpus: int = 1, tenant: str = "t") -> TraceRow:
    return TraceRow(WorkloadId(name), TenantId(tenant), submit_s, duration_s, gpus)
