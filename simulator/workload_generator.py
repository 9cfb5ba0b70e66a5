"""Workloads that look like the published ones: a trace as long as wanted, from a seed.

Two profiles. `mast` has the sizes, durations and priorities of MAST (§4.2, §5.1): large gangs, a third CPU work.
`hived` has the tenants of HiveD (Table 1): eleven, with quotas, most of them with very many 1-GPU jobs. What is
not published is drawn independently: size and duration, tenant and hour of the day. Real fleets are larger than
ours, so sizes and durations can be scaled; without scaling the published percentiles come out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from domain.fleet import Fleet
from domain.identifiers import ANY_GPU_MODEL, GpuModel, TableId, TenantId, WorkloadId
from domain.resources import Quota
from domain.table import Table
from domain.tenant import LOWEST_PRIORITY, Tenant
from formats.trace import TraceRow
from simulator.published_statistics import (
    HIVED_DURATIONS_S,
    HIVED_GPU_BINS,
    HIVED_LARGE_GPUS,
    HIVED_TENANTS,
    MAST_CPU_DURATIONS_S,
    MAST_GPU_DURATIONS_S,
    MAST_GPU_SHARE,
    MAST_GPUS,
    MAST_MACHINES,
    MAST_PRIORITIES,
    Quantile,
)

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Profile(StrEnum):
    MAST = "mast"
    HIVED = "hived"


DAY_S = 86_400.0
_STANDARD_NORMAL = MappingProxyType(
    {0.10: -1.2815515655446004, 0.50: 0.0, 0.90: 1.2815515655446004, 0.99: 2.3263478740408408}
)
"""Quantiles of the standard normal distribution, for the shares that the papers publish."""
_LARGEST_COMMON_GANG = MappingProxyType({Profile.MAST: 128, Profile.HIVED: 64})
"""GPUs: MAST's 99th percentile, and the largest job of the public Philly trace."""
_FARTHEST = 6.0
"""Standard deviations to which the outermost pieces of a distribution are continued."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What a share of the workloads is made for: they can all run in one place, whatever else is asked of them."""

    weight: float = 1.0
    gpu_model: GpuModel = ANY_GPU_MODEL
    greatest_gpus: int | None = None
    """A larger GPU workload is cut down to this. None: no limit."""
    greatest_cpu_tasks: int | None = None
    tables: tuple[TableId, ...] = ()
    """Tables that can be read there; the first is the most popular (the n-th as often as 1/n)."""


@dataclass(frozen=True, slots=True)
class GeneratorSettings:
    """What to generate. The defaults are the published figures, unscaled."""

    workloads: int
    span_s: float
    """They are submitted between 0 and this, evenly but for `daily_swing`."""
    profile: Profile = Profile.MAST
    tenants: tuple[Tenant, ...] = ()
    """Whose they are. Empty: the profile's own (`tenants_of_profile`). Else a `mast` workload goes to the tenant of
    the nearest priority, and the tenants of `hived`, largest quota first, go round these."""
    size_factor: float = 1.0
    """GPUs (and the tasks of CPU workloads) are multiplied by it and rounded to powers of two, at least 1."""
    duration_factor: float = 1.0
    least_duration_s: float = 1.0
    greatest_duration_s: float = 30 * DAY_S
    offers: tuple[Offer, ...] = (Offer(),)
    """Where they can run; `offers_of_fleet` finds them for a fleet."""
    cpus_per_task: float = 16.0
    memory_gib_per_task: float = 64.0
    table_share: float = 0.5
    """Of the workloads that read a table, where there are any; a quarter of those read two."""
    checkpoint_s: float | None = None
    daily_swing: float = 0.0
    """0: as many at night as by day; 1: none at the quietest hour."""
    peak_s: float = 14 * 3600.0
    """The busiest second of the day."""

    @staticmethod
    def for_fleet(
        fleet: Fleet,
        tenants: Sequence[Tenant],
        workloads: int,
        *,
        tables: Sequence[Table] = (),
        profile: Profile = Profile.MAST,
        span_s: float = DAY_S,
    ) -> GeneratorSettings:
        """Workloads that this fleet can host, for these tenants: the largest common gang is cut to what it can.

        Raises ValueError for a fleet without GPUs.
        """
        offers = offers_of_fleet(fleet, tables)
        greatest = max(offer.greatest_gpus or 1 for offer in offers)
        return GeneratorSettings(
            workloads,
            span_s,
            profile=profile,
            tenants=tuple(tenants),
            size_factor=min(1.0, greatest / _LARGEST_COMMON_GANG[profile]),
            offers=offers,
        )


def generate_workloads(settings: GeneratorSettings, rng: np.random.Generator) -> Iterator[TraceRow]:
    """The rows of a trace, by submission time; the same settings and seed give the same rows."""
    count = settings.workloads
    submit_s = _submission_times(settings, rng)
    shape = _mast_shape(count, rng) if settings.profile is Profile.MAST else _hived_shape(count, rng)
    tenants, priorities = _tenants(settings, shape)
    offers = _choose(rng, [offer.weight for offer in settings.offers], count)
    gpus, tasks = _scaled(settings, shape, offers)
    duration_s = np.clip(
        shape.duration_s * settings.duration_factor, settings.least_duration_s, settings.greatest_duration_s
    )
    tables = _tables(settings, offers, rng)
    for index in range(count):
        with_gpus = gpus[index] > 0
        cpu_tasks = int(tasks[index])
        yield TraceRow(
            workload_id=WorkloadId(f"{settings.profile}-{index:06d}"),
            tenant=tenants[index],
            submit_s=round(float(submit_s[index]), 3),
            duration_s=round(float(duration_s[index]), 3),
            gpus=int(gpus[index]),
            gpu_model=settings.offers[offers[index]].gpu_model if with_gpus else ANY_GPU_MODEL,
            tasks=None if with_gpus else cpu_tasks,
            cpus=None if with_gpus else settings.cpus_per_task * cpu_tasks,
            memory_gib=None if with_gpus else settings.memory_gib_per_task * cpu_tasks,
            priority=priorities[index],
            tables=tables[index],
            checkpoint_s=settings.checkpoint_s,
        )


def tenants_of_profile(profile: Profile, gpus: int) -> tuple[Tenant, ...]:
    """The profile's own tenants on a fleet of so many GPUs.

    HiveD's have their share of the GPUs as quota, all at priority 1. MAST publishes no quotas: there is a tenant
    per priority, whose quota is its share of the workloads, and one for the workloads without a priority.
    """
    if profile is Profile.HIVED:
        return tuple(
            Tenant(TenantId(row.tenant), 1, Quota.of({ANY_GPU_MODEL: round(row.quota_share * gpus)}))
            for row in HIVED_TENANTS
        )
    total = sum(MAST_PRIORITIES.values())
    return tuple(
        Tenant(
            _mast_tenant(priority),
            LOWEST_PRIORITY if priority is None else priority,
            Quota.of({ANY_GPU_MODEL: 0 if priority is None else round(share / total * gpus)}),
        )
        for priority, share in MAST_PRIORITIES.items()
    )


def offers_of_fleet(
    fleet: Fleet,
    tables: Sequence[Table] = (),
    any_weight: float = 0.5,
    greatest_share: float = 0.5,
    cpus_per_task: float = 16.0,
    memory_gib_per_task: float = 64.0,
) -> tuple[Offer, ...]:
    """What a fleet can host: an offer per region and GPU model, and one per region for any model.

    The latter get `any_weight` of the workloads; all are weighted by their GPUs. No gang asks for more than
    `greatest_share` of what its region has (a power of two of GPUs), and it reads those of the tables that are there.
    Raises ValueError for a fleet without GPUs.
    """
    largest = max((m.gpus for region in fleet.regions for m in region.machines()), default=0)
    total = sum(m.gpus for region in fleet.regions for m in region.machines())
    if total == 0:
        raise ValueError("the fleet has no GPUs: nothing can be offered to the workloads of the profiles")
    offers: list[Offer] = []
    for region in fleet.regions:
        by_model: dict[GpuModel, int] = {}
        for machine in region.machines():
            if machine.gpus:
                by_model[machine.gpu_model] = by_model.get(machine.gpu_model, 0) + machine.gpus
        here = sum(by_model.values())
        if not here:
            continue
        # A task of any model is as large as the largest machine of the fleet, if the gang is.
        on_largest = sum(machine.gpus for machine in region.machines() if machine.gpus == largest)
        any_gpus = max(on_largest * greatest_share, *(machine.gpus for machine in region.machines()))
        cpu_tasks = sum(
            int(min(machine.cpus / cpus_per_task, machine.memory_gib / memory_gib_per_task))
            for machine in region.machines()
            if not machine.gpus
        )
        anywhere = Offer(
            weight=any_weight * here / total,
            greatest_gpus=_power_of_two_up_to(any_gpus),
            greatest_cpu_tasks=max(1, int(cpu_tasks * greatest_share)),
            tables=tuple(table.table for table in tables if region.region in table.regions),
        )
        offers.append(anywhere)
        offers += [
            replace(
                anywhere,
                weight=(1 - any_weight) * gpus / total,
                gpu_model=model,
                greatest_gpus=_power_of_two_up_to(gpus * greatest_share),
            )
            for model, gpus in sorted(by_model.items())
        ]
    return tuple(offers)


def offered_gpus(rows: Iterable[TraceRow], span_s: float) -> float:
    """GPUs in use on average over the span, if every workload ran at once and for as long as it wants."""
    return sum(row.gpus * row.duration_s for row in rows) / span_s


def with_load(
    rows: Sequence[TraceRow], gpus: int, span_s: float, load: float, least_duration_s: float = 1.0
) -> list[TraceRow]:
    """The rows with all durations multiplied by one factor, so that they offer `load` times so many GPUs."""
    offered = offered_gpus(rows, span_s)
    factor = load * gpus / offered if offered > 0 else 1.0
    return [replace(row, duration_s=round(max(least_duration_s, row.duration_s * factor), 3)) for row in rows]


@dataclass(frozen=True, slots=True)
class _Shape:
    """What a profile draws, before scaling. `kind` is the priority's place in MAST's list or HiveD's tenant."""

    gpus: Integers
    machines: Floats
    """Of CPU workloads; 0 for the others."""
    duration_s: Floats
    kind: Integers


def _mast_shape(count: int, rng: np.random.Generator) -> _Shape:
    with_gpus = rng.random(count) < MAST_GPU_SHARE
    sizes = np.array(list(MAST_GPUS), dtype=np.int64)
    gpus = np.where(with_gpus, sizes[_choose(rng, list(MAST_GPUS.values()), count)], 0)
    normal = rng.standard_normal(count)
    duration_s = np.where(
        with_gpus, values_at_quantiles(MAST_GPU_DURATIONS_S, normal), values_at_quantiles(MAST_CPU_DURATIONS_S, normal)
    )
    machines = np.where(with_gpus, 0.0, values_at_quantiles(MAST_MACHINES, rng.standard_normal(count)))
    return _Shape(gpus, machines, duration_s, _choose(rng, list(MAST_PRIORITIES.values()), count))


def _hived_shape(count: int, rng: np.random.Generator) -> _Shape:
    cells = np.array([row.jobs for row in HIVED_TENANTS], dtype=np.float64)
    cell = _choose(rng, cells.ravel().tolist(), count)
    tenant, column = np.divmod(cell, len(HIVED_GPU_BINS))
    bins = np.array(HIVED_GPU_BINS, dtype=np.int64)[column]
    large = np.array(list(HIVED_LARGE_GPUS), dtype=np.int64)[_choose(rng, list(HIVED_LARGE_GPUS.values()), count)]
    normal = rng.standard_normal(count)
    duration_s = np.zeros(count)
    for size in HIVED_GPU_BINS:
        duration_s = np.where(bins == size, values_at_quantiles(HIVED_DURATIONS_S[size], normal), duration_s)
    return _Shape(np.where(bins == HIVED_GPU_BINS[-1], large, bins), np.zeros(count), duration_s, tenant)


def values_at_quantiles(quantiles: Sequence[Quantile], normal: Floats) -> Floats:
    """Values with these percentiles, from standard normal ones: log-normal in pieces, the outer ones continued."""
    places = [_STANDARD_NORMAL[quantile.share] for quantile in quantiles]
    logarithms = [float(np.log(quantile.value)) for quantile in quantiles]
    first = (logarithms[1] - logarithms[0]) / (places[1] - places[0])
    last = (logarithms[-1] - logarithms[-2]) / (places[-1] - places[-2])
    before = logarithms[0] - first * (places[0] + _FARTHEST)
    after = logarithms[-1] + last * (_FARTHEST - places[-1])
    found: Floats = np.exp(np.interp(normal, [-_FARTHEST, *places, _FARTHEST], [before, *logarithms, after]))
    return found


def _submission_times(settings: GeneratorSettings, rng: np.random.Generator) -> Floats:
    """Sorted. Of a Poisson process, given its number; a swing keeps a time with the probability of its hour."""
    kept: list[Floats] = []
    missing = settings.workloads
    while missing > 0:
        times = rng.random(2 * missing + 16) * settings.span_s
        rate = 1 + settings.daily_swing * np.cos((times - settings.peak_s) * (2 * np.pi / DAY_S))
        chosen = times[rng.random(len(times)) * (1 + settings.daily_swing) < rate][:missing]
        kept.append(chosen)
        missing -= len(chosen)
    return np.sort(np.concatenate(kept)) if kept else np.zeros(0)


def _tenants(settings: GeneratorSettings, shape: _Shape) -> tuple[list[TenantId], list[int | None]]:
    """Tenant and priority of each workload."""
    if settings.profile is Profile.MAST:
        priorities = list(MAST_PRIORITIES)
        names = [_mast_tenant(priority) for priority in priorities]
        if settings.tenants:
            names = [_nearest_tenant(settings.tenants, priority) for priority in priorities]
        return [names[kind] for kind in shape.kind], [priorities[kind] for kind in shape.kind]
    by_quota = sorted(range(len(HIVED_TENANTS)), key=lambda row: (-HIVED_TENANTS[row].quota_share, row))
    hived_names = [TenantId(row.tenant) for row in HIVED_TENANTS]
    if settings.tenants:
        for place, row in enumerate(by_quota):
            hived_names[row] = settings.tenants[place % len(settings.tenants)].tenant
    return [hived_names[kind] for kind in shape.kind], [None] * len(shape.kind)


def _nearest_tenant(tenants: Sequence[Tenant], priority: int | None) -> TenantId:
    wanted = LOWEST_PRIORITY if priority is None else priority
    return min(tenants, key=lambda tenant: (abs(tenant.priority - wanted), tenant.priority, tenant.tenant)).tenant


def _mast_tenant(priority: int | None) -> TenantId:
    return TenantId("no-priority" if priority is None else f"priority-{priority}")


def _scaled(settings: GeneratorSettings, shape: _Shape, offers: Integers) -> tuple[Integers, Integers]:
    """GPUs of the GPU workloads (0 for the others) and tasks of the CPU workloads."""
    unlimited = int(np.iinfo(np.int64).max)
    greatest_gpus = [unlimited if o.greatest_gpus is None else o.greatest_gpus for o in settings.offers]
    greatest_tasks = [unlimited if o.greatest_cpu_tasks is None else o.greatest_cpu_tasks for o in settings.offers]
    wanted = np.maximum(shape.gpus * settings.size_factor, 1.0)
    rounded = np.exp2(np.rint(np.log2(wanted))).astype(np.int64)
    gpus = np.where(shape.gpus > 0, np.minimum(rounded, np.array(greatest_gpus, dtype=np.int64)[offers]), 0)
    tasks = np.maximum(np.rint(shape.machines * settings.size_factor), 1.0).astype(np.int64)
    return gpus, np.minimum(tasks, np.array(greatest_tasks, dtype=np.int64)[offers])


def _tables(settings: GeneratorSettings, offers: Integers, rng: np.random.Generator) -> list[tuple[TableId, ...]]:
    count = settings.workloads
    number = np.where(rng.random(count) < settings.table_share, 1 + (rng.random(count) < 0.25), 0)
    picks = rng.random((count, 2))
    popularity = [np.cumsum([1 / rank for rank in range(1, len(o.tables) + 1)]) for o in settings.offers]
    chosen: list[tuple[TableId, ...]] = []
    for index in range(count):
        tables, edges = settings.offers[offers[index]].tables, popularity[offers[index]]
        places = np.searchsorted(edges, picks[index, : number[index]] * edges[-1], side="right") if tables else ()
        chosen.append(tuple(dict.fromkeys(tables[place] for place in places)))
    return chosen


def _choose(rng: np.random.Generator, weights: Sequence[float], count: int) -> Integers:
    """Indices drawn in proportion to the weights."""
    edges = np.cumsum(np.array(weights, dtype=np.float64))
    places: Integers = np.searchsorted(edges, rng.random(count) * edges[-1], side="right").astype(np.int64)
    return places


def _power_of_two_up_to(limit: float) -> int:
    return 1 << max(0, int(limit).bit_length() - 1)
