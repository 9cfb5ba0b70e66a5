"""docs/results/tiresias.md: what was run, what came out beside Tiresias §5, and where the defaults lose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from domain.events import JsonValue
from scripts.results.markdown import NOTHING, seconds, table, times
from scripts.results.tiresias.cases import LOADS, POLICIES, REFERENCE, SLICED, TRACES, VARIED
from scripts.results.tiresias.kept import KeptRun, find
from scripts.results.tiresias.pictures import draw_all
from simulator.baselines.tiresias import BOUNDED, PROMOTE_KNOB, THRESHOLDS_GPU_S

PAPER = {
    "yarn_cs": ("2.41×", "30.9×"),
    "best_effort": ("1.50×", "9.0×"),
    "tiresias_las": ("1×", "1×"),
    "tiresias_gittins": ("1.00×", "1.0×"),
    SLICED: ("2.00×", "2.6×"),
}
"""Table 5: mean and median completion time as multiples of 2D-LAS."""
ORACLE = "srtf"
"""Knows run times, and ranks by what changes all the time."""
NOTICED = 0.995
"""A ratio above it is as good as 1."""


def write_pages(kept: Sequence[Mapping[str, JsonValue]], folder: Path) -> None:
    """Pictures and document, from what is kept of the runs."""
    runs = [KeptRun(run) for run in kept]
    pictures = folder / "tiresias"
    pictures.mkdir(parents=True, exist_ok=True)
    draw_all(runs, pictures)
    (folder / "tiresias.md").write_text(document_of(runs))


def document_of(runs: Sequence[KeptRun]) -> str:
    """The whole page."""
    parts = (
        _beginning(),
        _in_short(runs),
        _experiment(runs),
        _policies(runs),
        _sensitivity(runs),
        _defaults(runs),
        _losses(runs),
    )
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _beginning() -> str:
    return """
# Tiresias against other schedulers

Written by `make results-tiresias` (`python -m scripts.results.tiresias`): do not edit it, change `scripts/results/tiresias/`. The numbers are
in [figures.json](tiresias/figures.json); the same traces and code give the same bytes but for `processor_s`. The paper is Tiresias (NSDI '19).
"""


def _in_short(runs: Sequence[KeptRun]) -> str:
    lines: list[str] = []
    for trace in TRACES:
        yarn = [_ratio(runs, trace, load, "yarn_cs", "mean") for load in LOADS]
        fewer = [(find(runs, trace, load, REFERENCE), find(runs, trace, load, "srtf")) for load in LOADS]
        counts = " / ".join(
            f"{las.number('preemptions'):,.0f} against {srtf.number('preemptions'):,.0f}"
            for las, srtf in fewer
            if las is not None and srtf is not None
        )
        ratios = " / ".join(times(ratio) for ratio in yarn)
        lines.append(
            f"* **{TRACES[trace].title}**: YARN-CS takes {ratios} the mean completion time of 2D-LAS at loads "
            f"{' / '.join(f'{load:g}' for load in LOADS)} (the paper: 2.41×). Preemptions of 2D-LAS against SRTF: {counts}."
        )
    return "## In short\n\n" + "\n".join([*lines, *_below_the_paper(runs)])


def _below_the_paper(runs: Sequence[KeptRun]) -> list[str]:
    """By trace and load: what of Table 5 is not reached."""
    lines = []
    for trace in TRACES:
        for load in LOADS:
            less = []
            for policy in ("yarn_cs", "best_effort", SLICED):
                for name, word, paper in zip(("mean", "p50"), ("mean", "median"), PAPER[policy], strict=True):
                    ratio = _ratio(runs, trace, load, policy, name)
                    if ratio is not None and ratio < NOTICED * float(paper.rstrip("×")):
                        less.append(f"{word} of `{policy}` {times(ratio)} ({paper})")
            if less:
                lines.append(f"* Less than in the paper's Table 5, {trace} at load {load:g}: {', '.join(less)}.")
    return lines


def _experiment(runs: Sequence[KeptRun]) -> str:
    rows = []
    for trace in TRACES:
        for load in LOADS:
            run = find(runs, trace, load, REFERENCE)
            if run is not None:
                rows.append(
                    [TRACES[trace].title, f"{load:g}", f"{run.number('gpus'):,.0f}", f"{run.number('workloads'):,.0f}"]
                )
    return f"""
## The experiment

One region of 8-GPU machines, so many that what the window submits is 0.7, 1.0 or 1.3 times what they can do in the window; the traces are not
changed. Work that is still running when the window ends runs to its end, so the load is less than it says: at 0.7 next to nothing waits, and all
policies are alike.

{table(("window", "load", "GPUs", "workloads"), rows)}

A start takes 150 s (containers), saving a preempted job's checkpoint 30 s, restoring it 33 s more, so an eviction costs minutes, as it did in
the paper's testbed. No policy knows run times but `srtf`. `yarn_cs` is first in, first out, and nothing overtakes the first that finds no room;
`best_effort` lets what fits overtake. `tiresias_las` has a threshold of {THRESHOLDS_GPU_S[0]:,.0f} GPU-seconds, a PROMOTEKNOB of {PROMOTE_KNOB:g}, and evicts nothing
that has run for less than {BOUNDED.minimum_run_time_s:g} s, nor any workload more than {BOUNDED.evictions_per_workload_and_hour} times in an hour. Gandiva has slices of an hour: with its own of a minute
a switch that takes minutes would leave no time for work (its mechanisms suspend and resume in a second). Traces have no models, so placement by skew has no say here.
"""


def _policies(runs: Sequence[KeptRun]) -> str:
    rows = []
    for trace in TRACES:
        for load in LOADS:
            rows += [_row(runs, trace, load, policy) for policy in POLICIES]
    return f"""
## Completion times

As multiples of 2D-LAS; the paper's columns are its Table 5. *Not working* are GPU-hours that attempts held without doing work that was kept:
starts, saving and restoring checkpoints.

{_table([row for row in rows if row])}

![Completion times at load 1.0](tiresias/completion-times.svg)
"""


def _sensitivity(runs: Sequence[KeptRun]) -> str:
    tables = [f"At load {load:g}:\n\n{_variants(runs, load)}" for load in sorted(VARIED)]
    return f"""
## Sensitivity

As multiples of the defaults (first row). `K` is the number of levels, followed by their thresholds in GPU-seconds; the last row is SRTF, for its
preemptions.

{(chr(10) * 2).join(tables)}
"""


def _variants(runs: Sequence[KeptRun], load: float) -> str:
    head = (
        "variant of 2D-LAS",
        *(f"{trace}: mean, P50, P95, greatest" for trace in TRACES),
        *(f"{trace}: preemptions" for trace in TRACES),
        *(f"{trace}: promotions" for trace in TRACES),
    )
    rows = []
    for variant in (REFERENCE, *VARIED[load], ORACLE):
        cells = [variant]
        found = [find(runs, trace, load, variant) for trace in TRACES]
        for trace, run in zip(TRACES, found, strict=True):
            ratios = [times(_ratio(runs, trace, load, variant, name)) for name in ("mean", "p50", "p95", "max")]
            cells.append(NOTHING if run is None else ", ".join(ratios))
        for counted in ("preemptions", "promotions"):
            cells += [NOTHING if run is None else f"{run.number(counted):,.0f}" for run in found]
        rows.append(cells)
    return table(head, rows)


def _defaults(runs: Sequence[KeptRun]) -> str:
    judged = []
    for variant in (REFERENCE, *VARIED[max(VARIED)]):
        places = [(trace, load) for trace in TRACES for load in sorted(VARIED)]
        found = [
            (run, oracle, ratio)
            for trace, load in places
            if (run := find(runs, trace, load, variant)) is not None
            and (oracle := find(runs, trace, load, ORACLE)) is not None
            and (ratio := _ratio(runs, trace, load, variant, "mean")) is not None
        ]
        more = [run for run, oracle, _ in found if run.number("preemptions") >= oracle.number("preemptions")]
        said = ", ".join(f"{run.trace} at {run.load:g}" for run in more) or "nowhere"
        judged.append([variant, said, times(max((ratio for _, _, ratio in found), default=None))])
    return f"""
## Which defaults hold

Asked of them: fewer preemptions than SRTF on both traces and at every load, and nobody waits without a bound.

{table(("variant of 2D-LAS", "more preemptions than SRTF", "greatest mean, of the defaults'"), judged)}

Promotion decides it where more is submitted than fits. A promoted workload takes the place of several that are demoted, is demoted itself when it has
had its GPU-seconds, and waits again: with a small knob the demoted run in turns, and each turn costs starts and checkpoints. On Philly, where
nearly all work has one GPU and goes through before it is demoted, the knob hardly matters. Without promotion Venus does best, but a demoted
workload may wait for as long as others come; a knob of {PROMOTE_KNOB:g} keeps most of that, and bounds every wait at {PROMOTE_KNOB:g} times what the workload has run.
Longer thresholds hold, too; they save preemptions, and have what is wide or long keep its GPUs for longer before short work may take them. The minimum
run time and the limit in an hour rule storms out, and change little of what is counted here: turns are hours apart.
"""


def _losses(runs: Sequence[KeptRun]) -> str:
    lines = []
    for trace in TRACES:
        for load in LOADS:
            for policy in POLICIES:
                less = [
                    f"{times(ratio)} the {word}"
                    for name, word in (("mean", "mean"), ("p50", "median"), ("p95", "P95"))
                    if (ratio := _ratio(runs, trace, load, policy, name)) is not None and ratio < NOTICED
                ]
                if policy != REFERENCE and less:
                    lines.append(f"* {trace}, load {load:g}: `{policy}` has {', '.join(less)} of 2D-LAS.")
    return "## Where 2D-LAS with its defaults loses\n\n" + "\n".join([*lines, "", *_best_variants(runs)])


def _best_variants(runs: Sequence[KeptRun]) -> list[str]:
    """What the defaults cost, where they are not the best."""
    lines = []
    for trace in TRACES:
        for load in sorted(VARIED):
            better = [
                (ratio, variant)
                for variant in VARIED[load]
                if (ratio := _ratio(runs, trace, load, variant, "mean")) is not None and ratio < NOTICED
            ]
            said = "no variant has a smaller mean than the defaults."
            if better:
                ratio, variant = min(better)
                said = f"the variant with the least mean, *{variant}*, has {times(ratio)} that of the defaults."
            lines.append(f"* {trace}, load {load:g}: {said}")
    return lines


def _ratio(runs: Sequence[KeptRun], trace: str, load: float, variant: str, name: str) -> float | None:
    run, reference = (find(runs, trace, load, one) for one in (variant, REFERENCE))
    if run is None or reference is None or not reference.jct_s(name) > 0:
        return None
    return run.jct_s(name) / reference.jct_s(name)


def _row(runs: Sequence[KeptRun], trace: str, load: float, policy: str) -> list[str]:
    """Nothing where the case was not run."""
    run = find(runs, trace, load, policy)
    if run is None:
        return []
    paper = PAPER.get(policy, (NOTHING, NOTHING))
    ratios = [times(_ratio(runs, trace, load, policy, name)) for name in ("mean", "p50", "p95")]
    return [
        f"{trace}, {load:g}",
        policy,
        seconds(run.jct_s("mean")),
        seconds(run.jct_s("p50")),
        *ratios,
        *paper,
        f"{run.number('preemptions'):,.0f}",
        f"{run.number('demotions'):,.0f}",
        f"{run.number('promotions'):,.0f}",
        f"{run.number('not_working_gpu_h') / max(1.0, run.number('held_gpu_h')):.1%}",
    ]


def _table(rows: Sequence[Sequence[str]]) -> str:
    head = (
        "trace, load", "policy", "mean", "P50", "mean, ratio", "P50, ratio", "P95, ratio", "paper: mean", "paper: median",
        "preemptions", "demotions", "promotions", "not working",
    )  # fmt: skip
    return table(head, rows)
