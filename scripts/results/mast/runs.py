"""Runs the cases, side by side in processes, and keeps what is measured."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
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
Measured = tuple[Case, dict[str, JsonValue], float]
"""A case, what was measured, and wall seconds of the run alone."""


def rows_of_trace(trace: Path) -> tuple[TraceRow, ...]:
    """The trace, with drawn priorities."""
    return with_priorities(read_trace_file(trace, TraceOptions(gpus_only=True)).rows)


def run_case(rows: Sequence[TraceRow], case: Case) -> Measured:
    """One run. Raises ConservationBroken when its tables contradict themselves."""
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
    return case, measures, wall_s


def run_all(trace: Path, cases: Sequence[Case], processes: int) -> list[Measured]:
    """All of them, in the order of the cases; says on standard error which are done."""
    done: dict[Case, Measured] = {}
    for measured in _as_they_end(trace, cases, processes):
        case, _, wall_s = measured
        done[case] = measured
        label = f"{case.experiment} load {case.load:g} {case.policy} {case.memory}"
        print(f"{len(done)} of {len(cases)}: {label}, {wall_s:.1f} s", file=sys.stderr, flush=True)
    return [done[case] for case in cases]


def _as_they_end(trace: Path, cases: Sequence[Case], processes: int) -> Iterator[Measured]:
    if processes <= 1:
        rows = rows_of_trace(trace)
        yield from (run_case(rows, case) for case in cases)
        return
    with ProcessPoolExecutor(processes) as pool:
        waiting = [pool.submit(_run_from_file, trace, case) for case in cases]
        for ended in as_completed(waiting):
            yield ended.result()


def _run_from_file(trace: Path, case: Case) -> Measured:
    return run_case(rows_of_trace(trace), case)
