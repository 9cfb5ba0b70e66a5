"""docs/results/lyra.md: what was run, what came out beside Lyra §7, and where public traces differ from ByteDance's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from domain.events import JsonValue
from scripts.results.lyra.cases import (
    DAYS,
    ELASTIC_LOAD,
    FEW_DAYS,
    FROM_DAY,
    FUNGIBLE_LOAD,
    HIGH_LOAD,
    LOANED_PER_TRAINING_GPU,
    ROUND_S,
)
from scripts.results.markdown import NOTHING, percent, seconds, table, times
from simulator.engine.settings import CostSettings

Kept = Mapping[str, JsonValue]
PAPER = {
    "Baseline (FIFO)": ("1×", "1×", "0 %"),
    "Lyra, Basic": ("1.53×", "1.48×", "12.2 %"),
    "Lyra, Advanced": ("1.67×", "1.59×", "7.4 %"),
    "Lyra, Heterogeneous": ("1.58×", "1.37×", "11.2 %"),
    "Lyra, Ideal": ("2.66×", "1.87×", "5.7 %"),
    "Opportunistic": ("1.10×", "1.12×", "19.4 %"),
    "Random": ("1.06×", "1.13×", "20.9 %"),
    "SCF": ("1.10×", "1.11×", "17.5 %"),
    "Lyra's heuristic": ("1.39×", "1.28×", "14.9 %"),
    "Gandiva": ("1.01×", "1.04×", NOTHING),
    "AFS": ("1.35×", "1.10×", NOTHING),
    "Lyra": ("1.35×", "1.38×", NOTHING),
}
"""Table 5: the mean queueing and completion time of the baseline over the scheme's, and its preemption ratio."""
PAPER_RUN_S, PAPER_LYRA_RUN_S = 16_610.0 - 3_072.0, 11_236.0 - 2_010.0
"""Table 5: mean completion less mean queueing time of the baseline, and of Lyra in the Basic scenario."""
PAPER_ELASTIC_JOBS, PAPER_ELASTIC_RUN_S = 0.05, 14.2 * 3600.0
"""§2.2: the part of all jobs that is elastic, and how long they run on average."""


def document_of(kept: Sequence[Kept]) -> str:
    """The whole page."""
    parts = (
        _beginning(),
        _in_short(kept),
        _experiment(kept),
        _table_5(kept),
        _reclaiming(kept),
        _sweeps(kept),
        _reasons(kept),
        _differs(kept),
    )
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _beginning() -> str:
    return """
# Lyra on public traces

Written by `make results-lyra` (`python -m scripts.results.lyra`; the traces are in the folder that `TOPMAST_TRACES` names): do not edit it, change
`scripts/results/lyra/`. The numbers are in [figures.json](lyra/figures.json); the same traces and code give the same bytes but for `processor_s`. The
paper is Lyra (EuroSys '23).
"""


def _in_short(kept: Sequence[Kept]) -> str:
    basic, fewest = _one(kept, "overall", "Lyra, Basic"), _one(kept, "full", "Fewest evictions")
    over = {
        name: _number(_one(kept, "full", name), "evicted_for_reclaims")
        / max(1.0, _number(fewest, "evicted_for_reclaims"))
        for name in ("SCF", "Random", "Lyra's heuristic")
    }
    return f"""
## In short

* In the Basic scenario the mean queueing time is {times(_gain(kept, basic, "queueing_s"))} shorter than under FIFO (the paper: 1.53×), and the mean completion time
  {times(_gain(kept, basic, "jct_s"))} (the paper: 1.48×; more than {times(_most_gain(kept, basic))} is not possible here: see [where the time goes](#where-the-completion-time-goes)).
* Where what is on loan is full, SCF evicts {times(over["SCF"])} as many attempts for reclaims as our policy, and Random {times(over["Random"])} (the paper's
  heuristic against them: 1.51× and 1.68×); the paper's heuristic itself {times(over["Lyra's heuristic"])}.
"""


def _experiment(kept: Sequence[Kept]) -> str:
    first, full = _one(kept, "overall", "Baseline (FIFO)"), _one(kept, "full", "Random")
    return f"""
## The experiment

* **Training**: all GPU jobs that Helios's cluster Venus was given on days {FROM_DAY:g} to {FROM_DAY + DAYS:g} ({_number(first, "workloads"):,.0f} jobs, durations cut at 48 h
  by the source), on so many 8-GPU machines that they would be busy all the time: {_number(first, "training_gpus"):,.0f} GPUs, called V100.
* **Inference**: {_number(first, "inference_gpus"):,.0f} GPUs, in the paper's proportion to the training GPUs, called T4. They are as busy as the pods of Alibaba's serving fleet
  (`inference_gpu_utilisation.csv`), the one day that there is, over and over. Every five minutes the cluster keeps what is busy, or will be as an
  autoregression forecasts, and 2 % beside, and lends the rest; after the last day it lends nothing.
* **Jobs**: by the checksums of their names, fungible ones make {FUNGIBLE_LOAD:.0%} of the load, and elastic ones (of at least two GPUs and an hour, up to twice
  what was asked for, in workers of two GPUs) {ELASTIC_LOAD:.0%}. A fungible job has {LOANED_PER_TRAINING_GPU} workers on T4s for each on V100s, and is as fast. In the Advanced and the
  Heterogeneous scenario a tenth of the jobs may run on both at 70 % of the speed; in the Ideal one all jobs scale, are fungible and lose nothing.
* **Costs**: a start takes 150 s, a restore 33 s more. Nothing saves its work when a machine is asked back, as in the paper's default, but
  for those that save every ten minutes in the table about checkpoints. Rounds of elastic jobs come every {ROUND_S:g} s.
* **Full**: the first {FEW_DAYS:g} days at load {HIGH_LOAD:g} ({_number(full, "training_gpus"):,.0f} GPUs) with all jobs fungible, so that everything on loan is used, without elastic jobs.

The baseline is `fifo`, which passes over what finds no room: it waits for less than a FIFO that blocks. Pollux is left out: its goodput needs gradient
statistics that no public trace has. The reclaim policies `lyra` and `lyra_loaning_only` use is `fewest_evictions`, which goes beyond Lyra's.
"""


def _table_5(kept: Sequence[Kept]) -> str:
    rows = []
    for section in ("overall", "loaning", "scaling"):
        for run in kept:
            if run["section"] == section:
                paper = PAPER.get(str(run["name"]), (NOTHING, NOTHING, NOTHING))
                if section == "scaling":
                    paper = (*paper[:2], NOTHING)
                rows.append(_row(kept, run, paper))
    head = (
        "scheme", "queueing: mean", "P50", "P95", "JCT: mean", "P50", "P95", "queueing, gain", "JCT, gain", "paper: gains",
        "use: training", "use: on loan", "preempted", "paper",
    )  # fmt: skip
    return f"""
## Schemes and scenarios (Table 5)

Gains are the baseline's mean over the scheme's. *Use* is of GPUs that take training work, within the window. *Preempted* are attempts evicted
for reclaims, as a share of the jobs. Queueing ends when work begins, 150 s after a dispatch. First the scenarios, then loans without scaling, then scaling without loans.

{table(head, rows)}
"""


def _row(kept: Sequence[Kept], run: Kept, paper: tuple[str, ...]) -> list[str]:
    loaned = cast(float | None, run["loaned_use"])
    return [
        str(run["name"]),
        *(seconds(_time(run, what, name)) for what in ("queueing_s", "jct_s") for name in ("mean", "p50", "p95")),
        times(_gain(kept, run, "queueing_s")),
        times(_gain(kept, run, "jct_s")),
        f"{paper[0]}, {paper[1]}",
        percent(_number(run, "training_use")),
        percent(loaned) if _number(run, "reclaims") else NOTHING,
        percent(_number(run, "preemption_ratio")),
        paper[2],
    ]


def _reclaiming(kept: Sequence[Kept]) -> str:
    rows = []
    for section, load in (("loaning", "Basic"), ("full", "full")):
        reference = _one(kept, section, "Fewest evictions")
        for name in ("Random", "SCF", "Lyra's heuristic", "Fewest evictions"):
            run = _one(kept, section, name)
            ratio = _number(run, "evicted_for_reclaims") / max(1.0, _number(reference, "evicted_for_reclaims"))
            rows.append(
                [
                    f"{load}: {name}",
                    f"{_number(run, 'reclaims'):,.0f}",
                    f"{_number(run, 'reclaimed_machines'):,.0f}",
                    f"{_number(run, 'reclaimed_without_evictions'):,.0f}",
                    f"{_number(run, 'evicted_for_reclaims'):,.0f}",
                    times(ratio),
                    percent(_number(run, "collateral")),
                    seconds(_time(run, "queueing_s", "mean")),
                    seconds(_time(run, "jct_s", "mean")),
                ]
            )
    short = _number(_one(kept, "loaning", "Fewest evictions"), "short_machines")
    head = (
        "reclaiming", "reclaims", "machines", "of them without evictions", "evicted", "ratio", "collateral damage", "queueing", "JCT",
    )  # fmt: skip
    return f"""
## Which machines go back (§7.3)

Collateral damage is what victims held on other machines, as a share of the GPUs that went back. In the Basic scenario much of what is on loan
is idle, so that whoever takes idle machines first does well. Beyond what was on loan, inference lacked {short:,.0f} machines, summed up over its looks.

{table(head, rows)}
"""


def _sweeps(kept: Sequence[Kept]) -> str:
    checkpoints = [("0%", _one(kept, "loaning", "Fewest evictions"))]
    checkpoints += [(str(run["name"]), run) for run in kept if run["section"] == "checkpoints"]
    estimates = [("0%", _one(kept, "scaling", "Lyra"))]
    estimates += [(str(run["name"]), run) for run in kept if run["section"] == "estimates"]
    imperfect = [
        (f"{run['name']}, {how}", run)
        for name in ("Basic", "Ideal")
        for how, run in (
            ("linear", _one(kept, "overall", f"Lyra, {name}")),
            ("20 % lost", _one(kept, "imperfect", name)),
        )
    ]
    head = ("", "queueing, gain", "JCT, gain", "JCT: mean", "preempted")
    return f"""
## Checkpoints, estimates, scaling

Jobs that save every ten minutes, with loans alone (§7.3; the paper's preemption ratio falls with them, ours counts attempts that must leave
whether or not they had saved):

{table(("jobs that save", *head[1:]), [_sweep_row(kept, *one) for one in checkpoints])}

Run times that are estimated wrongly by up to 25 %, with scaling alone (Table 9: 2.21× and 1.52× at 20 %, 1.76× and 1.38× at 60 %):

{table(("estimated wrongly", *head[1:]), [_sweep_row(kept, *one) for one in estimates])}

Each flexible worker brings 20 % less than in proportion (§7.2: JCT 5.8 % more in Basic, 10.5 % more in Ideal):

{table(("scenario", *head[1:]), [_sweep_row(kept, *one) for one in imperfect])}
"""


def _sweep_row(kept: Sequence[Kept], name: str, run: Kept) -> list[str]:
    return [
        name,
        times(_gain(kept, run, "queueing_s")),
        times(_gain(kept, run, "jct_s")),
        seconds(_time(run, "jct_s", "mean")),
        percent(_number(run, "preemption_ratio")),
    ]


def _reasons(kept: Sequence[Kept]) -> str:
    runs = [_one(kept, "overall", "Lyra, Basic"), *(run for run in kept if run["section"] == "reasons")]
    rows = [
        [
            *_sweep_row(kept, str(run["name"]), run),
            times(_most_gain(kept, run)),
            percent(_number(run, "training_use")),
            percent(cast(float | None, run["loaned_use"])) if _number(run, "reclaims") else NOTHING,
        ]
        for run in runs
    ]
    basic = runs[0]
    share = PAPER_ELASTIC_JOBS * PAPER_ELASTIC_RUN_S / PAPER_RUN_S
    head = (
        "run", "queueing, gain", "JCT, gain", "JCT: mean", "preempted", "JCT, gain at most", "use: training", "use: on loan",
    )  # fmt: skip
    return f"""
## Where the completion time goes

A flexible task makes only elastic jobs faster, and only {percent(_number(basic, "elastic_jobs"))} of the jobs are elastic, with {percent(_number(basic, "elastic_run_s"))} of the run time of all. *At most* is the
gain if no job ever queued and every elastic job had all its flexible tasks from its start to its end: {times(_most_gain(kept, basic))} in Basic, of which Lyra
reaches {times(_gain(kept, basic, "jct_s"))}. So a better choice of who gets tasks is worth little; how many tasks jobs may have is worth more. The paper does not say which FIFO its
baseline is; beside one that blocks behind the first that finds no room Lyra's completion times are {times(_time(_one(kept, "reasons", "FIFO that blocks"), "jct_s", "mean") / _time(basic, "jct_s", "mean"))} shorter:

{table(head, rows)}

The paper's figures do not follow from its own workload either: {PAPER_ELASTIC_JOBS:.0%} of its jobs are elastic and run for 14.2 h on average (§2.2), which is {share:.0%} of the
run time of all (a completion time of 16,610 s less 3,072 s of queueing, Table 5). Were they done in no time at all, runs would be {share:.0%} shorter on
average; in Table 5 they are {1 - PAPER_LYRA_RUN_S / PAPER_RUN_S:.0%} shorter in Basic. It does not say what ranges its jobs scale in, but for those without one: up to twice.
"""


def _most_gain(kept: Sequence[Kept], run: Kept) -> float:
    """If nothing queued for longer than a start takes, and elastic jobs always had all that they may have."""
    shortened = _number(run, "elastic_run_s") * (1.0 - 1.0 / _number(run, "most_times"))
    least_s = _number(run, "mean_run_s") * (1.0 - shortened) + CostSettings().container_start_s
    return _time(_one(kept, "overall", "Baseline (FIFO)"), "jct_s", "mean") / least_s


def _differs(kept: Sequence[Kept]) -> str:
    fifo, basic = _one(kept, "overall", "Baseline (FIFO)"), _one(kept, "overall", "Lyra, Basic")
    waits_s, jct_s = _time(fifo, "queueing_s", "mean"), _time(fifo, "jct_s", "mean")
    left_s, basic_s = _time(basic, "queueing_s", "mean"), _time(basic, "jct_s", "mean")
    shorter = 1.0 - (basic_s - left_s) / (jct_s - waits_s)
    ideal = _gain(kept, _one(kept, "overall", "Lyra, Ideal"), "jct_s")
    return f"""
## How this differs from the paper

* ByteDance's traces are not public. Venus is a smaller cluster with shorter jobs (half of them end within four minutes), a backlog that comes and goes, and no word
  of which jobs are elastic or fungible: we draw that. The paper's jobs that scale are the large ones of four model families.
* The inference series is one day of one service, whose load swings between 1 % and 97 %, more than the paper's 42 % to 95 %: more is lent at night, and more asked back.
* With a load of 1.0 on average the queue comes and goes, and a larger cluster removes it, so gains in queueing are greater than the paper's. Most of the
  completion time is run time (the queue is {waits_s / jct_s:.0%} of it under FIFO), which only flexible workers shorten.
  Of FIFO's {jct_s:,.0f} s only {waits_s:,.0f} s are queueing, so that no queue at all would give {times(jct_s / (jct_s - waits_s))}. Lyra takes {1 - left_s / waits_s:.0%} of the queue away and shortens runs by {shorter:.0%},
  which is {times(jct_s / basic_s)}. In Ideal all jobs scale: {times(ideal)}.
* Gangs stay in one cluster here; what is elastic grows where it started. A heterogeneous job has half of its base tasks on either model.
* The licence of the inference series allows research: it is read, and not part of this repository.
"""


def _one(kept: Sequence[Kept], section: str, name: str) -> Kept:
    return next(run for run in kept if (run["section"], run["name"]) == (section, name))


def _number(run: Kept, name: str) -> float:
    return float(cast(float, run[name]))


def _time(run: Kept, what: str, name: str) -> float:
    return float(cast(Mapping[str, float], run[what])[name])


def _gain(kept: Sequence[Kept], run: Kept, what: str) -> float | None:
    mean_s = _time(run, what, "mean")
    return _time(_one(kept, "overall", "Baseline (FIFO)"), what, "mean") / mean_s if mean_s > 0 else None
