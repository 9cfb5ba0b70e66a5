"""Runs a case and keeps what is measured."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from domain.events import JsonValue
from formats.trace import TraceRow
from scripts.results.mast.cases import Case, given_for, with_priorities
from scripts.results.mast.measures import measures_of
from scripts.results.mast.standings import QuotaHistory
from simulator.engine.simulation import simulate
from simulator.inputs.trace_files import TraceOptions, read_trace_file
from simulator.policies.registry import policy_called
from simulator.results.conservation import check_conservation

RUN_SEED = 1


@lru_cache(maxsize=1)
def rows_of_trace(trace: Path) -> tuple[TraceRow, ...]:
    """The trace, with drawn priorities; read once in a process."""
    return with_priorities(read_trace_file(trace, TraceOptions(gpus_only=True)).rows)


def run_from_file(trace: Path, case: Case) -> dict[str, JsonValue]:
    """One run; says on standard error how long it took."""
    measures, wall_s = run_case(rows_of_trace(trace), case)
    label = (
        f"{case.experiment} load {case.load:g} {case.policy}, refusals {case.memory}, {case.way}, quotas {case.quotas}"
    )
    print(f"{label}: {wall_s:.1f} s", file=sys.stderr, flush=True)
    return measures


def run_case(rows: Sequence[TraceRow], case: Case) -> tuple[dict[str, JsonValue], float]:
    """What was measured, and wall seconds of the run alone. Raises ConservationBroken when its tables contradict themselves."""
    given = given_for(rows, case)
    policy = policy_called(case.policy)
    if case.experiment == "memory":
        simulate(replace(given, rows=given.rows[:20]), policy, case.settings, RUN_SEED)  # kernels are loaded
    # Events cost questions of their own: where those are counted, none are written.
    history = None if case.experiment == "memory" else QuotaHistory()
    begun_s = time.perf_counter()
    record = simulate(given, policy, case.settings, RUN_SEED, sink=history)
    wall_s = time.perf_counter() - begun_s
    check_conservation(record)
    measures = measures_of(case, record, history)
    gc.collect()
    return measures, wall_s
