"""Which runs there are, and what each is given: the trace with drawn priorities, the fleet for a load, tables, a window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from data_placement.catalog import Catalog
from domain.fleet import Fleet
from domain.identifiers import RegionId, TenantId
from domain.table import Table
from domain.tenant import LOWEST_PRIORITY
from formats.trace import TraceRow
from global_scheduler.credit import FairShare
from scripts.results.mast.quotas import BACKED, NOT_BACKED, backed_by
from scripts.results.ways import AS_PUBLISHED, BETWEEN_REGIONS, COMPACTION, RESERVATIONS, Way
from simulator.engine.settings import SimulationSettings, settings_from
from simulator.engine.simulation_input import SimulationInput
from simulator.inputs.fleets import FleetSource, fleet_from, gpus_of_fleet, gpus_of_regions
from simulator.inputs.regions import anywhere, region_gpus_for_load
from simulator.inputs.tables import synthesize_tables
from simulator.inputs.tenants import tenants_of_trace
from simulator.published_statistics import MAST_PRIORITIES

SEED = 2024
GPUS_PER_MACHINE = 8
LOADS = (0.7, 1.0, 1.3)
PUBLISHED = "as published"
WAYS: MappingProxyType[str, Way] = MappingProxyType(
    {
        PUBLISHED: Way("mast", AS_PUBLISHED),
        "compaction": Way("mast", AS_PUBLISHED + COMPACTION),
        "compaction between regions": Way("mast", AS_PUBLISHED + COMPACTION + BETWEEN_REGIONS),
        "reservations": Way("mast", AS_PUBLISHED + RESERVATIONS),
        "least work destroyed": Way("mast"),
        "joint windows": Way("ideal", AS_PUBLISHED),
        "all together": Way("mast", COMPACTION + BETWEEN_REGIONS + RESERVATIONS),
        "all but reservations": Way("mast", COMPACTION + BETWEEN_REGIONS),
        "federated": Way("federated", AS_PUBLISHED),
    }
)
"""Each thing that is added to MAST as published, alone; then together."""
DEAR = ("reservations", "joint windows", "all together")
"""Those that take too long where the queue is longer than at the middle load."""
POLICIES = ("mast", "federated", "own_region")
RANDOM = "random_region"
"""So poor an opponent that it is run once."""
IDEAL = "ideal"
LOAD_OF_IDEAL = 1.0
"""Compared there only: on a longer queue its search takes too long."""
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
    """anywhere: all regions may run everything; ways: the same, by what is added to `mast` and by quotas; tables: data
    limits the regions; memory: the busiest days, by what is remembered of refusals."""
    load: float
    policy: str
    memory: str = "kept"
    way: str = PUBLISHED
    """One of WAYS; all policies but `mast` are run as published."""
    quotas: str = NOT_BACKED

    @property
    def settings(self) -> SimulationSettings:
        changes: dict[str, bool] = {"trace_regions_bind": False, **MEMORIES[self.memory]}
        settings = settings_from({"fair_share": FairShare.RATIO_TO_MEAN.value}, WAYS[self.way].settings, self.way)
        return settings.model_copy(update=changes)


def all_cases() -> tuple[Case, ...]:
    """Every run of the document, the long ones first."""
    return (
        Case("anywhere", LOAD_OF_IDEAL, IDEAL),
        *(Case("anywhere", load, policy) for load in sorted(LOADS, reverse=True) for policy in POLICIES),
        Case("anywhere", 1.0, RANDOM),
        *(Case("tables", 1.0, policy) for policy in POLICIES[:2]),
        *ways_cases(),
        *(Case("memory", load, "mast", memory) for load in (1.0, 1.3) for memory in MEMORIES),
    )


def ways_cases() -> tuple[Case, ...]:
    """Each way with both kinds of quotas, at the loads at which demand exceeds supply; without what is run already."""
    return tuple(
        Case("ways", load, WAYS[way].policy, way=way, quotas=quotas)
        for load in (1.3, 1.0)
        for quotas in (NOT_BACKED, BACKED)
        for way in WAYS
        if load == LOAD_OF_IDEAL or way not in DEAR
        if quotas == BACKED or way not in (PUBLISHED, "joint windows", "federated")
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
    if case.quotas == BACKED:
        tenants = backed_by(gpus_of_fleet(fleet), tenants)
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
