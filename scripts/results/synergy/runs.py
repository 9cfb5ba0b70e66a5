"""One run of the document, and what is measured of it."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

import numpy as np

from domain.events import JsonValue
from domain.fleet import Cluster, Fleet, Machine, Rack, Region
from domain.identifiers import ANY_GPU_MODEL, ClusterId, GpuModel, MachineId, RackId, RegionId
from domain.life_cycle import State
from domain.resources import Quota
from domain.sensitivity import AmountsPerGpu, SensitivityProfile
from domain.tenant import HIGHEST_PRIORITY, Tenant
from formats.profiles_file import read_profiles
from formats.trace import TraceRow
from scripts.results.synergy.cases import (
    DERIVED_MULTI,
    EARLY,
    LIST_MULTI,
    LIST_SINGLE,
    PHILLY,
    ROWS,
    STEADY,
    Case,
    Monitored,
)
from scripts.results.synergy.derived_trace import TENANT, derived_rows
from simulator.engine.settings import CostSettings, SimulationSettings
from simulator.engine.simulation import RunProgress, Simulation
from simulator.engine.simulation_input import SimulationInput
from simulator.inputs.models import ModelSplit, assign_models
from simulator.inputs.trace_files import TraceOptions, read_trace_file
from simulator.policies.registry import policy_called
from simulator.results.figures import rows_of
from simulator.results.run_record import RunRecord

ROOT = Path(__file__).resolve().parents[3]
TRACE_FOLDER = Path(os.environ.get("TOPMAST_TRACES", ROOT.parent / "shared" / "traces"))
PROFILES_FILE = "synergy_profiles.csv"
FILES = {
    LIST_SINGLE: "peers/synergy_jobs_s20-70-10_l9_seed42_single.csv.gz",
    LIST_MULTI: "peers/synergy_jobs_s20-70-10_l6.0_seed42_multi.csv.gz",
    PHILLY: "philly_jobs.csv.gz",
}
ROUND_S = 300.0
GPUS_PER_MACHINE, MEMORY_GIB = 8, 500.0
MACHINES, PHILLY_MACHINES = 16, 64
PHILLY_FROM_S = 75.3 * 86_400.0
"""From here on 512 GPUs are offered half as much again as they can do, and completion times are like those of the paper."""
PHILLY_ROWS = 8000
TRACE_SEED, MODEL_SEED, RUN_SEED = 20220711, 1, 1


def missing_files() -> list[Path]:
    """The files that are not there."""
    files = [TRACE_FOLDER / name for name in (PROFILES_FILE, *FILES.values())]
    return [file for file in files if not file.exists()]


@cache
def profiles() -> Mapping[str, SensitivityProfile]:
    """Those of the authors' simulator."""
    return read_profiles(TRACE_FOLDER / PROFILES_FILE)


@cache
def rows_of_file(trace: str) -> tuple[TraceRow, ...]:
    """The jobs of an authors' list, with the models that it names; or Philly's, with models that are drawn."""
    path = TRACE_FOLDER / FILES[trace]
    read = read_trace_file(path, TraceOptions(gpus_only=True)).rows
    if trace != PHILLY:
        return tuple(replace(row, tenant=TENANT) for row in read[:ROWS])
    window = [row for row in read if row.submit_s >= PHILLY_FROM_S and 0 < row.gpus <= PHILLY_MACHINES * 8]
    return tuple(replace(row, tenant=TENANT, model="") for row in window[:PHILLY_ROWS])


def rows_for(case: Case) -> Sequence[TraceRow]:
    """What is submitted."""
    split = ModelSplit.parse(case.split)
    if case.trace not in FILES:
        multi = case.trace == DERIVED_MULTI
        rows = derived_rows(ROWS, case.load, split, profiles(), multi=multi, seed=TRACE_SEED)
    else:
        rows = assign_models(rows_of_file(case.trace), split, profiles(), np.random.default_rng(MODEL_SEED))
    return [replace(row, duration_s=row.duration_s * _with_share(row.model, case)) for row in rows]


def _with_share(model: str, case: Case) -> float:
    """How many times as long a job takes with the proportional share of the case's machines as with that of 3 CPUs."""
    memory_gib = MEMORY_GIB / GPUS_PER_MACHINE
    share = AmountsPerGpu(case.cpus_per_gpu, memory_gib)
    return profiles()[model].throughput_with(AmountsPerGpu(3.0, memory_gib)) / profiles()[model].throughput_with(share)


def fleet_for(case: Case) -> Fleet:
    """Machines of 8 GPUs and 500 GiB, each GPU with so many CPUs."""
    count = PHILLY_MACHINES if case.trace == PHILLY else MACHINES
    cpus = case.cpus_per_gpu * GPUS_PER_MACHINE
    machines = tuple(
        Machine(MachineId(f"machine-{number:02}"), GpuModel("V100"), GPUS_PER_MACHINE, cpus, MEMORY_GIB)
        for number in range(count)
    )
    return Fleet((Region(RegionId("region"), (Cluster(ClusterId("cluster"), (Rack(RackId("rack"), machines),)),)),))


def settings_for(case: Case) -> SimulationSettings:
    """As in the authors' simulator: starting and moving cost nothing, and all is decided in rounds of 300 s."""
    return SimulationSettings(
        costs=CostSettings(container_start_s=0.0, checkpoint_save_s=0.0, restore_s=0.0, checkpoint_interval_s=0.0),
        round_s=ROUND_S,
        scan_period_s=ROUND_S,
        auction_period_s=ROUND_S,
        ordering=case.order,
        check_every_events=0,
    )


def run_case(case: Case) -> dict[str, JsonValue]:
    """Runs the case until the jobs that count have ended."""
    rows = rows_for(case)
    tenants = (Tenant(TENANT, HIGHEST_PRIORITY, Quota.of({ANY_GPU_MODEL: 1_000_000})),)
    given = SimulationInput(case.trace, rows, fleet_for(case), tenants, profiles=profiles())
    begun_s = time.process_time()
    simulation = Simulation(given, policy_called(case.policy), settings_for(case), RUN_SEED)
    last = min(STEADY.behind, len(rows))

    def goes_on(_progress: RunProgress) -> bool:
        there = simulation.world.workloads
        return len(there) < last or any(work.state is not State.COMPLETED for work in there[EARLY.first : last])

    record = simulation.run(goes_on)
    counted = EARLY if case.trace == PHILLY else STEADY
    early = measured(record, rows, EARLY)
    return {
        **asdict(case),
        **measured(record, rows, counted),
        "early_jct_s": early["jct_s"],
        "early_unfinished": early["unfinished"],
        "processor_s": round(time.process_time() - begun_s, 1),
    }


def measured(record: RunRecord, rows: Sequence[TraceRow], counted: Monitored) -> dict[str, JsonValue]:
    """What is measured of the jobs that count."""
    monitored = slice(counted.first, min(counted.behind, len(rows)))
    table = record.workloads
    submitted_s, ended_s = table.submitted_s[monitored], table.ended_s[monitored]
    attempts, held_gpu_s = record.attempts, rows_of(record).held_gpu_s
    of_monitored = (attempts.workload >= monitored.start) & (attempts.workload < monitored.stop)
    work_gpu_s = sum(row.gpus * row.duration_s for row in rows[monitored])
    jct_s = ended_s - submitted_s
    return {
        "jobs": len(jct_s),
        "unfinished": int(np.isnan(jct_s).sum()),
        "jct_s": float(np.nanmean(jct_s)),
        "jct_p50_s": float(np.nanmedian(jct_s)),
        "jct_p99_s": float(np.nanquantile(jct_s, 0.99)),
        "queueing_s": float(np.nanmean(table.first_started_s[monitored] - submitted_s)),
        "speed": work_gpu_s / float(held_gpu_s[of_monitored].sum()),
    }
