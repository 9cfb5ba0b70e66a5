"""One run of the document, and what is measured of it."""

from __future__ import annotations

import math
import os
import time
from dataclasses import asdict
from functools import cache
from pathlib import Path

import numpy as np

from domain.events import JsonValue
from domain.fleet import Cluster, Fleet, Machine, Rack, Region
from domain.identifiers import ClusterId, GpuModel, MachineId, RackId, RegionId
from domain.tenant import HIGHEST_PRIORITY
from formats.trace import TraceRow
from regional_scheduler.forecasting import FORECASTERS
from scripts.results.lyra.cases import (
    DAY_S,
    FILE,
    FROM_DAY,
    GPUS_PER_MACHINE,
    HETEROGENEOUS_JOBS,
    INFERENCE_MODEL,
    INFERENCE_PER_TRAINING_GPU,
    LOANED_PER_TRAINING_GPU,
    POLICIES,
    ROUND_S,
    RUN_SEED,
    SERIES,
    TRAINING_MODEL,
    Case,
    rows_of,
    training_gpus,
)
from simulator.engine.settings import ElasticSettings, EstimateSettings, LoanedSettings, SimulationSettings
from simulator.engine.simulation import simulate
from simulator.engine.simulation_input import SimulationInput
from simulator.inputs.loans import LoanSchedule, LoanStep, loans_of_utilisation, read_utilisation
from simulator.inputs.tenants import unlimited_tenants
from simulator.inputs.trace_files import TraceOptions, read_trace_file
from simulator.results.conservation import check_conservation
from simulator.results.figures import figures_of
from simulator.results.machine_use import allocation_rate_of
from simulator.results.run_record import AttemptEnd

ROOT = Path(__file__).resolve().parents[3]
TRACE_FOLDER = Path(os.environ.get("TOPMAST_TRACES", ROOT.parent / "shared" / "traces"))
INFERENCE = ClusterId("inference")
FORECAST = "autoregressive"


def missing_traces() -> list[Path]:
    """The files that are not there."""
    return [file for file in (TRACE_FOLDER / FILE, TRACE_FOLDER / SERIES) if not file.exists()]


@cache
def _trace() -> tuple[TraceRow, ...]:
    return tuple(read_trace_file(TRACE_FOLDER / FILE, TraceOptions(gpus_only=True)).rows)


@cache
def _fleet(load: float, days: float) -> Fleet:
    """The training cluster, as large as the window's load asks for, and the inference cluster beside it."""
    submitted = Case("", "", "fifo", load=load, days=days)
    training = training_gpus(rows_of(_trace(), submitted), submitted) // GPUS_PER_MACHINE
    inference = round(training * INFERENCE_PER_TRAINING_GPU)
    clusters = (_cluster("training", training, TRAINING_MODEL), _cluster(INFERENCE, inference, INFERENCE_MODEL))
    return Fleet((Region(RegionId("region"), clusters),))


def _cluster(name: str, machines: int, model: GpuModel) -> Cluster:
    members = [Machine(MachineId(f"{name}-{n}"), model, GPUS_PER_MACHINE, 96.0, 512.0) for n in range(machines)]
    return Cluster(ClusterId(name), (Rack(RackId(name), tuple(members)),))


@cache
def _loans(load: float, days: float) -> LoanSchedule:
    """As the series says, day after day, in the window; then everything is inference's again."""
    curve = read_utilisation(TRACE_FOLDER / SERIES)
    machines = sum(1 for _ in _fleet(load, days).regions[0].clusters[1].machines())
    days_s = days * DAY_S
    forecaster = FORECASTERS[FORECAST]
    schedule = loans_of_utilisation(curve, INFERENCE, machines, until_s=days_s, forecaster=forecaster)
    steps = [LoanStep(step.t_s + FROM_DAY * DAY_S, step.cluster, step.machines, step.short) for step in schedule.steps]
    return LoanSchedule((*steps, LoanStep(FROM_DAY * DAY_S + days_s, INFERENCE, 0)))


def settings_of(case: Case) -> SimulationSettings:
    """Without checkpoints all work is lost in a reclaim, as in Lyra §7.3."""
    heterogeneous = {"Advanced": HETEROGENEOUS_JOBS, "Heterogeneous": HETEROGENEOUS_JOBS, "Ideal": 1.0}
    loaned = LoanedSettings(
        gpus_per_gpu=LOANED_PER_TRAINING_GPU,
        heterogeneous_share=heterogeneous.get(case.scenario, 0.0),
        heterogeneous_speed=1.0 if case.scenario == "Ideal" else 0.7,
        reclaim_deadline_s=0.0,
    )
    return SimulationSettings(
        loaned=loaned,
        elastic=ElasticSettings(loss=case.scaling_loss),
        estimates=EstimateSettings(wrong_share=case.wrong_estimates),
        round_s=ROUND_S,
        check_every_events=0,
        trace_regions_bind=False,
    )


def run_case(case: Case) -> dict[str, JsonValue]:
    """Runs the case. Raises ConservationBroken when its tables contradict themselves."""
    rows = rows_of(_trace(), case)
    tenants = unlimited_tenants(rows, default_priority=HIGHEST_PRIORITY)
    given = SimulationInput(case.name, rows, _fleet(case.load, case.days), tenants, _loans(case.load, case.days))
    begun_s = time.process_time()
    record = simulate(given, POLICIES[case.policy], settings_of(case), RUN_SEED)
    processor_s = time.process_time() - begun_s
    check_conservation(record)
    figures, counts = figures_of(record), record.counts
    on_loan = np.array([name.startswith(f"{INFERENCE}-") for name in record.machines.names])
    window = FROM_DAY * DAY_S, (FROM_DAY + case.days) * DAY_S
    run_s = sum(row.duration_s for row in rows)
    reclaimed = int((record.attempts.end == AttemptEnd.RECLAIMED).sum())
    return {
        **asdict(case),
        "workloads": figures.workloads,
        "completed": figures.completed,
        "mean_run_s": round(run_s / max(1, len(rows)), 1),
        "elastic_jobs": round(sum(row.max_tasks is not None for row in rows) / max(1, len(rows)), 4),
        "elastic_run_s": round(sum(row.duration_s for row in rows if row.max_tasks is not None) / run_s, 4),
        "training_gpus": int(record.machines.gpus[~on_loan].sum()),
        "inference_gpus": int(record.machines.gpus[on_loan].sum()),
        "queueing_s": figures.queueing_s.as_json(),
        "jct_s": figures.jct_s.as_json(),
        "training_use": _rounded(allocation_rate_of(record, ~on_loan, *window)),
        "loaned_use": _rounded(allocation_rate_of(record, on_loan, *window)),
        "evicted_for_reclaims": reclaimed,
        "preemption_ratio": round(reclaimed / figures.workloads, 4),
        "reclaims": counts.reclaims,
        "reclaimed_machines": counts.reclaimed_machines,
        "reclaimed_without_evictions": counts.reclaimed_without_evictions,
        "collateral": round(counts.collateral_gpus / max(1, counts.reclaimed_gpus), 4),
        "short_machines": counts.short_machines,
        "processor_s": round(processor_s, 1),
    }


def _rounded(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 4)
