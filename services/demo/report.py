"""The summary of a demo run for people."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from domain.events import JsonValue
from services.demo.account import mapping, shown_duration


def print_report(console: Console, summary: dict[str, JsonValue]) -> None:
    """Prints what was done, what came out, and what was emulated."""
    trace, validation = mapping(summary["trace"]), mapping(summary["validation"])
    console.rule("[bold]Topmast demo")
    console.print(
        f"Input: {trace['workloads']} workloads of {trace['source']}; {trace['durations_cut']} durations cut to"
        f" {shown_duration(trace['duration_cap_s'])}, times between submissions ×"
        f" {float(str(trace['arrivals_scaled_by'])):.3g}, {trace['left_out']} left out that no machine here could hold."
    )
    console.print(
        f"Staged besides: {summary['staged']} small workloads, that jobs are moved together, CPUs retuned, cells bound and a"
        " table copied in every run."
    )
    console.print(f"Emulated: {summary['emulated']}.")
    console.print(_outcome(summary))
    console.print(_queueing(summary))
    console.print(_scheduling(summary))
    console.print(_mechanisms(summary))
    console.print(_warehouse(summary))
    console.print(_training(summary))
    checks = mapping(validation["checks"])
    verdict = "[green]no violation[/]" if summary["violations"] == 0 else f"[red]{summary['violations']} violations[/]"
    console.print(
        f"Invariants recomputed from {validation['events']} events: {verdict} ("
        + ", ".join(f"{name} {count} checks" for name, count in checks.items())
        + ")"
    )
    for violation in validation["shown"] if isinstance(validation["shown"], list) else []:
        console.print(f"  [red]{violation}[/]")
    if "event_log" in summary:
        console.print(f"Event log: {summary['event_log']}")
    console.print(
        f"Wall time {summary['wall_s']} s ({summary['running_real_s']} s of them running, clock ×"
        f" {float(str(summary['clock_speed'])):.0f}), peak memory {summary['peak_memory_mib']} MiB with"
        f" shared pages counted once, seed {summary['seed']}."
    )


def _outcome(summary: dict[str, JsonValue]) -> Table:
    table = Table(title="Outcome", title_justify="left")
    for heading in ("submitted", "completed", "failed", "unfinished", "preemptions", "GPUs allocated", "won by region"):
        table.add_column(heading)
    table.add_row(
        str(summary["submitted"]),
        str(summary["completed"]),
        str(summary["failed"]),
        str(summary["unfinished"]),
        str(summary["preemptions"]),
        f"{float(str(summary['gpu_allocation_rate'])):.1%}",
        ", ".join(f"{region} {count}" for region, count in mapping(summary["regions"]).items()),
    )
    return table


def _queueing(summary: dict[str, JsonValue]) -> Table:
    table = Table(title="Times on the service's clock", title_justify="left")
    for heading in ("", "count", "mean", "p50", "p95", "max", "real p50", "real p95"):
        table.add_column(heading)
    speed = float(str(summary["clock_speed"]))
    rows = {"queueing, all": summary["queueing_s"], "completion, all": summary["completion_s"]}
    rows |= {f"queueing, {tenant}": times for tenant, times in mapping(summary["queueing_s_by_tenant"]).items()}
    for name, times in rows.items():
        figures = mapping(times)
        table.add_row(
            name,
            str(figures["count"]),
            *(shown_duration(figures.get(key)) for key in ("mean", "p50", "p95", "max")),
            *(shown_real(_real(figures.get(key), speed)) for key in ("p50", "p95")),
        )
    return table


def _scheduling(summary: dict[str, JsonValue]) -> str:
    """How much of the queueing is the scheduler's own time, which the compressed clock makes large."""
    scheduling, speed = mapping(summary["scheduling"]), float(str(summary["clock_speed"]))
    real = mapping(scheduling["real_s"])
    if not real["count"]:
        return "Nothing has started: of the scheduler's own time nothing can be said."
    p50_s = float(str(real["p50"]))
    return (
        f"The scheduler's own time is {float(str(scheduling['share_of_queueing'])):.0%} of all queueing above; the rest is waiting"
        f" for room. It is real: {shown_real(real['p50'])} at the median, {shown_real(real['p95'])} at p95 (until the first"
        f" decision, and from the dispatch to the start), and the clock × {speed:.0f} shows the median as"
        f" {shown_duration(p50_s * speed)}."
    )


def _mechanisms(summary: dict[str, JsonValue]) -> Table:
    table = Table(title="What acted", title_justify="left")
    table.add_column("mechanism")
    table.add_column("times", justify="right")
    table.add_column("for the first time")
    for name, found in mapping(summary["mechanisms"]).items():
        acted = mapping(found)
        table.add_row(name, str(acted["count"] or "none"), str(acted["first"]))
    return table


def _warehouse(summary: dict[str, JsonValue]) -> str:
    warehouse = mapping(summary["warehouse"])
    wrong = warehouse["files_wrong"]
    verdict = f"[red]wrong: {', '.join(map(str, wrong))}[/]" if isinstance(wrong, list) and wrong else "all whole"
    return (
        f"Warehouse: {warehouse['moves']} moves of tables, {int(str(warehouse['bytes'])) / 1e6:.1f} MB of real files;"
        f" {warehouse['files_checked']} files of all copies read again at the end, {verdict}."
    )


def _training(summary: dict[str, JsonValue]) -> Table:
    table = Table(title="Real training (NumPy, one process each)", title_justify="left")
    for heading in ("workload", "state", "attempts", "preempted", "resumed at step", "steps"):
        table.add_column(heading)
    stories = summary["real_training"]
    for story in stories if isinstance(stories, list) else []:
        training = mapping(story)
        table.add_row(
            *(str(training[key]) for key in ("name", "state", "attempts", "preempted", "resumed_at_step", "steps"))
        )
    return table


def _real(seconds: JsonValue, speed: float) -> float | None:
    """What passed of real time while so much passed on the service's clock."""
    return seconds / speed if isinstance(seconds, (int, float)) else None


def shown_real(seconds: object) -> str:
    """Real seconds, which are few."""
    return f"{seconds:.2f} s" if isinstance(seconds, (int, float)) else "-"
