"""One run of the document, and what is measured of it."""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from functools import cache
from pathlib import Path

import numpy as np

from domain.events import JsonValue
from formats.trace import TraceRow
from scripts.results.tiresias.cases import GPUS_PER_MACHINE, RUN_SEED, TRACES, Case, policy_of, tenants_of
from simulator.engine.settings import SimulationSettings
from simulator.engine.simulation import simulate
from simulator.engine.simulation_input import SimulationInput
from simulator.inputs.fleets import FleetSource, fleet_from
from simulator.inputs.trace_files import TraceOptions, read_trace_file
from simulator.results.conservation import check_conservation
from simulator.results.figures import figures_of, rows_of

ROOT = Path(__file__).resolve().parents[3]
TRACE_FOLDER = Path(os.environ.get("TOPMAST_TRACES", ROOT.parent / "shared" / "traces"))
CURVE_POINTS = 101
_NO_CHECKS = {"check_every_events": 0, "trace_regions_bind": False}


def missing_traces() -> list[Path]:
    """The files that are not there."""
    files = [TRACE_FOLDER / window.file for window in TRACES.values()]
    return [file for file in files if not file.exists()]


@cache
def _rows(trace: str) -> tuple[TraceRow, ...]:
    return tuple(read_trace_file(TRACE_FOLDER / TRACES[trace].file, TraceOptions(gpus_only=True)).rows)


def input_of(case: Case) -> SimulationInput:
    """The window of the trace, and one region of 8-GPU machines."""
    window = TRACES[case.trace]
    rows = window.rows(_rows(case.trace))
    fleet = fleet_from(FleetSource(gpus=window.gpus(rows, case.load), gpus_per_machine=GPUS_PER_MACHINE))
    return SimulationInput(case.trace, rows, fleet, tenants_of(rows))


def run_case(case: Case) -> dict[str, JsonValue]:
    """Runs the case. Raises ConservationBroken when its tables contradict themselves."""
    given = input_of(case)
    settings = SimulationSettings().model_copy(update=_NO_CHECKS)
    begun_s = time.process_time()
    record = simulate(given, policy_of(case), settings, RUN_SEED)
    processor_s = time.process_time() - begun_s
    check_conservation(record)
    figures, rows = figures_of(record), rows_of(record)
    jct_s = rows.jct_s[~np.isnan(rows.jct_s)]
    held_gpu_s = float(rows.held_gpu_s.sum())
    return {
        **asdict(case),
        "gpus": figures.gpus,
        "workloads": figures.workloads,
        "completed": figures.completed,
        "jct_s": figures.jct_s.as_json(),
        "queueing_s": figures.queueing_s.as_json(),
        "jct_quantiles_s": [round(value) for value in np.quantile(jct_s, np.linspace(0, 1, CURVE_POINTS)).tolist()],
        "preemptions": figures.preemptions,
        "demotions": record.counts.demotions,
        "promotions": record.counts.promotions,
        "held_gpu_h": round(held_gpu_s / 3600),
        "not_working_gpu_h": round((held_gpu_s - float(rows.work.useful.sum())) / 3600),
        "processor_s": round(processor_s, 1),
    }
