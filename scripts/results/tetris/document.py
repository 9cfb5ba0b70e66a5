"""The document: what the figures are, beside those of the paper."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from domain.events import JsonValue
from scripts.results.markdown import NOTHING, percent, table
from scripts.results.tetris.runs import COMPARED, NO_PLAN, PAPER

Run = dict[str, JsonValue]


def write_page(runs: Sequence[Run], folder: Path) -> None:
    """Writes tetris.md into the folder."""
    plans = [run for run in runs if run["kind"] == "plan"]
    gaps = [run for run in runs if run["kind"] == "gap"]
    days = [run for run in runs if run["kind"] == "day"]
    parts = [
        _head(),
        _summary(plans, gaps, days),
        _versions(plans),
        _solvers(plans),
        _exact(gaps),
        _days(days),
        _work(plans),
    ]
    (folder / "tetris.md").write_text("\n\n".join(parts) + "\n")


def _head() -> str:
    return """# Tetris: where tables are

Written by `make results-tetris` (`python -m scripts.results.tetris`): do not edit it, change `scripts/results/tetris/`. The numbers are
in [figures.json](tetris/figures.json); the same code gives the same numbers but for times and memory. The paper is MAST (OSDI '24), §3,
§5.3 and §5.6. Warehouses are generated with its statistics (`topmast data generate`, seed 1): a table is read by 3, 17 and 45 jobs at P50, P90
and P99, and has 565 MB, 103 GB and 7.5 TB; regions have hardware as uneven as in its Fig. 2. The paper's own warehouse is not public, so
its figures stand beside these for orientation and can not be expected to be met one by one."""


def _number(run: Run, *names: str) -> float:
    value: JsonValue = run
    for name in names:
        value = value[name] if isinstance(value, dict) else None
    return float("inf") if value is None else float(str(value))


def _of(plans: Sequence[Run], tables: int, regions: int, version: str, solver: str) -> Run | None:
    wanted = (tables, regions, version, solver)
    return next(
        (run for run in plans if (run["tables"], run["regions"], run["version"], run["solver"]) == wanted), None
    )


def _gap(run: Run, solver: str) -> float:
    """How much a solver's cost is above the best that is known, as a share of it."""
    best = min(_number(run, "costs", name) for name in ("milp", *COMPARED))
    return _number(run, "costs", solver) / best - 1.0


def _summary(plans: Sequence[Run], gaps: Sequence[Run], days: Sequence[Run]) -> str:
    lines = []
    sizes = sorted({(_number(run, "tables"), _number(run, "regions")) for run in plans})
    if sizes:
        largest = [run for run in plans if (_number(run, "tables"), _number(run, "regions")) == sizes[-1]]
        slowest = max(largest, key=lambda run: _number(run, "processor_s"))
        lines.append(
            f"* {sizes[-1][0]:,.0f} tables in {sizes[-1][1]:.0f} regions, {_number(slowest, 'pairs'):,.0f} pairs of a job and a table: "
            f"{_number(slowest, 'processor_s'):.0f} s of processor time on one core and {_number(slowest, 'peak_mib') / 1024:.1f} GiB "
            "(budget: 5 min, 4 GiB; the paper: about 5 h)."
        )
    found = [run for run in plans if run["solver"] == "late_acceptance"]
    climbed = [
        _of(plans, int(_number(run, "tables")), int(_number(run, "regions")), "v2", "hill_climbing") for run in found
    ]
    if found:
        ratios = [
            _number(run, "after", "cost") / _number(other, "after", "cost")
            for run, other in zip(found, climbed, strict=True)
            if other
        ]
        lines.append(
            f"* `late_acceptance` ends at {percent(min(ratios), 0)} to {percent(max(ratios), 0)} of the cost at which hill climbing stops, with "
            f"the most overloaded region at {min(_number(run, 'after', 'overload') for run in found):.2f} to "
            f"{max(_number(run, 'after', 'overload') for run in found):.2f} times its supply (the paper: 0.98)."
        )
    if gaps:
        published, climbing, searching = ([_gap(run, name) for run in gaps] for name in COMPARED[1:])
        lines.append(
            f"* On {len(gaps)} small warehouses `single_moves` is {percent(float(np.median(published)), 1)} above the best that HiGHS or the search "
            f"finds in the median and up to {percent(max(published), 0)}: single moves cannot bring together what three regions hold. "
            f"`hill_climbing` is {percent(float(np.median(climbing)), 1)} above it, and up to {percent(max(climbing), 1)} (goal: 2 %); "
            f"`late_acceptance` at most {percent(max(searching), 2)} (goal: 0.5 %)."
        )
    off = next((run for run in days if run["solver"] == NO_PLAN), None)
    on = [run for run in days if run["copies"]]
    if off is not None and on:
        best = min(on, key=lambda run: _number(run, "without_data"))
        lines.append(
            f"* {percent(_number(best, 'without_data') / _number(best, 'workloads'), 2)} of a day's workloads find no region with their data and "
            f"hardware after a plan, {percent(_number(off, 'without_data') / _number(off, 'workloads'), 1)} without one (the paper: below 0.1 %)."
        )
    return "## In short\n\n" + "\n".join(lines)


def _versions(plans: Sequence[Run]) -> str:
    """V0, V1 and V2 side by side, by hill climbing."""
    rows: list[tuple[str, ...]] = []
    for tables, regions in sorted({(int(_number(run, "tables")), int(_number(run, "regions"))) for run in plans}):
        first = _of(plans, tables, regions, "v1", "hill_climbing")
        second = _of(plans, tables, regions, "v2", "hill_climbing")
        if first is None or second is None:
            continue
        for name, run, when in (("V0", first, "before"), ("V1", first, "after"), ("V2", second, "after")):
            extra = NOTHING if when == "before" else percent(_number(run, "extra_storage"), 0)
            rows.append(
                (
                    f"{tables:,} in {regions}, {name}",
                    f"{_number(run, when, 'overload'):.2f}",
                    f"{_number(run, when, 'deviation'):.2f}",
                    percent(_number(run, when, "home"), 2),
                    percent(_number(run, when, "collocation"), 2),
                    extra,
                )
            )
    head = ("tables in regions, version", "overload", "deviation", "trained at home", "collocated", "extra storage")
    return f"""## V0, V1, V2

V0 is where tables are before any plan; V1 and V2 are planned by hill climbing with copies. Overload is the high-priority GPU demand of the most
overloaded region over its supply, deviation that of all regions; jobs without a region are counted where their copies are. Collocated is the
high-priority demand for which some region has all tables and the GPUs, copies counted. The paper: overload 2.63 (V0) and 0.98 (V1), deviation 0.76 and
0.30, trained at home 90.82 % and 93.02 %, collocated 78 % (V1) and 96 % (V2), extra storage 75 to 125 %.

{table(head, rows)}

Copies for jobs that no region could run are part of every plan here, so V1 collocates as much as V2: what the paper's V1 lacked is not the
objective alone."""


def _solvers(plans: Sequence[Run]) -> str:
    rows = []
    for run in plans:
        if run["version"] != "v2":
            continue
        rows.append(
            (
                f"{_number(run, 'tables'):,.0f} in {_number(run, 'regions'):.0f}, {run['solver']}",
                f"{_number(run, 'before', 'cost'):.3f}",
                f"{_number(run, 'after', 'cost'):.3f}",
                *(f"{_number(run, 'after', term):.3f}" for term in ("reads", "gpu", "storage")),
                f"{_number(run, 'after', 'overload'):.2f}",
                f"{_number(run, 'after', 'deviation'):.2f}",
                f"{_number(run, 'moves'):,.0f}",
                percent(_number(run, "moved_share"), 0),
            )
        )
    head = (
        "tables in regions, solver",
        "cost before",
        "after",
        "reads",
        "GPUs",
        "storage",
        "overload",
        "deviation",
        "moves",
        "bytes moved",
    )
    return f"""## What each solver gains

V2, without a quota of bytes. `{PAPER}` is what the paper does in a day; `single_moves` goes on until a round gains a thousandth.
`hill_climbing` then moves pieces of communities of tables, the tables of a training job, and chains of such groups, each move a gain;
`late_acceptance` also searches at random in between. `joint` lets jobs run beside copies, away from their tables' homes: the cost here counts demand
where the homes are, overload and deviation where the jobs run.

{table(head, rows)}"""


def _exact(gaps: Sequence[Run]) -> str:
    rows = []
    for run in gaps:
        bound = run["bound"]
        rows.append(
            (
                f"{_number(run, 'tables'):.0f} tables, {_number(run, 'regions'):.0f} regions, {_number(run, 'jobs'):.0f} jobs, seed {_number(run, 'seed'):.0f}",
                *(f"{_number(run, 'costs', name):.4f}" for name in ("start", "milp")),
                NOTHING if bound is None else f"{_number(run, 'bound'):.4f}",
                *(f"{percent(_gap(run, name), 2)}" for name in COMPARED),
            )
        )
    head = ("warehouse", "start", "HiGHS", "bound", *(f"{name} above the best" for name in COMPARED))
    return f"""## Beside the exact solver

Generated warehouses that HiGHS can take, 60 s for each of its runs; the best is the lowest cost that any of them found.

{table(head, rows)}"""


def _days(days: Sequence[Run]) -> str:
    rows = []
    for run in days:
        copies = "with copies" if run["copies"] else "without copies"
        name = "no plan" if run["solver"] == NO_PLAN else f"{run['solver']}, {copies}"
        rows.append(
            (
                name,
                f"{_number(run, 'workloads'):,.0f}",
                percent(_number(run, "first_time") / _number(run, "workloads"), 0),
                percent(_number(run, "without_data") / _number(run, "workloads"), 2),
                percent(_number(run, "first_time_without_data") / _number(run, "first_time"), 2),
                f"{_number(run, 'mean_wait_s'):,.0f} s",
                f"{_number(run, 'p95_wait_s'):,.0f} s",
            )
        )
    head = (
        "tables are where",
        "workloads",
        "first-time",
        "wait for data",
        "of first-time ones",
        "mean wait of the others",
        "P95",
    )
    return f"""## A day in the simulator

The recurring training jobs of a warehouse of 2,000 tables in 6 regions come once, at a random time of the day; 70 % of the workloads are first-time
variants of them, with the same tables or some of them, 2 % with another table and 2 % with another GPU model. Full MAST policy. The plan
knows the recurring jobs only. Tables do not move during the day: who finds no region waits for data. The paper: below 0.1 %.

{table(head, rows)}"""


def _work(plans: Sequence[Run]) -> str:
    rows = [
        (
            f"{_number(run, 'tables'):,.0f} in {_number(run, 'regions'):.0f}, {run['version']}, {run['solver']}",
            f"{_number(run, 'jobs'):,.0f}",
            f"{_number(run, 'pairs'):,.0f}",
            f"{_number(run, 'processor_s'):.1f} s",
            f"{1e6 * _number(run, 'processor_s') / _number(run, 'pairs'):.1f} µs",
            f"{_number(run, 'wall_s'):.1f} s",
            f"{_number(run, 'peak_mib'):,.0f} MiB",
        )
        for run in plans
    ]
    head = ("tables in regions, version, solver", "jobs", "pairs", "processor", "a pair", "wall", "peak memory")
    return f"""## Cost against work

One core; compiling, generating and reading the warehouse left out, planning of copies included. Where wall
time is longer than processor time, other work had the machine meanwhile. Peak memory is that of the process with the warehouse.

{table(head, rows)}"""
