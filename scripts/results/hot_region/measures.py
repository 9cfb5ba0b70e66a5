"""What is kept of a run: rates of violations in the window, the worst hour, allocation, and what it cost."""

from __future__ import annotations

import numpy as np

from domain.events import JsonValue
from domain.tenant import LOWEST_PRIORITY
from scripts.results.hot_region.cases import LOADS, WAYS, Case
from scripts.results.mast.cases import priority_of_tenant
from scripts.results.mast.standings import QuotaHistory
from simulator.engine.simulation import simulate
from simulator.inputs.hot_region import HotRegionSettings, hot_region_input
from simulator.policies.registry import policy_called
from simulator.results.capacity import demand_curve, held_curve, reserved_levels, supply_curve
from simulator.results.conservation import check_conservation
from simulator.results.figures import figures_of
from simulator.results.run_record import AttemptEnd, Flags, Integers, RunRecord
from simulator.results.service_levels import DEFAULT_LIMITS_S
from simulator.results.step_curve import on_common_times
from simulator.results.waits import waits_of

HOUR_S = 3600.0
LEAST_WAITS = 20
"""An hour with fewer judged waits says nothing about rates."""
FACTORS = (0.3, 0.5, 1.0, 2.0, 4.0)
"""By which all limits are multiplied, to see how much hangs on them."""
HIGH_PRIORITIES = (0, 1)


def run_case(case: Case) -> dict[str, JsonValue]:
    """Simulates the case and measures it. Raises ConservationBroken when its tables contradict themselves."""
    asked = LOADS[case.load]
    history = QuotaHistory()
    given = hot_region_input(asked, case.seed)
    record = simulate(given, policy_called(WAYS[case.way].policy), case.settings, case.seed, sink=history)
    check_conservation(record)
    figures = figures_of(record)
    return {
        "load": case.load,
        "way": case.way,
        "seed": case.seed,
        "workloads": figures.workloads,
        "attempts": len(record.attempts),
        "preemptions": figures.preemptions,
        "preempted_gpu_h": round(figures.preempted_gpu_s / HOUR_S, 1),
        "moves": int((record.attempts.end == AttemptEnd.MIGRATED).sum()),
        "allocation": _allocation(record, asked),
        **_service(record, asked, history),
    }


def _service(record: RunRecord, asked: HotRegionSettings, history: QuotaHistory) -> dict[str, JsonValue]:
    """Of waits of teams that began in the window."""
    waits = waits_of(record)
    within_s, within = history.of_waits(record, waits)
    by_tenant = np.array([priority_of_tenant(name) for name in record.tenants], dtype=np.int64)
    priority = by_tenant[record.workloads.tenant[waits.workload]]
    limits = np.array(DEFAULT_LIMITS_S)[priority]
    here = (waits.from_s >= asked.before_s) & (priority < LOWEST_PRIORITY)
    high = here & np.isin(priority, HIGH_PRIORITIES)
    hour = ((waits.from_s - asked.before_s) // HOUR_S).astype(np.int64)

    def rates(factor: float, among: Flags) -> tuple[Flags, Flags]:
        violated = (within_s > factor * limits) & among
        return violated, ((within & waits.ran) & among) | violated

    violated, judged = rates(1.0, here)
    violated_high, judged_high = rates(1.0, high)
    whole = waits.seconds > limits
    return {
        "waits": int(judged.sum()),
        "violations": _rate(violated, judged),
        "violations_high": _rate(violated_high, judged_high),
        "worst_hour": _worst_hour(hour, violated, judged),
        "whole_waits": _rate(whole & here, here & (waits.ran | whole)),
        "whole_waits_high": _rate(whole & high, high & (waits.ran | whole)),
        "by_factor": {f"{factor:g}": _rate(*rates(factor, here)) for factor in FACTORS},
    }


def _worst_hour(hour: Integers, violated: Flags, judged: Flags) -> float:
    rates = [
        float(violated[hour == number].sum()) / int(judged[hour == number].sum())
        for number in range(int(hour.max(initial=0)) + 1)
        if int(judged[hour == number].sum()) >= LEAST_WAITS
    ]
    return round(max(rates, default=0.0), 5)


def _allocation(record: RunRecord, asked: HotRegionSettings) -> float:
    """GPUs held over GPUs there, while demand exceeds supply in the window."""
    held = held_curve(record, levels=reserved_levels(record))
    times, (demand, supply, reserved) = on_common_times(demand_curve(record), supply_curve(record), held)
    inside = (times[:-1] >= asked.before_s) & (times[:-1] < record.ended_s) & (demand[:-1] > supply[:-1])
    spans = np.where(inside, np.diff(times), 0.0)
    there = float((supply[:-1] * spans).sum())
    return round(float((reserved[:-1] * spans).sum()) / there, 5) if there else 0.0


def _rate(of: Flags, among: Flags) -> float:
    count = int(among.sum())
    return round(float((of & among).sum()) / count, 5) if count else 0.0
