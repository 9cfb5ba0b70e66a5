"""The tables of the document, in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from domain.events import JsonValue
from domain.tenant import LOWEST_PRIORITY
from scripts.results.markdown import percent, seconds, table
from scripts.results.mast.kept import KeptRun, in_ways, way_of

PRIORITIES = range(LOWEST_PRIORITY + 1)


def fleets(loads: Mapping[str, Mapping[str, JsonValue]]) -> str:
    """What the fleet is at each load."""
    head = (
        "load", "GPUs", "regions, in GPUs", "load of the whole fleet", "sum of the quotas", "larger than their own region"
    )  # fmt: skip
    rows = []
    for load, setup in loads.items():
        regions = cast(Mapping[str, int], setup["regions"])
        sizes = ", ".join(f"{name} {gpus}" for name, gpus in regions.items())
        numbers = (f"{setup[name]:,}" for name in ("gpus",))
        rows.append(
            [
                load,
                *numbers,
                sizes,
                f"{setup['load']:.2f}",
                f"{setup['quota_gpus']:,}",
                f"{setup['too_large_at_home']:,}",
            ]
        )
    return table(head, rows)


def service(runs: Sequence[KeptRun]) -> str:
    """Violations of service levels within quota, in all and in the worst hours."""
    head = (
        "load", "policy", "violations", "worst 8 hours", "worst 8 hours, priorities 0–2", "windows above 1.3 %"
    )  # fmt: skip
    rows = []
    for run in runs:
        above, of = run.busy_windows()
        rows.append(
            [
                f"{run.load:g}",
                run.policy,
                percent(run.of_service("all"), 2),
                percent(run.of_service("worst_8_hours")),
                percent(run.of_service("worst_8_hours_of_0_to_2")),
                f"{above} of {of}",
            ]
        )
    return table(head, rows)


def by_priority(runs: Sequence[KeptRun], name: str, *, digits: int = 2) -> str:
    """A rate by the priority of the tenants."""
    head = ("load", "policy", *(str(priority) for priority in PRIORITIES))
    rows = [
        [f"{run.load:g}", run.policy, *(percent(run.of_priority(priority, name), digits) for priority in PRIORITIES)]
        for run in runs
    ]
    return table(head, rows)


def by_dispatch(runs: Sequence[KeptRun]) -> str:
    """Violations as `topmast simulate` reports them: whole waits, by the priority at the dispatch."""
    head = ("load", "policy", *(str(priority) for priority in PRIORITIES))
    rows = [
        [
            f"{run.load:g}",
            run.policy,
            *(percent(cast(float | None, run.part("slo_of_dispatch_priority")[str(p)]), 2) for p in PRIORITIES),
        ]
        for run in runs
    ]
    return table(head, rows)


def latencies(runs: Sequence[KeptRun]) -> str:
    """P95 of start latencies, as in the paper's Figure 11 (b)."""
    head = ("load", "policy", "waits that end", *(str(priority) for priority in PRIORITIES))
    rows = []
    for run in runs:
        for label, name in (
            ("within quota: time within quota", "p95_within_s"),
            ("within quota: whole wait", "p95_whole_within_s"),
            ("over quota: whole wait", "p95_over_s"),
        ):
            values = [seconds(run.of_priority(priority, name)) for priority in PRIORITIES]
            rows.append([f"{run.load:g}", run.policy, label, *values])
    return table(head, rows)


def work(runs: Sequence[KeptRun]) -> str:
    """Queueing, preemptions and what they cost."""
    head = (
        "load", "policy", "queueing, mean", "P50", "P95", "JCT, mean", "preemptions", "GPU-hours of preempted attempts", "lost work, GPU-h"
    )  # fmt: skip
    rows = [
        [
            f"{run.load:g}",
            run.policy,
            *(seconds(value) for value in run.numbers("queueing_s")),
            seconds(run.number("jct_mean_s")),
            f"{run.number('preemptions'):,.0f}",
            f"{run.number('preempted_gpu_h'):,.0f}",
            f"{run.number('lost_work_gpu_h'):,.0f}",
        ]
        for run in runs
    ]
    return table(head, rows)


def allocation(runs: Sequence[KeptRun]) -> str:
    """GPUs held over GPUs there, and without the start of containers."""
    head = (
        "load", "policy", "until the last submission", "without starts", "while demand exceeds supply", "without starts", "which is of the time"
    )  # fmt: skip
    rows = []
    for run in runs:
        always, overloaded = run.allocation("until_last_submission"), run.allocation("while_overloaded")
        time = cast(float | None, run.part("allocation")["overloaded_share_of_time"])
        rows.append(
            [f"{run.load:g}", run.policy, *(percent(rate) for rate in (*always, *overloaded)), percent(time, 0)]
        )
    return table(head, rows)


def regional_load(runs: Sequence[KeptRun]) -> str:
    """Demand over supply of the region where that is largest."""
    head = ("load", "policy", "mean", "P95", "largest")
    rows = [
        [f"{run.load:g}", run.policy, *(f"{run.largest_load(name):.2f}" for name in ("mean", "p95", "max"))]
        for run in runs
    ]
    return table(head, rows)


def memory(runs: Sequence[KeptRun]) -> str:
    """What remembering refusals changes: the cost, not the decisions."""
    head = (
        "load", "refusals are remembered", "decisions", "questions", "answered from memory", "plans",
        "spared, of all questions", "start latency of large workloads, mean", "P95"
    )  # fmt: skip
    memories = {"kept": "as long as they hold", "per_pass": "within a scan pass (the paper)", "none": "not at all"}
    rows = []
    all_questions = {run.load: run.number("questions") for run in runs if run.memory == "none"}
    for run in runs:
        _, mean, _, p95 = run.numbers("large_start_latency_s")
        rate = run.number("known_to_fail") / max(1.0, run.number("questions"))
        rows.append(
            [
                f"{run.load:g}",
                memories[run.memory],
                f"`{run.kept['decisions']}`",
                f"{run.number('questions'):,.0f}",
                percent(rate),
                f"{run.number('plans'):,.0f}",
                percent(1 - run.number("plans") / max(1.0, all_questions.get(run.load, run.number("questions")))),
                seconds(mean),
                seconds(p95),
            ]
        )
    return table(head, rows)


def large(runs: Sequence[KeptRun]) -> str:
    """Start latency of large workloads by policy."""
    head = ("load", "policy", "starts", "mean", "P50", "P95")
    rows = []
    for run in runs:
        count, *rest = run.numbers("large_start_latency_s")
        rows.append([f"{run.load:g}", run.policy, f"{count:,.0f}", *(seconds(value) for value in rest)])
    return table(head, rows)


def ways(runs: Sequence[KeptRun]) -> str:
    """What is added to MAST, at each load and with each kind of quotas."""
    head = (
        "load", "quotas", "way", "violations", "worst 8 hours", "windows above 1.3 %", "allocated", "without starts", "whole waits, 0–2", "all",
        "queueing, mean", "large, mean", "preemptions", "GPU-hours of preempted attempts", "lost work, GPU-h", "moves", "reservations",
    )  # fmt: skip
    rows = []
    for run in in_ways(runs):
        above, of = run.busy_windows()
        _, large_s, _, _ = run.numbers("large_start_latency_s")
        rows.append(
            [
                f"{run.load:g}",
                run.quotas,
                way_of(run) or run.policy,
                percent(run.of_service("all"), 2),
                percent(run.of_service("worst_8_hours")),
                f"{above} of {of}",
                *(percent(rate) for rate in run.allocation("while_overloaded")),
                percent(run.of_service("whole_waits_of_0_to_2")),
                percent(run.of_service("whole_waits")),
                seconds(run.numbers("queueing_s")[0]),
                seconds(large_s),
                *(
                    f"{run.number(name):,.0f}"
                    for name in ("preemptions", "preempted_gpu_h", "lost_work_gpu_h", "moves", "reservations")
                ),
            ]
        )
    return table(head, rows)
