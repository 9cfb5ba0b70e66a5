"""Which runs there are, and what each is given: the trace with drawn priorities, the fleet for a load, tables, a window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from data_placement.catalog import Catalog
from domain.eviction import VictimChoice
from domain.fleet import Fleet
from domain.identifiers import RegionId, TenantId
from domain.table import Table
from domain.tenant import LOWEST_PRIORITY
from formats.scheduler_file import EvictionSection
from formats.trace import TraceRow
from global_scheduler.credit import FairShare
from simulator.engine.settings import SimulationSettings
from simulator.engine.simulation_input import SimulationInput
from simulator.inputs.fleets import FleetSource, fleet_from, gpus_of_fleet, gpus_of_regions
from simulator.inputs.regions import anywhere, region_gpus_for_load
from simulator.inputs.tables import synthesize_tables
from simulator.inputs.tenants import tenants_of_trace
from simulator.published_statistics import MAST_PRIORITIES

SEED = 2024
GPUS_PER_MACHINE = 8
LOADS = (0.7, 1.0, 1.3)
AS_PUBLISHED = EvictionSection(victims=VictimChoice.PUBLISHED)
"""Victims as the paper chooses them (§4.3)."""
POLICIES = ("mast", "federated", "random_region", "own_region")
IDEAL = "ideal"
"""Compared at the middle load only: on a longer queue its search takes too long."""
WINDOW_DAYS = 5
DAY_S = 86_400.0
MEMORIES: MappingProxyType[str, MappingProxyType[str, bool]] = MappingProxyType(
    {
        "kept": MappingProxyType({}),
        "per_pass": MappingProxyType({"negative_cache_outlives_scans": False}),
        "none": MappingProxyType({"negative_cache": False}),
    }
)
"""What is remembered of refusals: as long as they hold, within a scan pass (the paper's), nothing."""


@dataclass(frozen=True, slots=True, order=True)
class Case:
    """One run."""

    experiment: str
    """anywhere: all regions may run everything; tables: data limits them; memory: the busiest days, by what is
    remembered of refusals."""
    load: float
    policy: str
    memory: str = "kept"

    @property
    def settings(self) -> SimulationSettings:
        changes: dict[str, bool] = {"trace_regions_bind": False, **MEMORIES[self.memory]}
        settings = SimulationSettings(eviction=AS_PUBLISHED, fair_share=FairShare.RATIO_TO_MEAN)
        return settings.model_copy(update=changes)


def all_cases() -> tuple[Case, ...]:
    """Every run of the document, the long ones first."""
    return (
        Case("anywhere", 1.0, IDEAL),
        *(Case("anywhere", load, policy) for load in sorted(LOADS, reverse=True) for policy in POLICIES),
        *(Case("tables", 1.0, policy) for policy in POLICIES[:3]),
        *(Case("memory", load, "mast", memory) for load in (1.0, 1.3) for memory in MEMORIES),
    )


def with_priorities(rows: Sequence[TraceRow]) -> tuple[TraceRow, ...]:
    """The rows, each with a priority drawn from MAST's shares; the tenant is (cluster, priority)."""
    priorities = [LOWEST_PRIORITY if priority is None else priority for priority in MAST_PRIORITIES]
    shares = np.array(list(MAST_PRIORITIES.values()))
    drawn = np.random.default_rng(SEED).choice(len(priorities), size=len(rows), p=shares / shares.sum())
    return tuple(
        replace(row, priority=priorities[place], tenant=tenant_called(row.region, priorities[place]))
        for row, place in zip(rows, drawn.tolist(), strict=True)
    )


def tenant_called(region: RegionId | None, priority: int) -> TenantId:
    """The tenant of all workloads of a cluster at a priority."""
    return TenantId(f"{region or 'nowhere'}-p{priority}")


def priority_of_tenant(name: str) -> int:
    """What `tenant_called` put into the name."""
    return int(name.rpartition("-p")[2])


def fleet_for(rows: Sequence[TraceRow], load: float) -> Fleet:
    """Each cluster of the trace as a region, in whole machines, so large that its own workloads load it so much."""
    return fleet_from(FleetSource(region_gpus=region_gpus_for_load(rows, load, GPUS_PER_MACHINE)))


def busiest_days(rows: Sequence[TraceRow], days: int = WINDOW_DAYS) -> tuple[float, float]:
    """From when to when the most GPU-seconds were submitted in so many days from midnight to midnight; the first such."""
    amounts = np.zeros(int(max(row.submit_s for row in rows) // DAY_S) + 1)
    for row in rows:
        amounts[int(row.submit_s // DAY_S)] += row.gpus * row.duration_s
    sums = np.convolve(amounts, np.ones(min(days, len(amounts))), mode="valid")
    first = int(sums.argmax())
    return first * DAY_S, (first + days) * DAY_S


def given_for(rows: Sequence[TraceRow], case: Case) -> SimulationInput:
    """What the run is given. `rows` are those of `with_priorities`, all of them: fleet and quotas do not depend on the window."""
    fleet = fleet_for(rows, case.load)
    tenants = tenants_of_trace(rows, gpus_of_fleet(fleet))
    chosen: Sequence[TraceRow] = rows
    tables: Sequence[Table] = ()
    if case.experiment == "memory":
        from_s, until_s = busiest_days(rows)
        chosen = [row for row in rows if from_s <= row.submit_s < until_s]
    if case.experiment == "tables":
        chosen, tables = with_tables(rows, fleet)
    return SimulationInput("itp", chosen, fleet, tenants, catalog=Catalog(tables))


def with_tables(rows: Sequence[TraceRow], fleet: Fleet) -> tuple[tuple[TraceRow, ...], tuple[Table, ...]]:
    """Rows with tables to read, and the tables; without those rows that fit nowhere where their data is."""
    sizes = gpus_of_regions(fleet)
    reading, tables = synthesize_tables(anywhere(rows), sizes, np.random.default_rng(SEED))
    gpus = dict(sizes)
    held = {table.table: {table.home, *table.replicas} for table in tables}
    fitting = tuple(
        row
        for row in reading
        if any(
            row.gpus <= gpus[region] and all(region in held[table] for table in row.tables) for region in sorted(gpus)
        )
    )
    return fitting, tables


def too_large_at_home(rows: Sequence[TraceRow], fleet: Fleet) -> int:
    """Workloads that are larger than their own region."""
    gpus = dict(gpus_of_regions(fleet))
    return sum(row.gpus > gpus[row.region] for row in rows if row.region is not None)
