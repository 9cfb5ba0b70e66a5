"""What a run came to: the figures of `topmast simulate`, `compare` and `report` (docs/results-format.md)."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan

import numpy as np

from domain.events import JsonValue
from domain.tenant import LOWEST_PRIORITY
from simulator.results.capacity import held_curve, overloaded_gpu_seconds, reserved_levels, supply_curve
from simulator.results.distribution import Distribution, distribution_of, number_or_null, rate_or_null
from simulator.results.group_figures import GroupFigures, RunRows, figures_by_group, gpu_classes
from simulator.results.holdings import MachineLevels, gpu_seconds_of_attempts, holdings_of
from simulator.results.level_figures import LevelFigures, figures_by_level
from simulator.results.loan_figures import LoanFigures, loan_figures_of
from simulator.results.run_record import NO_ROW, AttemptEnd, Flags, Integers, RunRecord, WorkloadEnd
from simulator.results.service_levels import DEFAULT_LIMITS_S, decided_waits
from simulator.results.table_figures import TableFigures, table_figures_of
from simulator.results.waits import queueing_of_workloads, waits_of
from simulator.results.work import work_of_attempts


@dataclass(frozen=True, slots=True)
class RunCost:
    """What the run itself took, as its caller measured it."""

    wall_s: float
    peak_rss_mib: float


@dataclass(frozen=True, slots=True)
class RunFigures:
    """All figures of a run; see docs/results-format.md for each."""

    policy: str
    trace: str
    seed: int
    broken_off: bool
    workloads: int
    attempts: int
    gpus: int
    completed: int
    unfinished: int
    failed: int
    cancelled: int
    refused: int
    jct_s: Distribution
    queueing_s: Distribution
    start_latency_s: Distribution
    makespan_s: float
    gpu_allocation_rate: float | None
    gpu_allocation_rate_when_overloaded: float | None
    overloaded_s: float
    gpu_utilisation: float | None
    preemptions: int
    preempted_gpus: int
    preempted_gpu_s: float
    lost_work_gpu_s: float
    evictions: dict[str, int]
    slo_limits_s: tuple[float, ...]
    slo_violation_rate: dict[str, float | None]
    negative_cache_hit_rate: float | None
    levels: dict[str, LevelFigures] | None
    """By the level at which attempts were dispatched; None where levels are too many to tell anything."""
    demotions: int
    """How often an attempt came to a worse level of its priority."""
    promotions: int
    """How often a workload that waited for too long was put back at the best level."""
    guaranteed: GroupFigures | None
    """Workloads all of whose attempts were guaranteed, and these attempts; None where there are none."""
    opportunistic: GroupFigures | None
    """Workloads that had an opportunistic attempt, and the opportunistic attempts."""
    loans: LoanFigures | None
    """None in a run without inference clusters."""
    tables: TableFigures | None
    """None in a run in which nothing reads tables."""
    by_tenant: dict[str, GroupFigures]
    by_priority: dict[str, GroupFigures]
    by_region: dict[str, GroupFigures]
    by_gpus: dict[str, GroupFigures]
    gpu_allocation_rate_by_region: dict[str, float | None]
    events: int | None
    scan_passes: int | None
    plans: int | None
    wall_s: float | None
    peak_rss_mib: float | None

    @property
    def events_per_s(self) -> float | None:
        """Of the event queue, in real time; None when it was not measured."""
        if self.events is None or not self.wall_s:
            return None
        return self.events / self.wall_s

    def as_json(self) -> dict[str, JsonValue]:
        """The object of docs/results-format.md."""
        regions = {name: figures.as_json() for name, figures in self.by_region.items()}
        for name, figures in regions.items():
            figures["gpu_allocation_rate"] = self.gpu_allocation_rate_by_region[name]
        return {
            "policy": self.policy,
            "trace": self.trace,
            "seed": self.seed,
            "broken_off": self.broken_off,
            "workloads": self.workloads,
            "attempts": self.attempts,
            "gpus": self.gpus,
            "completed": self.completed,
            "unfinished": self.unfinished,
            "failed": self.failed,
            "cancelled": self.cancelled,
            "refused": self.refused,
            "jct_s": self.jct_s.as_json(),
            "queueing_s": self.queueing_s.as_json(),
            "start_latency_s": self.start_latency_s.as_json(),
            "makespan_s": number_or_null(self.makespan_s),
            "gpu_allocation_rate": self.gpu_allocation_rate,
            "gpu_allocation_rate_when_overloaded": self.gpu_allocation_rate_when_overloaded,
            "overloaded_s": self.overloaded_s,
            "gpu_utilisation": self.gpu_utilisation,
            "preemptions": self.preemptions,
            "preempted_gpus": self.preempted_gpus,
            "preempted_gpu_s": self.preempted_gpu_s,
            "lost_work_gpu_s": self.lost_work_gpu_s,
            "evictions": {**self.evictions},
            "slo_limits_s": {str(priority): limit_s for priority, limit_s in enumerate(self.slo_limits_s)},
            "slo_violation_rate": {**self.slo_violation_rate},
            "negative_cache_hit_rate": self.negative_cache_hit_rate,
            "levels": None
            if self.levels is None
            else {level: figures.as_json() for level, figures in self.levels.items()},
            "demotions": self.demotions,
            "promotions": self.promotions,
            "guaranteed": self.guaranteed.as_json() if self.guaranteed is not None else None,
            "opportunistic": self.opportunistic.as_json() if self.opportunistic is not None else None,
            "loans": self.loans.as_json() if self.loans is not None else None,
            "tables": self.tables.as_json() if self.tables is not None else None,
            "by_tenant": {name: figures.as_json() for name, figures in self.by_tenant.items()},
            "by_priority": {name: figures.as_json() for name, figures in self.by_priority.items()},
            "by_region": {**regions},
            "by_gpus": {name: figures.as_json() for name, figures in self.by_gpus.items()},
            "events": self.events,
            "scan_passes": self.scan_passes,
            "plans": self.plans,
            "wall_s": self.wall_s,
            "events_per_s": self.events_per_s,
            "peak_rss_mib": self.peak_rss_mib,
        }


def figures_of(
    record: RunRecord, cost: RunCost | None = None, *, slo_limits_s: tuple[float, ...] = DEFAULT_LIMITS_S
) -> RunFigures:
    """The figures of a run. `cost` is what it took, where that was measured; limits are by priority from 0 on."""
    workloads, attempts, counts = record.workloads, record.attempts, record.counts
    rows = rows_of(record, slo_limits_s)
    groups, waits = _groups(record, rows), rows.waits
    levels, supply = reserved_levels(record), supply_curve(record)
    held, available = held_curve(record, levels=levels), supply.integral(record.started_s, record.ended_s)
    overloaded_s, held_then, available_then = overloaded_gpu_seconds(record, held, supply)
    preempted, completed = attempts.end == AttemptEnd.PREEMPTED, workloads.end == WorkloadEnd.COMPLETED
    last_completed_s = float(workloads.ended_s[completed].max()) if completed.any() else nan
    ends = np.bincount(workloads.end, minlength=len(WorkloadEnd))
    return RunFigures(
        policy=record.policy,
        trace=record.trace,
        seed=record.seed,
        broken_off=record.broken_off,
        workloads=len(workloads),
        attempts=len(attempts),
        gpus=sum(record.region_gpus),
        completed=int(ends[WorkloadEnd.COMPLETED]),
        unfinished=int(ends[WorkloadEnd.QUEUED] + ends[WorkloadEnd.RUNNING]),
        failed=int(ends[WorkloadEnd.FAILED]),
        cancelled=int(ends[WorkloadEnd.CANCELLED]),
        refused=int(ends[WorkloadEnd.REFUSED]),
        jct_s=distribution_of(rows.jct_s[completed]),
        queueing_s=distribution_of(rows.queueing_s[completed]),
        start_latency_s=distribution_of(waits.seconds[waits.ran & ~waits.again]),
        makespan_s=last_completed_s - record.started_s,
        gpu_allocation_rate=rate_or_null(held.integral(record.started_s, record.ended_s), available),
        gpu_allocation_rate_when_overloaded=rate_or_null(held_then, available_then),
        overloaded_s=overloaded_s,
        gpu_utilisation=rate_or_null(float(rows.work.useful.sum()), available),
        preemptions=int(preempted.sum()),
        preempted_gpus=int(attempts.gpus[preempted].sum()),
        preempted_gpu_s=float(rows.held_gpu_s[preempted].sum()),
        lost_work_gpu_s=float(rows.work.lost.sum()),
        evictions=_evictions(attempts.end),
        slo_limits_s=slo_limits_s,
        slo_violation_rate=_violation_rates(groups.by_priority),
        negative_cache_hit_rate=rate_or_null(counts.cache_hits, counts.cache_lookups),
        levels=figures_by_level(attempts, rows.held_gpu_s),
        demotions=counts.demotions,
        promotions=counts.promotions,
        guaranteed=groups.by_use.get(_USES[0]),
        opportunistic=groups.by_use.get(_USES[1]),
        loans=loan_figures_of(record),
        tables=table_figures_of(record),
        by_tenant=groups.by_tenant,
        by_priority=groups.by_priority,
        by_region=groups.by_region,
        by_gpus=groups.by_gpus,
        gpu_allocation_rate_by_region=_allocation_by_region(record, levels, groups.by_region),
        events=counts.events or None,
        scan_passes=counts.scan_passes or None,
        plans=counts.plans or None,
        wall_s=None if cost is None else cost.wall_s,
        peak_rss_mib=None if cost is None else cost.peak_rss_mib,
    )


def rows_of(record: RunRecord, slo_limits_s: tuple[float, ...] = DEFAULT_LIMITS_S) -> RunRows:
    """What the figures are made from: values of every workload, attempt and wait."""
    workloads = record.workloads
    waits = waits_of(record)
    held_gpu_s = gpu_seconds_of_attempts(record, holdings_of(record))
    judged, violated = decided_waits(waits, slo_limits_s)
    completed = workloads.end == WorkloadEnd.COMPLETED
    return RunRows(
        jct_s=np.where(completed, workloads.ended_s - workloads.submitted_s, np.nan),
        queueing_s=queueing_of_workloads(waits, len(workloads)),
        held_gpu_s=held_gpu_s,
        work=work_of_attempts(record, held_gpu_s),
        waits=waits,
        judged=judged,
        violated=violated,
    )


@dataclass(frozen=True, slots=True)
class _Groups:
    by_use: dict[str, GroupFigures]
    by_tenant: dict[str, GroupFigures]
    by_priority: dict[str, GroupFigures]
    by_region: dict[str, GroupFigures]
    by_gpus: dict[str, GroupFigures]


_USES = ("guaranteed", "opportunistic")
_PRIORITIES = tuple(str(priority) for priority in range(LOWEST_PRIORITY + 1))


def _groups(record: RunRecord, rows: RunRows) -> _Groups:
    workloads, owner, waiting = record.workloads, record.attempts.workload, rows.waits.workload
    tenant, priority = workloads.tenant, workloads.priority
    classes, class_of = gpu_classes(workloads.gpus)
    return _Groups(
        by_use=_figures_by_use(record, rows),
        by_tenant=figures_by_group(record, rows, record.tenants, tenant, tenant[owner], tenant[waiting]),
        by_priority=figures_by_group(record, rows, _PRIORITIES, priority, priority[owner], rows.waits.priority),
        by_region=figures_by_group(
            record, rows, record.regions, last_regions(record), record.attempts.region, rows.waits.region
        ),
        by_gpus=figures_by_group(record, rows, classes, class_of, class_of[owner], class_of[waiting]),
    )


def _figures_by_use(record: RunRecord, rows: RunRows) -> dict[str, GroupFigures]:
    """A workload that had no attempt counts as its quota has it; a wait as the attempt that ended it, or the workload."""
    of_workload, of_attempt = was_opportunistic(record).astype(np.int64), (~record.attempts.guaranteed).astype(np.int64)
    waits = rows.waits
    of_wait = of_workload[waits.workload]
    ended = waits.attempt != NO_ROW
    of_wait[ended] = of_attempt[waits.attempt[ended]]
    return figures_by_group(record, rows, _USES, of_workload, of_attempt, of_wait)


def was_opportunistic(record: RunRecord) -> Flags:
    """[workload] whether any attempt of it was opportunistic; without attempts, whether it was over quota."""
    owner, guaranteed = record.attempts.workload, record.attempts.guaranteed
    opportunistic = ~record.workloads.within_quota
    opportunistic[owner] = False
    opportunistic[owner[~guaranteed]] = True
    return opportunistic


def _violation_rates(by_priority: dict[str, GroupFigures]) -> dict[str, float | None]:
    """Null for priorities without a wait that can be judged."""
    return {
        name: number_or_null(by_priority[name].slo_violation_rate) if name in by_priority else None
        for name in _PRIORITIES
    }


def _allocation_by_region(
    record: RunRecord, levels: MachineLevels, by_region: dict[str, GroupFigures]
) -> dict[str, float | None]:
    return {
        name: rate_or_null(
            held_curve(record, region, levels).integral(record.started_s, record.ended_s),
            supply_curve(record, region).integral(record.started_s, record.ended_s),
        )
        for region, name in enumerate(record.regions)
        if name in by_region
    }


def last_regions(record: RunRecord) -> Integers:
    """The region of each workload's last attempt, or NO_ROW."""
    regions = np.full(len(record.workloads), NO_ROW, dtype=np.int64)
    # Attempts are in the order of dispatch: of several of a workload the last one stays.
    regions[record.attempts.workload] = record.attempts.region
    return regions


def _evictions(ends: Integers) -> dict[str, int]:
    """By cause, all that there are."""
    counts = np.bincount(ends, minlength=len(AttemptEnd))
    causes = (
        AttemptEnd.PREEMPTED,
        AttemptEnd.MACHINE_LOST,
        AttemptEnd.DRAINED,
        AttemptEnd.RECLAIMED,
        AttemptEnd.MIGRATED,
        AttemptEnd.CHANGE_REFUSED,
    )
    return {cause.name.lower(): int(counts[cause]) for cause in causes}
