"""A fleet that is filled, and eight hours in which one region is hot: what MAST §5.6 compares its scheduler in, from a seed.

Published: high-priority workloads "often need to preempt low-priority ones to guarantee SLOs", an 8-hour trace, gangs of 16, 64
and 128 GPUs at P50, P90 and P99 and their durations (§5.1), the shares of the priorities (§4.2), regions of a workload's
data (§5.3), uneven hardware (§3, Figure 2). The rest is ours:

- **Teams** have a priority, a GPU model and tables of one home with copies elsewhere: all three belong together, as a
  team's pipelines do. Of the teams of priorities 0 and 1 more than half have their home in the hot region.
- **The hot region.** From the beginning of the window on its teams submit more often than before; the others go on.
- **Quotas are backed by capacity.** What a region has of a model is divided among the teams whose data is there, so
  that all of them can have their quotas at once; what a team submits is in proportion to its quota, and no gang is larger than it.
- **Experiments** at the lowest priority, of few GPUs, beyond any quota, fill what is left: more of them wait than there is room for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from data_placement.catalog import Catalog
from domain.fleet import Cluster, Fleet, Machine, Rack, Region
from domain.identifiers import (
    ANY_GPU_MODEL,
    ClusterId,
    GpuModel,
    MachineId,
    RackId,
    RegionId,
    TableId,
    TenantId,
    WorkloadId,
)
from domain.resources import Quota
from domain.table import Table
from domain.tenant import LOWEST_PRIORITY, Tenant
from formats.trace import TraceRow
from simulator.engine.simulation_input import SimulationInput
from simulator.inputs.fleets import CPUS_PER_GPU, MEMORY_GIB_PER_GPU
from simulator.inputs.tables import COPIES_SHARES
from simulator.published_statistics import HOUR_S, MAST_GPU_DURATIONS_S, MAST_GPUS, MAST_PRIORITIES
from simulator.workload_generator import values_at_quantiles

Floats = NDArray[np.float64]

HOT = RegionId("north")
GPUS_PER_MACHINE = 8
MACHINES_PER_RACK = 16
Machines = tuple[tuple[RegionId, tuple[tuple[GpuModel, int], ...]], ...]
MACHINES: Machines = tuple(
    (RegionId(region), tuple((GpuModel(model), count) for model, count in models))
    for region, models in (
        ("north", (("A100", 120), ("H100", 40), ("V100", 160))),
        ("south", (("A100", 40), ("V100", 200))),
        ("east", (("A100", 160), ("V100", 60))),
        ("west", (("A100", 80), ("H100", 120))),
        ("coast", (("H100", 60), ("V100", 120))),
    )
)
"""Of 8 GPUs each: 9,280 GPUs, no two regions with the same models in the same shares."""
TEAMS = 24
HIGH_PRIORITIES = (0, 1)
HOT_SHARE = 0.6
"""Of the teams of high priority that could have their home in the hot region, how many have."""
GREATEST_GANG_GPUS = 256
"""Less where a team's quota is less."""
EXPERIMENT_GPUS = ((1, 0.40), (2, 0.20), (4, 0.20), (8, 0.20))
EXPERIMENTERS = 8
LEAST_S, GREATEST_S = 120.0, 24 * HOUR_S


@dataclass(frozen=True, slots=True)
class HotRegionSettings:
    """How much is asked for, and when."""

    before_s: float = 4 * HOUR_S
    """Until the window begins: the fleet fills."""
    window_s: float = 8 * HOUR_S
    team_load: float = 0.45
    """GPUs that a team asks for on average before the window, over its quota."""
    hot_factor: float = 2.0
    """How many times as often teams of the hot region submit in the window."""
    one_machine_in: int = 1
    """A smaller fleet of the same kind has one machine in so many."""
    experiment_load: float = 1.2
    """GPUs that experiments ask for on average, over those of the fleet; as many are there at the beginning."""


@dataclass(frozen=True, slots=True)
class _Team:
    tenant: TenantId
    priority: int
    model: GpuModel
    regions: tuple[RegionId, ...]
    """Where its tables are; the first is their home."""
    quota_gpus: int


def hot_region_input(settings: HotRegionSettings, seed: int) -> SimulationInput:
    """Fleet, teams, tables and workloads; the same settings and seed give the same ones."""
    rng = np.random.default_rng(seed)
    machines = _machines(settings)
    fleet = hot_region_fleet(machines)
    teams = _teams(machines, rng)
    rows = _rows_of_teams(settings, teams, rng) + _experiments(settings, machines, rng)
    rows.sort(key=lambda row: (row.submit_s, row.workload_id))
    tables = [Table(_table(team), 10**12, team.regions[0], team.regions[1:]) for team in teams]
    return SimulationInput("hot region", tuple(rows), fleet, _tenants(teams), catalog=Catalog(tables))


def hot_region_fleet(machines: Machines = MACHINES) -> Fleet:
    """Five regions, each with a cluster per GPU model."""
    return Fleet(
        tuple(
            Region(region, tuple(_cluster(region, model, count) for model, count in models))
            for region, models in machines
        )
    )


def _machines(settings: HotRegionSettings) -> Machines:
    return tuple(
        (region, tuple((model, count // settings.one_machine_in) for model, count in models))
        for region, models in MACHINES
    )


def _cluster(region: RegionId, model: GpuModel, machines: int) -> Cluster:
    name = f"{region}-{model.lower()}"
    racks = []
    for first in range(0, machines, MACHINES_PER_RACK):
        members = tuple(
            Machine(
                MachineId(f"{name}-{number:03}"),
                model,
                GPUS_PER_MACHINE,
                GPUS_PER_MACHINE * CPUS_PER_GPU,
                GPUS_PER_MACHINE * MEMORY_GIB_PER_GPU,
            )
            for number in range(first, min(first + MACHINES_PER_RACK, machines))
        )
        racks.append(Rack(RackId(f"{name}-rack{first // MACHINES_PER_RACK:02}"), members))
    return Cluster(ClusterId(name), tuple(racks))


def _teams(fleet: Machines, rng: np.random.Generator) -> list[_Team]:
    priorities = [priority for priority in MAST_PRIORITIES if priority is not None]
    shares = np.array([MAST_PRIORITIES[priority] for priority in priorities])
    models = sorted({model for _, held in MACHINES for model, _ in held})
    of_model = np.array([sum(dict(held).get(model, 0) for _, held in MACHINES) for model in models], np.float64)
    drawn: list[tuple[int, GpuModel, tuple[RegionId, ...], float]] = []
    for number in range(TEAMS):
        # The first of all is of priority 0, the next of priority 1: each seed has teams of high priority.
        place = int(rng.choice(len(priorities), p=shares / shares.sum()))
        priority = HIGH_PRIORITIES[number] if number < len(HIGH_PRIORITIES) else priorities[place]
        model = models[int(rng.choice(len(models), p=of_model / of_model.sum()))]
        drawn.append((priority, model, _regions_of(priority, model, rng), float(rng.lognormal(0.0, 0.5))))
    quotas = [0] * TEAMS
    for region, held in fleet:
        for model, machines in held:
            here = [number for number, team in enumerate(drawn) if team[1] == model and region in team[2]]
            weights = sum(drawn[number][3] for number in here)
            for number in here:
                quotas[number] += int(machines * GPUS_PER_MACHINE * drawn[number][3] / weights)
    return [
        _Team(TenantId(f"team{number:02}-p{priority}"), priority, model, regions, quotas[number])
        for number, (priority, model, regions, _) in enumerate(drawn)
    ]


def _regions_of(priority: int, model: GpuModel, rng: np.random.Generator) -> tuple[RegionId, ...]:
    """Home and copies of a team's tables, all where its GPU model is."""
    machines = {region: dict(held)[model] for region, held in MACHINES if model in dict(held)}
    names = sorted(machines)
    weights = np.array([machines[name] for name in names], np.float64)
    home = names[int(rng.choice(len(names), p=weights / weights.sum()))]
    if priority in HIGH_PRIORITIES and rng.random() < HOT_SHARE:
        home = HOT
    copies = int(rng.choice([count for count, _ in COPIES_SHARES], p=[share for _, share in COPIES_SHARES]))
    others = [name for name in names if name != home]
    return (home, *(others[place] for place in rng.permutation(len(others))[: copies - 1].tolist()))


def _rows_of_teams(settings: HotRegionSettings, teams: Sequence[_Team], rng: np.random.Generator) -> list[TraceRow]:
    until_s = settings.before_s + settings.window_s
    rows = []
    for team in teams:
        sizes = [size for size in MAST_GPUS if size <= min(GREATEST_GANG_GPUS, team.quota_gpus)]
        if not sizes:
            continue
        shares = np.array([MAST_GPUS[size] for size in sizes])
        shares /= shares.sum()
        per_s = settings.team_load * team.quota_gpus / (float((shares * sizes).sum()) * _mean_duration_s())
        hot = settings.hot_factor if team.regions[0] == HOT else 1.0
        times = [
            *_times(rng, 0.0, settings.before_s, per_s),
            *_times(rng, settings.before_s, until_s, per_s * hot),
        ]
        drawn = rng.choice(len(sizes), size=len(times), p=shares)
        durations = _durations_s(rng, len(times))
        rows += [
            TraceRow(
                WorkloadId(f"{team.tenant}-{place:04}"),
                team.tenant,
                submit_s,
                float(durations[place]),
                sizes[int(drawn[place])],
                gpu_model=team.model,
                priority=team.priority,
                tables=(_table(team),),
            )
            for place, submit_s in enumerate(times)
        ]
    return rows


def _tenants(teams: Sequence[_Team]) -> tuple[Tenant, ...]:
    none = Quota.of({ANY_GPU_MODEL: 0})
    tenants = [
        Tenant(TenantId(f"experiments{number}-p{LOWEST_PRIORITY}"), LOWEST_PRIORITY, none)
        for number in range(EXPERIMENTERS)
    ]
    tenants += [Tenant(team.tenant, team.priority, Quota.of({team.model: team.quota_gpus})) for team in teams]
    return tuple(sorted(tenants, key=lambda tenant: tenant.tenant))


def _experiments(settings: HotRegionSettings, fleet: Machines, rng: np.random.Generator) -> list[TraceRow]:
    gpus = GPUS_PER_MACHINE * sum(machines for _, held in fleet for _, machines in held)
    shares = np.array([share for _, share in EXPERIMENT_GPUS])
    sizes = np.array([size for size, _ in EXPERIMENT_GPUS])
    mean_gpus = float((shares * sizes).sum())
    wanted = settings.experiment_load * gpus
    at_once = [0.0] * int(wanted / mean_gpus)
    per_s = wanted / (mean_gpus * _mean_duration_s())
    times = [*at_once, *_times(rng, 0.0, settings.before_s + settings.window_s, per_s)]
    durations = _durations_s(rng, len(times))
    # What is there at the beginning is met in the middle: the longer it is, the likelier.
    durations[: len(at_once)] = _durations_met_s(rng, len(at_once))
    drawn = rng.choice(len(sizes), size=len(times), p=shares)
    return [
        TraceRow(
            WorkloadId(f"experiment-{place:05}"),
            TenantId(f"experiments{place % EXPERIMENTERS}-p{LOWEST_PRIORITY}"),
            submit_s,
            float(durations[place]),
            int(sizes[drawn[place]]),
            priority=LOWEST_PRIORITY,
        )
        for place, submit_s in enumerate(times)
    ]


def _table(team: _Team) -> TableId:
    return TableId(f"{team.tenant}-data")


def _times(rng: np.random.Generator, from_s: float, until_s: float, per_s: float) -> list[float]:
    """Of a Poisson process, ascending, in whole milliseconds."""
    count = int(rng.poisson(per_s * (until_s - from_s)))
    return [round(float(time_s), 3) for time_s in np.sort(rng.uniform(from_s, until_s, count))]


def _durations_s(rng: np.random.Generator, count: int) -> Floats:
    drawn = values_at_quantiles(MAST_GPU_DURATIONS_S, rng.standard_normal(count))
    return np.asarray(np.round(np.clip(drawn, LEAST_S, GREATEST_S), 3), np.float64)


def _durations_met_s(rng: np.random.Generator, count: int) -> Floats:
    """What is left of durations that an instant meets: drawn in proportion to their length, over at an even point."""
    among = _durations_s(rng, 20 * max(count, 1))
    met = rng.choice(among, size=count, p=among / among.sum())
    return np.asarray(np.round(np.maximum(met * rng.random(count), LEAST_S), 3), np.float64)


def _mean_duration_s() -> float:
    """Of the durations as they are drawn."""
    normal = np.array([NormalDist().inv_cdf((place + 0.5) / 2_000) for place in range(2_000)])
    return float(np.clip(values_at_quantiles(MAST_GPU_DURATIONS_S, normal), LEAST_S, GREATEST_S).mean())
