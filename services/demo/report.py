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
    console.print(f"Emulated: {summary['emulated']}.")
    console.print(_outcome(summary))
    console.print(_queueing(summary))
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
        f" {float(str(summary['clock_speed'])):.0f}), peak memory {summary['peak_memory_mib']} MiB, seed {summary['seed']}."
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
    for heading in ("", "count", "mean", "p50", "p95", "max"):
        table.add_column(heading)
    rows = {"queueing, all": summary["queueing_s"], "completion, all": summary["completion_s"]}
    rows |= {f"queueing, {tenant}": times for tenant, times in mapping(summary["queueing_s_by_tenant"]).items()}
    for name, times in rows.items():
        figures = mapping(times)
        table.add_row(
            name, str(figures["count"]), *(shown_duration(figures.get(key)) for key in ("mean", "p50", "p95", "max"))
        )
    return table


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
