"""GPUs over time: held, available, and asked for (MAST §5.2: the allocation rate is held ÷ available)."""

from __future__ import annotations

import numpy as np

from simulator.results.holdings import MachineLevels, held_until_s, holdings_of, levels_of_machines
from simulator.results.run_record import RunRecord, WorkloadEnd
from simulator.results.step_curve import StepCurve, curve_of_intervals, curve_of_steps, on_common_times
from simulator.results.waits import Waits


def reserved_levels(record: RunRecord) -> MachineLevels:
    """GPUs reserved or held of each machine at any time: what `held_curve` is made from, for several regions at once."""
    holdings = holdings_of(record)
    return levels_of_machines(holdings, holdings.reserved_s)


def held_curve(record: RunRecord, region: int | None = None, levels: MachineLevels | None = None) -> StepCurve:
    """GPUs that were allocated, in all or in one region; one that several wait for or hold counts once."""
    reserved = reserved_levels(record) if levels is None else levels
    machine, times = reserved.machine, reserved.times
    gpus = np.minimum(reserved.gpus, record.machines.gpus[machine])
    first = np.append(True, machine[1:] != machine[:-1])[: len(machine)]
    steps = np.diff(gpus, prepend=0)
    steps[first] = gpus[first]
    here = slice(None) if region is None else record.machines.region[machine] == region
    return curve_of_steps(times[here], steps[here].astype(np.float64))


def supply_curve(record: RunRecord, region: int | None = None) -> StepCurve:
    """GPUs of machines that were not down, from the beginning of the run to its end."""
    machines = record.machines
    downs = [down for down in record.machine_down if region is None or machines.region[down[0]] == region]
    total = sum(record.region_gpus) if region is None else record.region_gpus[region]
    lost = machines.gpus[np.array([machine for machine, _, _ in downs], dtype=np.int64)].astype(np.float64)
    from_s = np.array([from_s for _, from_s, _ in downs])
    until_s = np.array([until_s for _, _, until_s in downs])
    times = np.concatenate(([record.started_s, record.ended_s], np.fmax(from_s, record.started_s), until_s))
    return curve_of_steps(times, np.concatenate(([total, -total], -lost, lost)))


def demand_curve(record: RunRecord) -> StepCurve:
    """GPUs asked for by all workloads that had been submitted and had not ended, running or not."""
    workloads = record.workloads
    asked = workloads.end != WorkloadEnd.REFUSED
    until_s = np.where(np.isnan(workloads.ended_s), record.ended_s, workloads.ended_s)
    return curve_of_intervals(workloads.submitted_s[asked], until_s[asked], workloads.gpus[asked])


def waiting_curve(record: RunRecord, waits: Waits, region: int | None = None) -> StepCurve:
    """GPUs asked for by workloads that wait; with a region, by those that ran there at last (known in hindsight)."""
    here = np.ones(len(waits), dtype=np.bool_) if region is None else waits.region == region
    gpus = record.workloads.gpus[waits.workload[here]]
    return curve_of_intervals(waits.from_s[here], waits.until_s[here], gpus)


def running_curve(record: RunRecord, region: int) -> StepCurve:
    """GPUs with which attempts ran in the region, from their start to their end."""
    attempts = record.attempts
    here = (attempts.region == region) & ~np.isnan(attempts.started_s)
    return curve_of_intervals(attempts.started_s[here], held_until_s(record)[here], attempts.gpus[here])


def queue_curve(waits: Waits) -> StepCurve:
    """Workloads that wait."""
    return curve_of_intervals(waits.from_s, waits.until_s)


def overloaded_gpu_seconds(record: RunRecord, held: StepCurve, supply: StepCurve) -> tuple[float, float, float]:
    """Seconds in which more GPUs were asked for than were available, and GPU-seconds held and available then.

    Asked for in all: GPU models, regions and gangs are not looked at.
    """
    times, (demanded, available, in_use) = on_common_times(demand_curve(record), supply, held)
    inside = (times[:-1] >= record.started_s) & (times[:-1] < record.ended_s)
    spans = np.where((demanded[:-1] > available[:-1]) & inside, np.diff(times), 0.0)
    return float(spans.sum()), float((in_use[:-1] * spans).sum()), float((available[:-1] * spans).sum())
