"""docs/results/hived.md: what was run, what came out beside HiveD §5, and what it does not show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from domain.events import JsonValue
from scripts.results.hived.cases import (
    DECLARED,
    FROM_DAY,
    HIVED,
    MULTI_LEVEL,
    PRIVATE,
    QUOTA,
    SCHEDULERS,
    SHARES_FROM_DAY,
    SHARES_UNTIL_DAY,
    SIZES,
    STATIC,
    UNTIL_DAY,
)
from scripts.results.hived.kept import KeptRun, find
from scripts.results.hived.pictures import draw_all
from scripts.results.markdown import NOTHING, percent, seconds, table, times

PAPER_FEWER_PREEMPTED = 0.55
ARMS = (PRIVATE, QUOTA, HIVED)


def write_pages(
    kept: Sequence[Mapping[str, JsonValue]], scale: Sequence[Mapping[str, JsonValue]], folder: Path
) -> None:
    """Pictures and document, from what is kept of the runs, and of cells at scale."""
    runs = [KeptRun(run) for run in kept]
    pictures = folder / "hived"
    pictures.mkdir(parents=True, exist_ok=True)
    draw_all(runs, pictures)
    (folder / "hived.md").write_text(document_of(runs, scale))


def document_of(runs: Sequence[KeptRun], scale: Sequence[Mapping[str, JsonValue]]) -> str:
    """The whole page."""
    parts = (
        _beginning(),
        _in_short(runs, scale),
        _experiment(runs),
        _safety(runs),
        _queueing(runs),
        _binding(runs),
        _fragmentation(runs),
        _scale(scale),
        _limits(runs),
    )
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _beginning() -> str:
    return """
# HiveD: sharing safety on a real trace

Written by `make results-hived` (`python -m scripts.results.hived`): do not edit it, change `scripts/results/hived/`. The numbers are
in [figures.json](hived/figures.json); the same trace and code give the same bytes but for times of the processor. The paper is HiveD (OSDI '20).
"""


def _in_short(runs: Sequence[KeptRun], scale: Sequence[Mapping[str, JsonValue]]) -> str:
    safe = [run for run in runs if run.text("arm") == DECLARED and run.instant]
    most_s = max((run.excess_s("max") for run in safe), default=0.0)
    judged, later = sum(run.against("guaranteed") for run in safe), sum(run.against("later") for run in safe)
    fewer = [_fewer_preempted(runs, size) for size in SIZES]
    cells = next((one for one in scale if one["benchmark"] == "cell_allocation"), None)
    gang = next((one for one in scale if one["benchmark"] == "cells_gang_evicting"), None)
    rows = [
        [
            "excessive queueing falls to zero (§5.1)",
            (
                f"**{seconds(most_s)}** at most, over {judged:,} guaranteed workloads in {len(safe)} runs compared job by job with private "
                f"clusters; {later} waited longer"
            ),
        ],
        [
            "dynamic binding preempts 55 % fewer GPUs than static binding (§5.3)",
            " and ".join(f"{percent(rate)} ({size})" for size, rate in zip(SIZES, fewer, strict=True)) + " fewer",
        ],
        ["cells of several levels: up to 20 % less fragmentation (§5.3)", _less_fragmented(runs)],
    ]
    if cells is not None and gang is not None:
        mean_ms, gang_ms = (
            1000 * float(cast(float, one[name]))
            for one, name in ((cells, "processor_mean_s"), (gang, "processor_p50_s"))
        )
        rows.append(
            [
                "2.18 ms a cell request at 65,536 GPUs (§5.3)",
                f"{mean_ms:.4f} ms; a gang of 8,192 GPUs that evicts 128 others {gang_ms:.0f} ms (processor time)",
            ]
        )
    return "## In short\n\n" + table(("the paper says", "here"), rows).replace("| ---: |", "| --- |")


def _experiment(runs: Sequence[KeptRun]) -> str:
    first = next((run for run in runs if run.text("arm") == HIVED), None)
    submitted = 0 if first is None else sum(first.of_tenant(tenant, "workloads") for tenant in first.tenants)
    sizes = " and ".join(f"{gpus:,} GPUs ({size})" for size, gpus in SIZES.items())
    return f"""
## The experiment

**Trace.** The {submitted:,.0f} GPU jobs that were submitted to Philly on days {FROM_DAY:g} to {UNTIL_DAY:g} of `philly_jobs.csv.gz`, in its own 14 virtual clusters, which
are the tenants; they run to their ends. The cluster is empty at first. What was cut: the paper simulates 20 days of a trace that is not public.

**Shares.** A tenant owns whole machines (node-level cells, as in §5.1): its part of the cluster is its part of the GPU-seconds that were submitted on
the busy days {SHARES_FROM_DAY:g} to {SHARES_UNTIL_DAY:g}, by largest remainder, but at least what its largest job takes. All machines are owned.

**Sizes.** {sizes}: about as many as would be in use at the end of these days if every job started at once, and 200 / 279 of it, which are the
paper's sizes. Machines have 8 GPUs, 2 sockets, 4 switches.

**Schedulers.** `fifo`: first in, first out, in as few tasks as possible, so that jobs of up to 8 GPUs need one machine; what does not fit is passed over.
`tiresias_las`: 2D-LAS with its defaults. `gandiva_1h`: time slices, of an hour instead of a minute, because a switch costs minutes here.

**Clusters.** *private*: each tenant alone, with its cells as its cluster. *quota*: all share, a tenant's quota is as many GPUs, what is
over quota runs at the lowest priority and is evicted for what is within. *hived*: the same quotas, but what is within quota runs in
the tenant's cells, and what is over quota opportunistically on whatever is idle. Starting takes 150 s, saving a checkpoint 30 s, restoring it 33 s.
"""


def _safety(runs: Sequence[KeptRun]) -> str:
    rows = []
    for size in SIZES:
        for scheduler in SCHEDULERS:
            for instant in (True, False):
                run = find(runs, size, scheduler, DECLARED, instant=instant)
                if run is not None:
                    rows.append(
                        [
                            f"{size}, {scheduler}",
                            "0 s" if instant else "30 s",
                            f"{run.against('guaranteed'):,}",
                            f"{run.against('later'):,}",
                            *(seconds(run.excess_s(name)) for name in ("mean", "p99", "max")),
                            f"{run.of_use('opportunistic', 'workloads'):,.0f}",
                            seconds(run.mean_queueing_s("opportunistic")),
                            f"{run.number('opportunistic_preempted_gpus'):,.0f}",
                        ]
                    )
    head = (
        "size, scheduler", "an eviction takes", "guaranteed workloads", "later than alone", "excess, mean", "P99", "largest",
        "opportunistic workloads", "their mean queueing", "their GPUs preempted",
    )  # fmt: skip
    return f"""
## Sharing safety, job by job

A third of each tenant's workloads, drawn from a seed, is declared opportunistic and uses what is idle; all others are guaranteed. Each tenant is
simulated again, alone, in a private cluster of its cells with its guaranteed workloads, under the same scheduler. The excess is how much longer a
guaranteed workload waited in all, from its submission on, than it did there.

{table(head, rows)}

With evictions that take 30 s an owner's work starts so much later where it finds others on its GPUs, and what queues behind it, too; beyond that
nothing is left.
"""


def _queueing(runs: Sequence[KeptRun]) -> str:
    blocks = []
    for size in SIZES:
        found = {(scheduler, arm): find(runs, size, scheduler, arm) for scheduler in SCHEDULERS for arm in ARMS}
        first = next((run for run in found.values() if run is not None), None)
        rows = []
        for tenant in first.tenants if first is not None else []:
            cells = [tenant]
            for scheduler in SCHEDULERS:
                cells += [_queueing_cell(found[scheduler, arm], tenant) for arm in ARMS]
            rows.append(cells)
        rows.append(["**all: mean completion time**", *(_jct_cell(found[key]) for key in found)])
        head = ("tenant", *(f"{scheduler}: {arm}" for scheduler in SCHEDULERS for arm in ARMS))
        blocks.append(f"### {size}: {SIZES[size]:,} GPUs\n\n{table(head, rows)}")
    return (
        "## Queueing by tenant\n\nMean queueing in the private cluster, under quotas, and with cells.\n\n"
        + "\n\n".join(blocks)
        + "\n\n![Mean queueing by tenant, first in, first out](hived/queueing.svg)\n\n"
        + "The tenant that loses most by sharing with quotas, by when its jobs were submitted:\n\n"
        + "![Mean queueing over time](hived/queueing-over-time.svg)"
    )


def _binding(runs: Sequence[KeptRun]) -> str:
    rows = []
    for size in SIZES:
        dynamic, static = (find(runs, size, SCHEDULERS[0], arm) for arm in (DECLARED, STATIC))
        if dynamic is not None and static is not None:
            rows.append(
                [
                    size,
                    f"{static.number('opportunistic_preempted_gpus'):,.0f}",
                    f"{dynamic.number('opportunistic_preempted_gpus'):,.0f}",
                    percent(_fewer_preempted(runs, size)),
                    seconds(static.mean_queueing_s("opportunistic")),
                    seconds(dynamic.mean_queueing_s("opportunistic")),
                ]
            )
    head = (
        "size", "GPUs preempted, static", "dynamic", "fewer", "mean queueing of opportunistic work, static", "dynamic"
    )  # fmt: skip
    return f"""
## Dynamic against static binding

Under `fifo` with the declared third of opportunistic work. Static: every owned cell stands for one machine for good, so that an owner evicts whatever is
there though other machines are idle. The paper: 55 % fewer GPUs preempted.

{table(head, rows)}
"""


def _fragmentation(runs: Sequence[KeptRun]) -> str:
    rows = []
    for size in SIZES:
        for arm, label in ((DECLARED, "machines only"), (MULTI_LEVEL, "cells of four levels")):
            run = find(runs, size, SCHEDULERS[0], arm)
            if run is not None:
                used, partly = run.fragmentation("used"), run.fragmentation("partly_used")
                rows.append([size, label, *(percent(sum(values) / max(1, len(values))) for values in (used, partly))])
    head = ("size", "tenants own", "machines with guaranteed work", "of these used in part")
    return f"""
## Fragmentation

The paper's level of fragmentation is the share of machines that could not give all their GPUs to guaranteed work: those on which such work already
runs. Hourly means, `fifo`, once with whole machines, once with as many GPUs in cells of the sizes that each tenant's jobs ask for.

{table(head, rows)}

![Machines with guaranteed work over time](hived/fragmentation.svg)
"""


def _scale(scale: Sequence[Mapping[str, JsonValue]]) -> str:
    rows = [
        [
            str(one["benchmark"]),
            f"{cast(int, one['count']):,}",
            *(f"{1000 * float(cast(float, one[name])):.4f} ms" for name in ("processor_mean_s", "processor_p99_s")),
            str(one["budget"]) or NOTHING,
        ]
        for one in scale
    ]
    return f"""
## 65,536 GPUs

`python -m benchmarks.cells`: 8 racks of 1,024 machines of 8 GPUs, requests at random levels; decisions for jobs in eight virtual clusters; a gang of
8,192 GPUs within a rack, alone and evicting 128 gangs; a restart. Processor time of one thread. HiveD's own figure is 2.18 ms a request.

{table(("what", "requests", "mean", "P99", "budget"), rows)}
"""


def _limits(runs: Sequence[KeptRun]) -> str:
    worse = []
    for size in SIZES:
        for scheduler in SCHEDULERS:
            private, hived = (find(runs, size, scheduler, arm) for arm in (PRIVATE, HIVED))
            if private is None or hived is None:
                continue
            for tenant in private.tenants:
                alone_s, shared_s = private.queueing_s(tenant), hived.queueing_s(tenant)
                if alone_s is not None and shared_s is not None and shared_s > alone_s + 60.0:
                    worse.append(
                        f"* {size}, {scheduler}: {tenant} waits {seconds(shared_s)} with cells, {seconds(alone_s)} alone."
                    )
    found = "\n".join(worse) or "* none waits more than a minute longer on average."
    return f"""
## What this does not show

Where quotas decide what is guaranteed (the *hived* columns), part of a tenant's work runs opportunistically, has to leave when owners come, and starts again
for minutes; that also changes the order of its guaranteed work. So a tenant may wait a little longer on average than alone:

{found}

**What safety costs.** Cells keep an owner's machines for it where a quota lets anybody's small work within quota fill them. Mean completion time, all tenants:

{_cost_of_safety(runs)}

**No anomaly of quotas.** In the paper a tenant waits up to 7 times longer under quotas than alone. Here quotas make {_worse_under_quotas(runs)} wait more than ten minutes longer:
nine in ten of Philly's jobs take one GPU, and a quota that evicts whatever is over quota finds whole machines often enough on these days.

The shares are drawn from the same weeks as the work, so hardly a tenant is idle for long; the trace misses about a fifth of Philly's jobs, many of them of
several GPUs; every job needs its GPUs as close together as possible (hard affinity), as in most of the paper.
"""


def _cost_of_safety(runs: Sequence[KeptRun]) -> str:
    """With cells against with quotas."""
    rows = []
    for size in SIZES:
        for scheduler in SCHEDULERS:
            quota, hived = (find(runs, size, scheduler, arm) for arm in (QUOTA, HIVED))
            if quota is not None and hived is not None:
                quota_s, hived_s = quota.number("mean_jct_s"), hived.number("mean_jct_s")
                rows.append([f"{size}, {scheduler}", seconds(quota_s), seconds(hived_s), times(hived_s / quota_s)])
    return table(("size, scheduler", "quota", "hived", "hived, of quota"), rows)


def _worse_under_quotas(runs: Sequence[KeptRun]) -> str:
    """The tenants that wait more than ten minutes longer under quotas than alone."""
    worse = []
    for size in SIZES:
        for scheduler in SCHEDULERS:
            private, quota = (find(runs, size, scheduler, arm) for arm in (PRIVATE, QUOTA))
            if private is not None and quota is not None:
                worse += [
                    f"{tenant} ({size}, {scheduler})"
                    for tenant in private.tenants
                    if (quota.queueing_s(tenant) or 0.0) > (private.queueing_s(tenant) or 0.0) + 600.0
                ]
    return ", ".join(worse) or "no tenant"


def _fewer_preempted(runs: Sequence[KeptRun], size: str) -> float | None:
    dynamic, static = (find(runs, size, SCHEDULERS[0], arm) for arm in (DECLARED, STATIC))
    if dynamic is None or static is None or not static.number("opportunistic_preempted_gpus"):
        return None
    return 1 - dynamic.number("opportunistic_preempted_gpus") / static.number("opportunistic_preempted_gpus")


def _less_fragmented(runs: Sequence[KeptRun]) -> str:
    found = []
    for size in SIZES:
        one, several = (find(runs, size, SCHEDULERS[0], arm) for arm in (DECLARED, MULTI_LEVEL))
        if one is not None and several is not None:
            pairs = list(zip(one.fragmentation("used"), several.fragmentation("used"), strict=True))
            gaps = [node - levels for node, levels in pairs]
            found.append(f"{100 * sum(gaps) / len(gaps):.1f} points on average, {100 * max(gaps):.1f} at most ({size})")
    return "; ".join(found) or NOTHING


def _queueing_cell(run: KeptRun | None, tenant: str) -> str:
    return NOTHING if run is None else seconds(run.queueing_s(tenant))


def _jct_cell(run: KeptRun | None) -> str:
    return NOTHING if run is None else seconds(run.number("mean_jct_s"))
