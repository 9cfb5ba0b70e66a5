"""Small fleets, traces, tenants and settings to draw from."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import strategies as st

from domain.fleet import Cluster, Fleet, Rack
from domain.identifiers import ANY_GPU_MODEL, ClusterId, GpuModel, RackId, RegionId, TableId, TenantId, WorkloadId
from domain.resources import Quota
from domain.table import Table
from domain.tenant import Tenant
from formats.trace import TraceRow
from simulator.engine.settings import CostSettings, FailureSettings, SimulationSettings
from tests.simulator.engine.checked_run import V100, machine, region, row

K80 = GpuModel("K80")
TENANTS = ("ads", "bio", "cars")
TABLES = ("clicks", "images")
TIMES = st.integers(0, 60).map(lambda tens: 10.0 * tens) | st.floats(0.0, 600.0, allow_nan=False)
WORK = st.integers(1, 60).map(lambda tens: 10.0 * tens) | st.floats(0.5, 4000.0, allow_nan=False)
SOME_COST = st.sampled_from((0.0, 5.0, 30.0, 150.0))


@dataclass(frozen=True, slots=True)
class SmallWorld:
    """Everything that a run needs but the policy."""

    rows: tuple[TraceRow, ...]
    fleet: Fleet
    tenants: tuple[Tenant, ...]
    settings: SimulationSettings
    tables: tuple[Table, ...] = ()


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    """One to three regions of one or two racks of GPU machines, some with machines without GPUs or a second cluster."""
    regions = []
    for number in range(draw(st.integers(1, 3))):
        racks = [
            [
                machine(f"r{number}k{rack}m{place}", gpus, draw(st.sampled_from((V100, V100, K80))))
                for place, gpus in enumerate(draw(st.lists(st.sampled_from((1, 2, 4, 8)), min_size=1, max_size=3)))
            ]
            for rack in range(draw(st.integers(1, 2)))
        ]
        if draw(st.booleans()):
            racks[-1].append(machine(f"r{number}cpu", 0, cpus=64.0))
        regions.append(region(f"r{number}", *racks))
        if draw(st.integers(0, 3)) == 0:
            more = Rack(RackId(f"r{number}d"), (machine(f"r{number}d0", 8), machine(f"r{number}d1", 4, K80)))
            regions[-1] = replace(
                regions[-1], clusters=(*regions[-1].clusters, Cluster(ClusterId(f"r{number}-d"), (more,)))
            )
    return Fleet(tuple(regions))


@st.composite
def tables_of(draw: st.DrawFn, fleet: Fleet) -> tuple[Table, ...]:
    """Each somewhere in the fleet, with or without a replica."""
    homes = st.sampled_from([region.region for region in fleet.regions])
    return tuple(Table(TableId(name), 1, draw(homes), tuple(draw(st.lists(homes, max_size=1)))) for name in TABLES)


@st.composite
def trace_rows(draw: st.DrawFn, fleet: Fleet, most: int = 14) -> tuple[TraceRow, ...]:
    """Workloads of all sorts; some fit nowhere."""
    names = [region.region for region in fleet.regions]
    rows = []
    for number in range(draw(st.integers(1, most))):
        gpus = draw(st.sampled_from((0, 1, 1, 2, 3, 4, 6, 8, 12)))
        tasks = draw(st.sampled_from((None, None, None, gpus))) or None
        elastic = tasks is not None and draw(st.booleans())
        rows.append(
            TraceRow(
                workload_id=WorkloadId(f"w{number:02}"),
                tenant=TenantId(draw(st.sampled_from(TENANTS))),
                submit_s=draw(TIMES),
                duration_s=draw(WORK),
                gpus=gpus,
                tasks=tasks,
                min_tasks=max(1, (tasks or 1) // 2) if elastic else None,
                max_tasks=2 * (tasks or 1) if elastic else None,
                tables=(TableId(draw(st.sampled_from(TABLES))),) if draw(st.integers(0, 5)) == 0 else (),
                gpu_model=draw(st.sampled_from((ANY_GPU_MODEL, ANY_GPU_MODEL, V100, K80))),
                cpus=draw(st.sampled_from((4.0, 16.0))) if gpus == 0 else None,
                memory_gib=8.0 if gpus == 0 else None,
                checkpoint_s=draw(st.sampled_from((None, 0.0, 60.0))),
                region=RegionId(draw(st.sampled_from(names))) if draw(st.integers(0, 4)) == 0 else None,
            )
        )
    return tuple(rows)


@st.composite
def tenants(draw: st.DrawFn) -> tuple[Tenant, ...]:
    return tuple(
        Tenant(
            TenantId(name),
            draw(st.integers(0, 6)),
            Quota.of({ANY_GPU_MODEL: draw(st.sampled_from((0, 2, 8, 100)))}, draw(st.sampled_from((None, 8.0)))),
            draw(st.sampled_from((1.0, 2.5))),
        )
        for name in TENANTS
    )


@st.composite
def settings_of_runs(draw: st.DrawFn, *, failing: bool | None = None) -> SimulationSettings:
    """Costs, delays and failures on and off. Mean times to failure are long against the work, so that runs end."""
    fails = draw(st.booleans()) if failing is None else failing
    return SimulationSettings(
        costs=CostSettings(
            container_start_s=draw(SOME_COST),
            checkpoint_save_s=draw(SOME_COST),
            restore_s=draw(SOME_COST),
            checkpoint_interval_s=draw(st.sampled_from((0.0, 100.0, 1800.0))),
        ),
        failures=FailureSettings(
            machine_mtbf_s=draw(st.sampled_from((0.0, 20_000.0))) if fails else 0.0,
            machine_mttr_s=600.0,
            rack_mtbf_s=draw(st.sampled_from((0.0, 40_000.0))) if fails else 0.0,
            rack_mttr_s=300.0,
            power_domain_mtbf_s=draw(st.sampled_from((0.0, 60_000.0))) if fails else 0.0,
            power_domain_mttr_s=300.0,
            racks_per_power_domain=2,
        ),
        scan_period_s=draw(st.sampled_from((0.0, 7.0, 60.0))),
        auction_latency_s=draw(st.sampled_from((0.0, 0.0, 3.0, 90.0))),
    )


@st.composite
def small_worlds(draw: st.DrawFn, *, failing: bool | None = None, most: int = 14) -> SmallWorld:
    fleet = draw(fleets())
    return SmallWorld(
        draw(trace_rows(fleet, most)),
        fleet,
        draw(tenants()),
        draw(settings_of_runs(failing=failing)),
        draw(tables_of(fleet)),
    )


@st.composite
def crowded_worlds(draw: st.DrawFn) -> SmallWorld:
    """One or two machines of four GPUs, three tenants of different priorities: everybody is in everybody's way."""
    fleet = Fleet((region("r0", [machine(f"m{number}", 4) for number in range(draw(st.integers(1, 2)))]),))
    rows = tuple(
        row(f"w{number:02}", draw(TIMES), draw(WORK), draw(st.sampled_from((1, 2, 4))), draw(st.sampled_from(TENANTS)))
        for number in range(draw(st.integers(3, 12)))
    )
    ladder = tuple(
        Tenant(TenantId(name), priority, Quota.of({ANY_GPU_MODEL: draw(st.sampled_from((2, 4, 8)))}))
        for priority, name in enumerate(TENANTS)
    )
    return SmallWorld(rows, fleet, ladder, draw(settings_of_runs()))
