"""docs/results/hot-region.md: the design of the experiment first, then what came out, however it came out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from domain.events import JsonValue
from scripts.results.hot_region.cases import LOADS, SEEDS, WAYS
from scripts.results.hot_region.measures import FACTORS, LEAST_WAITS
from scripts.results.markdown import percent, table
from simulator.inputs.hot_region import HOT_SHARE, TEAMS
from simulator.results.bootstrap import CONFIDENCE, resampled_means
from simulator.results.run_record import Reals
from simulator.results.service_levels import DEFAULT_LIMITS_S

Run = dict[str, JsonValue]
_RESAMPLING_SEED = 1


def document_of(runs: Sequence[Run]) -> str:
    """The whole page."""
    parts = (_beginning(), _short(runs), _design(), *(_load(runs, load) for load in LOADS), _limits(runs))
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _beginning() -> str:
    return """
# A hot region in a filled fleet

Written by `make results-hot-region` (`python -m scripts.results.hot_region`): do not edit it, change `scripts/results/hot_region/`. The numbers are in
[figures.json](hot-region/figures.json); the same code gives the same bytes. The paper is MAST (OSDI '24), §5.6: in 8 hours MAST stays below 1.3 %
violations at all times, the federated approach reaches 50 % for high-priority workloads in busy hours.
"""


def _short(runs: Sequence[Run]) -> str:
    """The figures that the paper's are compared with."""
    rows = []
    for load in LOADS:
        published, least, stale = (
            _of(runs, load, way)
            for way in ("mast as published", "mast, least work destroyed", "federated, load of five minutes")
        )
        if published and least and stale:
            rows.append(
                [
                    load,
                    _mean(published, "violations"),
                    _mean(stale, "violations"),
                    percent(max(float(cast(float, run["worst_hour"])) for run in stale)),
                    _mean(published, "allocation", 1),
                    f"{_count(published, 'preempted_gpu_h')} and {_count(least, 'preempted_gpu_h')}",
                ]
            )
    head = (
        "load", "`mast` violates", "`federated`, five minutes old", "its worst hour of all", "allocated by `mast`",
        "GPU-hours of preempted attempts: victims as published, least work destroyed",
    )  # fmt: skip
    return f"""
## In short

{table(head, rows)}

MAST's promise (fewer than 1.3 % at all times, 98 % allocated) holds here. The federated approach is worse by one to two orders of magnitude, but nowhere near the
50 % that the paper reports for busy hours: with quotas that capacity backs, and low-priority work to evict in every region, most of what is bound to the hot region finds victims
there. Whom to evict matters more than where: sparing work halves what is lost, or better. Compaction moves nothing where small experiments fill every gap; reservations
cost half a point of allocation and gain nothing that shows.
"""


def _design() -> str:
    limits = ", ".join(f"{limit_s / 60:g}" for limit_s in DEFAULT_LIMITS_S)
    loads = "; ".join(
        f'"{name}": teams ask for {asked.team_load:.0%} of their quotas on average, those of the hot region {asked.hot_factor:g} times as much in the window'
        for name, asked in LOADS.items()
    )
    return f"""
## The design, fixed before the runs

**Fleet.** 9,280 GPUs of three models, unevenly spread over five regions. **Teams.** {TEAMS} of them, each with a priority (MAST's shares, §4.2), a GPU model, and tables of
one home with copies elsewhere (MAST's shares of regions, §5.3), all where the model is. {HOT_SHARE:.0%} of the teams of priorities 0 and 1, and what chance brings, have their home in the hot region. **Gangs** have 16, 64 and 128 GPUs
at P50, P90 and P99, and MAST's durations (at most a day). **Quotas** are backed by capacity: what a region has of a model is divided among the teams whose data
is there, so all can use theirs at once. **Experiments** of 1 to 8 GPUs at the lowest priority fill the rest from the beginning; more of them wait than there is room for.
After four hours the **window** of eight begins. {loads}.

**Ways.** `mast` has one queue and binds late; as published it chooses victims by §4.3. *Least work destroyed* spares what would lose most since its last checkpoint
([decision 064](../decisions/064-least-work-destroyed.md)); *compaction* moves small attempts with a checkpoint off nearly empty machines for gangs that wait, *reservations* keep machines for gangs that have waited for an hour ([decision 073](../decisions/073-reservations.md)); both together are the whole. *Joint windows* is solution (9) of §4.1, a joint search for
eight workloads at a time. `federated` binds a workload at its submission to the region of least demand over supply of its model; it knows the demand
exactly, or (which a federation might) what was made known every five minutes. Everything else is the same code, priorities, quotas and preemption too.

**Measures.** Waits of teams that began in the window, from pending to running, anew after each preemption; {limits} minutes are allowed at priorities 0 to 6. *Within quota*
counts the time in which the workload was within its quota, of waits that ended so or broke the limit in it; *whole waits* count all. The worst hour is that of the
most violations within quota among hours with at least {LEAST_WAITS} waits. {len(SEEDS)} seeds, each its own teams and workloads and the same for each way; in brackets
{CONFIDENCE:.0%} intervals of the mean (bootstrap over seeds), and of the worst hour the worst of all seeds.
"""


def _of(runs: Sequence[Run], load: str, way: str) -> list[Run]:
    return sorted(
        (run for run in runs if run["load"] == load and run["way"] == way), key=lambda run: cast(int, run["seed"])
    )


def _mean(runs: Sequence[Run], name: str, digits: int = 2) -> str:
    """Mean and interval of a share."""
    values = np.array([[float(cast(float, run[name]))] for run in runs])
    low, high = _interval(values)
    return f"{percent(float(values.mean()), digits)} [{100 * low:.{digits}f}, {100 * high:.{digits}f}]"


def _interval(values: Reals) -> tuple[float, float]:
    means = resampled_means(values, np.random.default_rng(_RESAMPLING_SEED))
    low, high = np.percentile(means, [50 * (1 - CONFIDENCE), 50 * (1 + CONFIDENCE)])
    return float(low), float(high)


def _count(runs: Sequence[Run], name: str) -> str:
    return f"{np.mean([float(cast(float, run[name])) for run in runs]):,.0f}"


def _load(runs: Sequence[Run], load: str) -> str:
    head = (
        "way", "violations within quota", "priorities 0 and 1", "worst hour, mean", "worst of all", "whole waits", "whole waits, 0 and 1",
        "allocated while demand exceeds supply", "preemptions", "GPU-hours of preempted attempts", "moves",
    )  # fmt: skip
    rows = []
    for way in WAYS:
        these = _of(runs, load, way)
        if these:
            worst = max(float(cast(float, run["worst_hour"])) for run in these)
            rows.append(
                [
                    way,
                    _mean(these, "violations"),
                    _mean(these, "violations_high"),
                    _mean(these, "worst_hour", 1),
                    percent(worst),
                    _mean(these, "whole_waits", 1),
                    _mean(these, "whole_waits_high", 1),
                    _mean(these, "allocation", 1),
                    _count(these, "preemptions"),
                    _count(these, "preempted_gpu_h"),
                    _count(these, "moves"),
                ]
            )
    return f"## Load {load}\n\n{table(head, rows)}"


def _limits(runs: Sequence[Run]) -> str:
    rows = []
    for load in LOADS:
        for way in WAYS:
            these = _of(runs, load, way)
            by_factor = [cast(dict[str, float], run["by_factor"]) for run in these]
            if these:
                rows.append(
                    [
                        f"{load}, {way}",
                        *(
                            percent(float(np.mean([rates[f"{factor:g}"] for rates in by_factor])), 2)
                            for factor in FACTORS
                        ),
                    ]
                )
    head = ("load, way", *(f"× {factor:g}" for factor in FACTORS))
    return f"""
## How much hangs on the limits

MAST publishes no limits. Violations within quota, all limits multiplied (starting containers alone takes 150 s, a quarter of the shortest limit):

{table(head, rows)}
"""
