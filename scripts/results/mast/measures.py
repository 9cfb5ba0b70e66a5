"""What is kept of a run: plain numbers and lists, from which tables and pictures are made."""

from __future__ import annotations

import hashlib
import math

import numpy as np

from domain.events import JsonValue
from domain.tenant import LOWEST_PRIORITY
from scripts.results.mast.cases import DAY_S, Case, priority_of_tenant
from scripts.results.mast.standings import QuotaHistory
from simulator.results.capacity import demand_curve, held_curve, reserved_levels, running_curve, supply_curve
from simulator.results.distribution import distribution_of, rate_or_null
from simulator.results.figures import figures_of
from simulator.results.holdings import held_until_s
from simulator.results.run_record import AttemptEnd, Flags, Integers, Reals, RunRecord
from simulator.results.service_levels import DEFAULT_LIMITS_S
from simulator.results.step_curve import StepCurve, curve_of_intervals, on_common_times
from simulator.results.waits import Waits, waits_of

BUSY_WINDOW_S = 8 * 3600.0
LEAST_WAITS = 50
"""A window with fewer waits says nothing about rates."""
STEP_S = DAY_S / 2
"""Between the points of pictures over time."""
LARGE_GPUS = 32
SHARES = (*(number / 100 for number in range(2, 100, 2)), 0.99, 0.995, 0.999, 1.0)
"""At which shares a distribution is drawn."""


def measures_of(case: Case, record: RunRecord, history: QuotaHistory | None) -> dict[str, JsonValue]:
    """The numbers of a run. Without a history (no events were recorded) those are left out that need it."""
    figures = figures_of(record)
    waits = waits_of(record)
    counts = record.counts
    measures: dict[str, JsonValue] = {
        "experiment": case.experiment,
        "load": case.load,
        "policy": case.policy,
        "memory": case.memory,
        "way": case.way,
        "quotas": case.quotas,
        "gpus": figures.gpus,
        "workloads": figures.workloads,
        "completed": figures.completed,
        "unfinished": figures.unfinished,
        "refused": figures.refused,
        "preemptions": figures.preemptions,
        "moves": int((record.attempts.end == AttemptEnd.MIGRATED).sum()),
        "reservations": 0 if history is None else history.reservations,
        "preempted_gpu_h": round(figures.preempted_gpu_s / 3600, 1),
        "lost_work_gpu_h": round(figures.lost_work_gpu_s / 3600, 1),
        "queueing_s": [
            _rounded(figures.queueing_s.mean, 1),
            _rounded(figures.queueing_s.p50, 1),
            _rounded(figures.queueing_s.p95, 1),
        ],
        "jct_mean_s": _rounded(figures.jct_s.mean, 1),
        "slo_of_dispatch_priority": {name: _rounded(rate, 5) for name, rate in figures.slo_violation_rate.items()},
        "large_start_latency_s": _large(record, waits),
        "allocation": _allocation(record),
        "decisions": decisions_of(record),
        "scan_passes": counts.scan_passes,
        "questions": counts.cache_lookups,
        "known_to_fail": counts.cache_hits,
        "plans": counts.plans,
        "largest_regional_load": _regional(record, waits),
        "start_latency_s_at_shares": _at_shares(waits.seconds[waits.ran]),
    }
    if history is not None:
        measures["service"] = _service(record, waits, history)
    return measures


def decisions_of(record: RunRecord) -> str:
    """A digest of what was dispatched when and where, and how it ended: equal for equal decisions."""
    attempts, shares = record.attempts, record.shares
    digest = hashlib.sha256()
    columns: tuple[Integers | Reals, ...] = (
        attempts.workload,
        attempts.region,
        attempts.dispatched_s,
        attempts.started_s,
        attempts.ended_s,
        attempts.end,
        shares.machine,
        shares.gpus,
    )
    for column in columns:
        digest.update(np.ascontiguousarray(column).tobytes())
    return digest.hexdigest()[:16]


# Service levels.


def _service(record: RunRecord, waits: Waits, history: QuotaHistory) -> JsonValue:
    """By the tenants' priorities: how long waits were within and over quota, and which broke the promise when."""
    within_s, within = history.of_waits(record, waits)
    by_tenant = np.array([priority_of_tenant(name) for name in record.tenants], dtype=np.int64)
    priority = by_tenant[record.workloads.tenant[waits.workload]]
    limits = np.array(DEFAULT_LIMITS_S)
    violated = within_s > limits[priority]
    judged = (within & waits.ran) | violated
    whole = waits.seconds > limits[priority]
    service: dict[str, JsonValue] = {
        "by_priority": {
            str(level): _of_priority(waits, within_s, within, violated, judged, whole, priority == level)
            for level in range(LOWEST_PRIORITY + 1)
        },
        "all": _rate(violated & judged, judged),
        "whole_waits": _rate(whole, waits.ran | whole),
        "whole_waits_of_0_to_2": _rate(whole & (priority <= 2), (waits.ran | whole) & (priority <= 2)),
        "worst_8_hours": _worst(waits, violated, judged),
        "worst_8_hours_of_0_to_2": _worst(waits, violated, judged & (priority <= 2)),
        "windows_above_0_013": _above(waits, violated, judged),
    }
    return service


def _of_priority(
    waits: Waits, within_s: Reals, within: Flags, violated: Flags, judged: Flags, whole: Flags, here: Flags
) -> JsonValue:
    inside, outside = here & within & waits.ran, here & ~within & waits.ran
    return {
        "waits_within": int(inside.sum()),
        "waits_over": int(outside.sum()),
        "violation_rate": _rate(violated & here, judged & here),
        "violation_rate_of_whole_waits": _rate(whole & here, here & (waits.ran | whole)),
        "p95_within_s": _rounded(distribution_of(within_s[inside]).p95, 1),
        "p95_whole_within_s": _rounded(distribution_of(waits.seconds[inside]).p95, 1),
        "p95_over_s": _rounded(distribution_of(waits.seconds[outside]).p95, 1),
    }


def _windows(waits: Waits, violated: Flags, judged: Flags) -> Reals:
    """The rate of violations in each eight hours that have waits enough, by when the waits began."""
    window = (waits.from_s // BUSY_WINDOW_S).astype(np.int64)
    windows = int(window.max(initial=0)) + 1
    all_of = np.bincount(window[judged], minlength=windows).astype(np.float64)
    bad = np.bincount(window[judged & violated], minlength=windows).astype(np.float64)
    enough = all_of >= LEAST_WAITS
    return bad[enough] / all_of[enough]


def _worst(waits: Waits, violated: Flags, judged: Flags) -> float | None:
    rates = _windows(waits, violated, judged)
    return _rounded(float(rates.max()), 5) if len(rates) else None


def _above(waits: Waits, violated: Flags, judged: Flags) -> JsonValue:
    rates = _windows(waits, violated, judged)
    return [int((rates > 0.013).sum()), len(rates)]


# Start latency of large workloads.


def _large(record: RunRecord, waits: Waits) -> JsonValue:
    large = waits.ran & (record.workloads.gpus[waits.workload] >= LARGE_GPUS)
    distribution = distribution_of(waits.seconds[large])
    return [
        distribution.count,
        _rounded(distribution.mean, 1),
        _rounded(distribution.p50, 1),
        _rounded(distribution.p95, 1),
    ]


# Allocation.


def _allocation(record: RunRecord) -> JsonValue:
    """Held over available: always and while more is asked for than there is; with and without the start of containers."""
    held = held_curve(record, levels=reserved_levels(record))
    supply, demand, working = supply_curve(record), demand_curve(record), _working(record)
    submitted_until_s = float(record.workloads.submitted_s.max())
    times, (asked, available, reserved, at_work) = on_common_times(demand, supply, held, working)
    inside = (times[:-1] >= record.started_s) & (times[:-1] < record.ended_s)
    spans = np.where(inside, np.diff(times), 0.0)
    arriving = np.where(times[:-1] < submitted_until_s, spans, 0.0)
    overloaded = np.where(asked[:-1] > available[:-1], arriving, 0.0)

    def rates(of: Reals) -> JsonValue:
        whole = float((available[:-1] * of).sum())
        return [_share(float((curve[:-1] * of).sum()), whole) for curve in (reserved, at_work)]

    steps = _edges(record, submitted_until_s)
    return {
        "until_last_end": rates(spans),
        "until_last_submission": rates(arriving),
        "while_overloaded": rates(overloaded),
        "overloaded_share_of_time": _share(float(overloaded.sum()), float(arriving.sum())),
        "step_s": STEP_S,
        "over_time": [_rounded(float(v), 4) for v in held.averages(steps) / np.maximum(supply.averages(steps), 1.0)],
        "demand_over_time": [
            _rounded(float(v), 4) for v in demand.averages(steps) / np.maximum(supply.averages(steps), 1.0)
        ],
    }


def _working(record: RunRecord) -> StepCurve:
    """GPUs of attempts that ran, from their start to their end."""
    attempts = record.attempts
    ran = ~np.isnan(attempts.started_s)
    return curve_of_intervals(attempts.started_s[ran], held_until_s(record)[ran], attempts.gpus[ran])


def _regional(record: RunRecord, waits: Waits) -> JsonValue:
    """Demand over supply of each region: what runs there and what waits for it, by where it ran in the end."""
    edges = _edges(record, float(record.workloads.submitted_s.max()))
    curves: dict[str, JsonValue] = {}
    largest = np.zeros(len(edges) - 1)
    for region, name in enumerate(record.regions):
        here = waits.region == region
        waiting = curve_of_intervals(
            waits.from_s[here], waits.until_s[here], record.workloads.gpus[waits.workload[here]]
        )
        load = (waiting.averages(edges) + running_curve(record, region).averages(edges)) / record.region_gpus[region]
        largest = np.maximum(largest, load)
        curves[name] = [round(float(value), 3) for value in load]
    return {
        "mean": round(float(largest.mean()), 3),
        "p95": round(float(np.quantile(largest, 0.95)), 3),
        "max": round(float(largest.max()), 3),
        "over_time": curves,
    }


def _edges(record: RunRecord, until_s: float) -> Reals:
    """From the first submission to the last, in whole steps."""
    steps = max(1, math.floor((until_s - record.started_s) / STEP_S))
    return record.started_s + STEP_S * np.arange(steps + 1, dtype=np.float64)


# Numbers.


def _at_shares(values: Reals) -> JsonValue:
    ordered = np.sort(values)
    return [round(float(ordered[max(0, math.ceil(share * len(ordered)) - 1)]), 1) for share in SHARES if len(ordered)]


def _rate(of: Flags, among: Flags) -> float | None:
    return _share(float((of & among).sum()), float(among.sum()))


def _share(part: float, whole: float) -> float | None:
    rate = rate_or_null(part, whole)
    return None if rate is None else round(rate, 5)


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None or not math.isfinite(value) else round(value, digits)
