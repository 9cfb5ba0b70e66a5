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
from scripts.results.hived.cases import DECLARED, FROM_DAY, PRIVATE, RUN_SEED, UNTIL_DAY, Case, input_of
from scripts.results.hived.fragmentation import fragmentation_of
from simulator.engine.simulation import simulate
from simulator.engine.simulation_input import SimulationInput
from simulator.inputs.private_clusters import private_inputs
from simulator.inputs.trace_files import TraceOptions, read_trace_file
from simulator.results.conservation import check_conservation
from simulator.results.excess_waits import against_private
from simulator.results.figures import RunFigures, figures_of
from simulator.results.run_record import RunRecord
from simulator.results.waits import queueing_of_workloads, waits_of

ROOT = Path(__file__).resolve().parents[3]
TRACE_FOLDER = Path(os.environ.get("TOPMAST_TRACES", ROOT.parent / "shared" / "traces"))
TRACE = "philly_jobs.csv.gz"
DAY_S = 86_400.0
WINDOW_S = 43_200.0
"""HiveD §5.1: queueing is averaged over 12 hours of submissions."""


@cache
def _rows() -> tuple[TraceRow, ...]:
    return tuple(read_trace_file(TRACE_FOLDER / TRACE, TraceOptions(gpus_only=True)).rows)


def run_case(case: Case) -> dict[str, JsonValue]:
    """Runs the case. Raises ConservationBroken when the tables of a run contradict themselves."""
    given = input_of(case, _rows())
    begun_s = time.process_time()
    measured = _private(case, given) if case.arm == PRIVATE else _shared(case, given)
    return {**asdict(case), **measured, "processor_s": round(time.process_time() - begun_s, 1)}


def _private(case: Case, given: SimulationInput) -> dict[str, JsonValue]:
    """Every tenant alone."""
    records = {str(tenant): _run(case, alone) for tenant, alone in private_inputs(given).items()}
    tenants: dict[str, JsonValue] = {}
    waits: dict[str, JsonValue] = {}
    for tenant, record in records.items():
        figures = figures_of(record)
        tenants[tenant] = {"workloads": figures.workloads, "queueing_s": figures.queueing_s.as_json()}
        waits[tenant] = _by_submission(record, tenant)
    figures_of_all = [figures_of(record) for record in records.values()]
    return {
        "tenants": tenants,
        "waits": waits,
        "mean_jct_s": _mean_of_all(figures_of_all),
        "preemptions": sum(figures.preemptions for figures in figures_of_all),
    }


def _shared(case: Case, given: SimulationInput) -> dict[str, JsonValue]:
    """All together; against private clusters where what is guaranteed is declared."""
    record = _run(case, given)
    figures = figures_of(record)
    excess: dict[str, JsonValue] = {}
    if case.arm == DECLARED:
        alone = {str(tenant): _run(case, private) for tenant, private in private_inputs(given).items()}
        against = against_private(record, alone)
        excess = {"excess_wait_s": against.excess_wait_s.as_json(), "against_private": against.as_json()}
    return {
        "gpus": figures.gpus,
        "tenants": {
            name: {
                "workloads": group.workloads,
                "queueing_s": group.queueing_s.as_json(),
                "gpu_h": round(group.gpu_s / 3600),
                "guaranteed_gpu_h": round(group.guaranteed_gpu_s / 3600),
            }
            for name, group in figures.by_tenant.items()
        },
        "waits": {name: _by_submission(record, name) for name in figures.by_tenant},
        "mean_jct_s": _mean_of_all([figures]),
        "preemptions": figures.preemptions,
        "preempted_gpus": figures.preempted_gpus,
        "opportunistic_preempted_gpus": figures.opportunistic.preempted_gpus
        if figures.opportunistic is not None
        else 0,
        "guaranteed": figures.guaranteed.as_json() if figures.guaranteed is not None else None,
        "opportunistic": figures.opportunistic.as_json() if figures.opportunistic is not None else None,
        "fragmentation": fragmentation_of(record, FROM_DAY * DAY_S, UNTIL_DAY * DAY_S),
        **excess,
    }


def _run(case: Case, given: SimulationInput) -> RunRecord:
    record = simulate(given, case.policy, case.settings, RUN_SEED)
    check_conservation(record)
    return record


def _mean_of_all(figures: list[RunFigures]) -> float:
    done = [(one.jct_s.count, one.jct_s.mean) for one in figures if one.jct_s.count]
    return round(sum(count * mean for count, mean in done) / max(1, sum(count for count, _ in done)), 1)


def _by_submission(record: RunRecord, tenant: str) -> list[JsonValue]:
    """[12 hours of submissions] mean seconds that the tenant's workloads waited; null where it submitted none."""
    workloads = record.workloads
    queueing_s = queueing_of_workloads(waits_of(record), len(workloads))
    own = workloads.tenant == record.tenants.index(tenant)
    window = ((workloads.submitted_s - FROM_DAY * DAY_S) // WINDOW_S).astype(np.int64)
    means: list[JsonValue] = []
    for number in range(round((UNTIL_DAY - FROM_DAY) * DAY_S / WINDOW_S)):
        here = own & (window == number)
        means.append(round(float(queueing_s[here].mean()), 1) if here.any() else None)
    return means
