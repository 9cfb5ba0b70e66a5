"""docs/results/synergy.md: what was run, and what came out beside Synergy §5."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from domain.events import JsonValue
from scripts.results.markdown import NOTHING, times
from scripts.results.markdown import table as plain_table
from scripts.results.synergy.cases import (
    DERIVED_MULTI,
    DERIVED_SINGLE,
    DRF,
    FULL,
    GREEDY,
    LIST_MULTI,
    LIST_SINGLE,
    MECHANISMS,
    MIXED,
    MULTI_LOADS,
    MULTI_ORDERS,
    OPT,
    ORDERS,
    PHILLY,
    PHILLY_ORDERS,
    PROPORTIONAL,
    RATIOS,
    SENSITIVE,
    SINGLE_LOADS,
    SPLIT_LOADS,
    SPLITS,
    STATIC_LOAD,
    STATIC_ORDERS,
    STATIC_SINGLE_LOADS,
    TETRIS,
    TUNE,
    Case,
    all_cases,
)
from scripts.results.synergy.kept import KeptRun, early_ratio, find, ratio
from scripts.results.synergy.pictures import draw_all

AUTHORS_FIFO_S = 145_648.0
"""Mean completion of the same 1,000 jobs of the single-GPU list in the authors' simulator: FIFO, proportional shares."""
PAPER_RATIOS = {3.0: "3.4×", 4.0: "3×", 5.0: "2.2×", 6.0: "1.8×"}
"""§5.5."""
PAPER_FIFO = "81 → 22"
"""Fig. 9, hours at 9 jobs an hour of one GPU."""
PAPER_PHILLY = {"srtf": "30 → 26", "las": "32 → 28", "fifo": "71 → 62"}
"""Table 6a, hours."""


def write_pages(kept: Sequence[Mapping[str, JsonValue]], folder: Path) -> None:
    """Pictures and document, from what is kept of the runs."""
    runs = [KeptRun(run) for run in kept]
    pictures = folder / "synergy"
    pictures.mkdir(parents=True, exist_ok=True)
    draw_all(runs, pictures)
    (folder / "synergy.md").write_text(document_of(runs))


def document_of(runs: Sequence[KeptRun]) -> str:
    """The whole page."""
    parts = (
        _beginning(runs),
        _in_short(runs),
        _experiment(),
        _check(runs),
        _orders(runs),
        _loads(runs),
        _splits(runs),
        _ratios(runs),
        _static(runs),
        _philly(runs),
        _differences(),
    )
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _beginning(runs: Sequence[KeptRun]) -> str:
    cases = all_cases()
    there = sum(find(runs, case) is not None for case in cases)
    part = (
        ""
        if there == len(cases)
        else f" This page has {there} of its {len(cases)} runs; the others are left out, or stand as `{NOTHING}`."
    )
    return f"""
# Synergy: CPUs and memory by sensitivity

Written by `make results-synergy` (`python -m scripts.results.synergy`): do not edit it, change `scripts/results/synergy/`. The numbers are
in [figures.json](synergy/figures.json); the same traces and code give the same bytes but for `processor_s`.{part} The paper is Synergy (OSDI '22).
"""


def _in_short(runs: Sequence[KeptRun]) -> str:
    single = _best_gain(runs, [Case(DERIVED_SINGLE, load, TUNE) for load in SINGLE_LOADS])
    listed = ratio(runs, Case(LIST_SINGLE, 0.0, PROPORTIONAL), Case(LIST_SINGLE, 0.0, TUNE))
    multi = _best_gain(runs, [Case(DERIVED_MULTI, load, TUNE, order) for load in MULTI_LOADS for order in MULTI_ORDERS])
    close = [
        value
        for trace, load in FULL
        for order in ORDERS
        if (value := _speed_ratio(runs, Case(trace, load, TUNE, order), Case(trace, load, OPT, order))) is not None
    ]
    drf = _best_gain(runs, [Case(DERIVED_MULTI, STATIC_LOAD, TUNE, "fifo", SENSITIVE)], DRF)
    tetris, by_work = (
        _best_gain(runs, [Case(DERIVED_MULTI, STATIC_LOAD, TUNE, order, SENSITIVE)], TETRIS)
        for order in ("fifo", "srtf")
    )
    worst = f"{100 * (1 - min(close)):.1f} %" if close else NOTHING
    return f"""
## In short

* Jobs of one GPU complete up to {times(single)} as fast with `synergy_tune` as with proportional shares ({times(listed)} on the authors' list; the
  paper: up to 3.4×), jobs of several up to {times(multi)} (1.6×).
* The throughput of `synergy_tune` is within {worst} of that of `synergy_opt`, which is exact for jobs in their places (the paper: 10 % of a bound).
* With sensitive jobs only (50-0-50) DRF packing takes {times(drf)} the completion time of `synergy_tune` (7.2×), Tetris {times(tetris)}
  first in, first out, and {times(by_work)} by remaining work (1.8×).
"""


def _experiment() -> str:
    return """
## The experiment

16 machines of 8 GPUs, 24 CPUs and 500 GB (Philly: 64). Traces are derived as in §5.1: run times of 10^x minutes with proportional shares, x even in
[1.5, 3] for 80 % of the jobs and in [3, 4] for the others, Poisson arrivals at so many jobs an hour, models of Table 4 by the split image-language-speech,
one GPU each, or 1 to 16 as in the authors' own multi-GPU list. Profiles are those of the authors' simulator. As there, starts and evictions cost nothing and
everything is decided in rounds of 300 s. The mean completion time is that of jobs 3000 to 3999 in the order of submission: the paper counts "1000 jobs in
steady state" and does not say which, but with a queue that grows with every job its 81 h are reached there, and not by jobs 1000 to 1999, for which a figure
of the authors' simulator is known (and which count in Philly, where the queue comes and goes). `speed` is work done per GPU-second held, 1 with
proportional shares.

With `TOPMAST_TRACES` naming the folder of the public traces, and a `fleet.yaml` of one region with such machines, one of these runs is

```sh
topmast simulate --trace $TOPMAST_TRACES/peers/synergy_jobs_s20-70-10_l9_seed42_single.csv.gz --fleet fleet.yaml \\
  --profiles $TOPMAST_TRACES/synergy_profiles.csv --policy synergy_tune --set ordering=fifo --set round_s=300 \\
  --set auction_period_s=300 --set costs.container_start_s=0
```
"""


def _check(runs: Sequence[KeptRun]) -> str:
    rows = []
    for trace, theirs, paper in (
        (LIST_SINGLE, f"{AUTHORS_FIFO_S:,.0f} s", PAPER_FIFO),
        (LIST_MULTI, NOTHING, NOTHING),
    ):
        even, tuned = Case(trace, 0.0, PROPORTIONAL), Case(trace, 0.0, TUNE)
        found = [find(runs, case) for case in (even, tuned)]
        early = [NOTHING if run is None else f"{run.number('early_jct_s'):,.0f} s" for run in found]
        rows.append([f"{trace}, 1000 to 1999", *early, theirs, times(early_ratio(runs, even, tuned)), NOTHING])
        late = [_hours(runs, case) for case in (even, tuned)]
        rows.append(
            [f"{trace}, 3000 to 3999", *(f"{cell} h" for cell in late), NOTHING, times(ratio(runs, even, tuned)), paper]
        )
    run = find(runs, Case(LIST_SINGLE, 0.0, PROPORTIONAL))
    off_s = None if run is None else run.number("early_jct_s") - AUTHORS_FIFO_S
    off = NOTHING if off_s is None else f"{off_s:+,.0f} s ({100 * off_s / AUTHORS_FIFO_S:+.1f} %)"
    head = ("list, jobs", "proportional", "tune", "proportional in the authors' simulator", "gain", "paper, h")
    return f"""
## The authors' lists

First in, first out. Their simulator on the single-GPU list, with proportional shares, with the same rounds comes to {AUTHORS_FIFO_S:,.0f} s; this one differs by
{off}. That is about two of 300 s, as if there a GPU that becomes free were given out, and a job counted as complete, a round later each; which has not been verified.

{table(head, rows)}
"""


def _orders(runs: Sequence[KeptRun]) -> str:
    head = (
        "trace, order",
        *(f"{_short(policy)}, h" for policy in MECHANISMS),
        "gain",
        "tune / opt, speed",
        "speed of tune",
    )
    rows = []
    for trace, load in FULL:
        for order in ORDERS:
            cases = [Case(trace, load, policy, order) for policy in MECHANISMS]
            gain = ratio(runs, cases[0], cases[2])
            close = _speed_ratio(runs, cases[2], cases[3])
            tuned = find(runs, cases[2])
            rows.append(
                [
                    f"{trace} {load:g}, {order}" if load else f"{trace}, {order}",
                    *(_hours(runs, case) for case in cases),
                    times(gain),
                    NOTHING if close is None else f"{close:.3f}",
                    NOTHING if tuned is None else f"{tuned.number('speed'):.3f}",
                ]
            )
    return f"""
## Four orders, four mechanisms

At full load: the authors' list of 9 jobs an hour of one GPU, and {FULL[1][1]:g} derived ones of several GPUs, split {MIXED}. `ftf` evicts nothing here, `srtf` and
`las` do. The paper finds 2.3× (one GPU) and 2× (several) for FTF.

{table(head, rows)}
"""


def _loads(runs: Sequence[KeptRun]) -> str:
    rows = []
    for trace, loads, order in (
        (DERIVED_SINGLE, SINGLE_LOADS, "fifo"),
        (DERIVED_MULTI, MULTI_LOADS, "fifo"),
        (DERIVED_MULTI, MULTI_LOADS, "las"),
        (DERIVED_MULTI, MULTI_LOADS, "srtf"),
    ):
        rows += [_pair(runs, f"{trace}, {order}, {load:g}", Case(trace, load, TUNE, order)) for load in loads]
    return f"""
## Load

{table(("trace, order, jobs an hour", "proportional, h", "tune, h", "gain", "P99 of proportional, h", "P99 of tune, h"), rows)}

![Mean completion time over load](synergy/load.svg)
"""


def _splits(runs: Sequence[KeptRun]) -> str:
    rows = []
    for split in SPLITS:
        for load in SPLIT_LOADS:
            cases = [Case(DERIVED_MULTI, load, policy, split=split) for policy in (PROPORTIONAL, GREEDY, TUNE)]
            rows.append(
                [
                    f"{split}, {load:g}",
                    *(_hours(runs, case) for case in cases),
                    times(ratio(runs, cases[1], cases[0])),
                    times(ratio(runs, cases[0], cases[2])),
                ]
            )
    head = ("split, jobs an hour", "proportional, h", "greedy, h", "tune, h", "greedy / proportional", "gain of tune")
    return f"""
## Splits

Jobs of several GPUs, first in, first out. Greedy packing waits for best demands: the more jobs are sensitive, the more GPUs are idle for lack of CPUs.

{table(head, rows)}
"""


def _ratios(runs: Sequence[KeptRun]) -> str:
    rows = []
    for cpus in RATIOS:
        case = Case(LIST_SINGLE, 0.0, TUNE, cpus_per_gpu=cpus)
        rows.append([*_pair(runs, f"{cpus:g}", case)[:4], PAPER_RATIOS[cpus]])
    return f"""
## CPUs for each GPU

The authors' list of 9 jobs an hour of one GPU, first in, first out. Durations are those with 3 CPUs for each GPU; with more, proportional shares are faster too.

{table(("CPUs for each GPU", "proportional, h", "tune, h", "gain", "paper"), rows)}
"""


def _static(runs: Sequence[KeptRun]) -> str:
    rows = [
        _static_row(runs, f"{split}, {_short(policy)}, {order}", Case(DERIVED_MULTI, STATIC_LOAD, policy, order, split))
        for split in (MIXED, SENSITIVE)
        for policy, order in STATIC_ORDERS
    ]
    single = [
        _static_row(runs, f"{load:g}, {_short(policy)}", Case(DERIVED_SINGLE, load, policy, split=SENSITIVE))
        for load in STATIC_SINGLE_LOADS
        for policy in (DRF, TETRIS)
    ]
    head = ("static, h", "proportional, h", "tune, h", "static / tune", "paper")
    return f"""
## Static demands

DRF and Tetris with best demands that nothing changes (§5.7), at {STATIC_LOAD:g} jobs an hour of several GPUs, which is what proportional shares can just do. Each is
compared with tuning under the order that it follows between equals. The paper names 128 GPUs and both splits, but not the trace, the load or that order.

{table(("split, packing, order", *head), rows)}

Sensitive jobs only ({SENSITIVE}) of one GPU each, by jobs an hour, first in, first out:

{table(("load, packing", *head), single)}

What decides is how far the load is beyond what 3 CPUs for each GPU can do with best demands, and for how long: the queue of a packing grows then, and that of tuning does not.
At 7 jobs an hour DRF comes near the paper's factor; nothing that the paper names fixes it.
"""


def _static_row(runs: Sequence[KeptRun], name: str, static: Case) -> list[str]:
    even, tuned = replace(static, policy=PROPORTIONAL), replace(static, policy=TUNE)
    known = {DRF: "7.2×", TETRIS: "1.8×"}[static.policy] if static.split == SENSITIVE else NOTHING
    return [
        name,
        *(_hours(runs, case) for case in (static, even, tuned)),
        times(ratio(runs, static, tuned)),
        known,
    ]


def _philly(runs: Sequence[KeptRun]) -> str:
    rows = [[*_pair(runs, order, Case(PHILLY, 0.0, TUNE, order))[:4], PAPER_PHILLY[order]] for order in PHILLY_ORDERS]
    return f"""
## Philly on 512 GPUs

8,000 of Philly's jobs from day 75 on, as they are, with the split {MIXED}; completion times of jobs 1000 to 1999. The cluster is offered half as much again
as it can do, and FIFO, LAS and SRTF with proportional shares stand to each other as in the paper.

{table(("order", "proportional, h", "tune, h", "gain", "paper, h"), rows)}
"""


def _differences() -> str:
    return """
## Where this differs from the paper

* **Nobody moves.** Synergy places all jobs anew in every round, this scheduler tunes them where they are, for moving costs a checkpoint and a restart.
  A machine whose jobs are all sensitive stays so until one of them ends. So OPT here is the exact answer for jobs in their places, not the paper's bound.
* **Greedy packing is not first fit**: the planner chooses the tightest machine, and holds what it gave. Without contention for CPUs it is as good as tuning.
* **The gains depend on how far the load is beyond what proportional shares can do**: in an overloaded queue the wait grows with every job. The factor is
  greatest where proportional shares are overloaded and tuning is just not: at 8 to 9 jobs an hour of one GPU, each of which brings 16 to 17 GPU-hours of
  work for 128 GPUs, and with best demands for all these jobs are 1.13 times as fast. At 9 derived jobs an hour, 4 % more work than in the
  authors' list, both are overloaded, and the factor falls again. Jobs 1000 to 1999 come too early for it: their wait is that of half as long a queue.
* **Jobs of several GPUs gain much at the edge of overload only**, first in, first out: the split 20-70-10 is 1.10 times as fast with best demands for all, for most of the GPU time
  is that of few large jobs.
* **50-0-50 can hardly be made faster under load**: all jobs want the same CPUs, of which there are 3 for each GPU, and throughput rises with CPUs in proportion. What
  tuning gains there it gains when GPUs are idle. Greedy packing and DRF take CPUs that 4.5 for each GPU would need, so that GPUs are idle and queues grow;
  how long they get depends on how long arrivals go on, and so does the factor (7,000 jobs here).
* **Tetris with SRTF between equals** is nearly as good as SRTF on the mean: what it costs is the long jobs. First in, first out it is as bad as greedy packing.
* **Philly's subrange** in the paper is not known; this one is public and not the same.
"""


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The rows of which anything was run."""
    return plain_table(head, [row for row in rows if any(cell != NOTHING for cell in row[1:4])])


def _best_gain(runs: Sequence[KeptRun], tuned: Sequence[Case], other: str = PROPORTIONAL) -> float | None:
    gains = [ratio(runs, replace(case, policy=other), case) for case in tuned]
    return max((gain for gain in gains if gain is not None), default=None)


def _speed_ratio(runs: Sequence[KeptRun], case: Case, other: Case) -> float | None:
    one, two = find(runs, case), find(runs, other)
    return None if one is None or two is None else one.number("speed") / two.number("speed")


def _pair(runs: Sequence[KeptRun], name: str, tuned: Case) -> list[str]:
    even = replace(tuned, policy=PROPORTIONAL)
    found = [find(runs, case) for case in (even, tuned)]
    tails = [NOTHING if run is None else f"{run.number('jct_p99_s') / 3600:.0f}" for run in found]
    return [name, _hours(runs, even), _hours(runs, tuned), times(ratio(runs, even, tuned)), *tails]


def _hours(runs: Sequence[KeptRun], case: Case) -> str:
    run = find(runs, case)
    if run is None:
        return NOTHING
    unfinished = run.number("unfinished")
    return f"{run.jct_h:.1f}" if not unfinished else f"{run.jct_h:.1f} ({unfinished:.0f} unfinished)"


def _short(policy: str) -> str:
    return policy.removeprefix("synergy_").removesuffix("_packing")
