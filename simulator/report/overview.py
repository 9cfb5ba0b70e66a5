"""The head of the page: what was run, whether it was broken off, and its figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from simulator.report.panel import FigureTable
from simulator.report.wording import NOTHING, count_of, duration, gpu_hours, moment, number, percent
from simulator.results.figures import RunFigures
from simulator.results.loan_figures import LoanFigures
from simulator.results.run_record import RunRecord
from simulator.results.table_figures import TableFigures

_ROWS: tuple[tuple[str, Callable[[RunFigures], str]], ...] = (
    ("completed", lambda run: f"{number(run.completed)} of {number(run.workloads)}"),
    ("failed, cancelled, refused", lambda run: " / ".join(map(number, (run.failed, run.cancelled, run.refused)))),
    ("completion time, mean", lambda run: duration(run.jct_s.mean)),
    ("completion time, P50 / P95 / P99", lambda run: " / ".join(map(duration, (run.jct_s.p50, run.jct_s.p95, run.jct_s.p99)))),
    ("queueing time, mean", lambda run: duration(run.queueing_s.mean)),
    ("queueing time, P50 / P95 / P99", lambda run: " / ".join(map(duration, (run.queueing_s.p50, run.queueing_s.p95, run.queueing_s.p99)))),
    ("from submission to running, P95", lambda run: duration(run.start_latency_s.p95)),
    ("makespan", lambda run: duration(run.makespan_s)),
    ("GPU allocation rate", lambda run: percent(run.gpu_allocation_rate)),
    ("while more was asked for than there was", lambda run: f"{percent(run.gpu_allocation_rate_when_overloaded)} ({duration(run.overloaded_s)})"),
    ("GPU utilisation (work that was kept)", lambda run: percent(run.gpu_utilisation)),
    ("preemptions", lambda run: number(run.preemptions)),
    ("GPU-hours of preempted attempts", lambda run: gpu_hours(run.preempted_gpu_s)),
    ("GPU-hours of lost work", lambda run: gpu_hours(run.lost_work_gpu_s)),
    ("evictions by lost machines, drains, reclaims", lambda run: " / ".join(number(run.evictions[cause]) for cause in ("machine_lost", "drained", "reclaimed"))),
    ("machines reclaimed, of them without evictions", lambda run: _of_loans(run, _reclaimed)),
    ("GPUs given up beyond those that went back", lambda run: _of_loans(run, lambda loans: percent(loans.collateral_damage))),
    ("machines that inference lacked", lambda run: _of_loans(run, lambda loans: number(loans.short_machines))),
    ("evictions by reclaims for each workload", lambda run: _of_loans(run, lambda loans: percent(loans.preemption_ratio))),
    ("GPU allocation rate, lent / training", lambda run: _of_loans(run, _loan_rates)),
    ("tables copied", lambda run: _of_tables(run, lambda tables: f"{number(tables.moves)} ({tables.moved_bytes:.4g} bytes)")),
    ("workloads that waited for tables", lambda run: _of_tables(run, lambda tables: f"{number(tables.waited)} of {number(tables.readers)}")),
    ("  how long, each", lambda run: _of_tables(run, _wait)),
    ("negative cache hits", lambda run: percent(run.negative_cache_hit_rate)),
    ("real time", lambda run: duration(run.wall_s)),
    ("events per second", lambda run: number(None if run.events_per_s is None else round(run.events_per_s))),
    ("peak memory", lambda run: NOTHING if run.peak_rss_mib is None else f"{number(round(run.peak_rss_mib))} MiB"),
)  # fmt: skip


def _of_loans(run: RunFigures, show: Callable[[LoanFigures], str]) -> str:
    return NOTHING if run.loans is None else show(run.loans)


def _of_tables(run: RunFigures, show: Callable[[TableFigures], str]) -> str:
    return NOTHING if run.tables is None else show(run.tables)


def _wait(tables: TableFigures) -> str:
    """On the average of those that waited."""
    return duration(tables.waited_s / tables.waited) if tables.waited else NOTHING


def _reclaimed(loans: LoanFigures) -> str:
    if loans.reclaimed_machines is None:
        return NOTHING
    return f"{number(loans.reclaimed_machines)} / {number(loans.reclaimed_without_evictions)}"


def _loan_rates(loans: LoanFigures) -> str:
    return f"{percent(loans.loaned_allocation_rate)} / {percent(loans.training_allocation_rate)}"


def figures_table(labels: Sequence[str], figures: Sequence[RunFigures]) -> FigureTable:
    """One column per run; rows that no run knows anything about are left out."""
    rows = [(name, *(format_figure(run) for run in figures)) for name, format_figure in _ROWS]
    known = [row for row in rows if any(cell not in (NOTHING, f"{NOTHING} (0 s)") for cell in row[1:])]
    return FigureTable(("", *labels), tuple(known))


def tiles(run: RunFigures) -> tuple[tuple[str, str, str], ...]:
    """Name, figure and a remark, for a page with one run."""
    return (
        ("completed", number(run.completed), f"of {count_of(run.workloads, 'workload')}"),
        ("mean completion", duration(run.jct_s.mean), f"P95 {duration(run.jct_s.p95)}"),
        ("mean queueing", duration(run.queueing_s.mean), f"P95 {duration(run.queueing_s.p95)}"),
        ("GPUs allocated", percent(run.gpu_allocation_rate), f"{percent(run.gpu_allocation_rate_when_overloaded)} when overloaded"),
        ("preemptions", number(run.preemptions), f"{gpu_hours(run.lost_work_gpu_s)} GPU-hours of work lost"),
        ("makespan", duration(run.makespan_s), f"{count_of(run.attempts, 'attempt')}"),
    )  # fmt: skip


def facts(record: RunRecord, figures: RunFigures) -> tuple[tuple[str, str], ...]:
    """What was run."""
    found = (
        ("trace", record.trace),
        ("workloads", f"{number(figures.workloads)} of {count_of(len(record.tenants), 'tenant')}"),
        ("fleet", (f"{number(figures.gpus)} GPUs on {count_of(len(record.machines.names), 'machine')} "
                  f"in {count_of(len(record.regions), 'region')}")),
        ("from", moment(record.started_s)),
        ("until", moment(record.ended_s)),
    )  # fmt: skip
    return tuple((name, text) for name, text in found if text)


def broken_off_sentence(label: str, record: RunRecord, figures: RunFigures) -> str:
    """What must be said of a run that did not come to its end; empty of one that did."""
    if not record.broken_off:
        return ""
    if record.stalled:
        return (
            f"{label}: {count_of(figures.unfinished, 'workload')} had not ended when nothing more could happen, "
            f"{duration(record.ended_s - record.started_s)} after its beginning. All figures are of what had happened until "
            "then; means over completed workloads leave them out."
        )
    not_submitted = f" and {record.not_submitted} had not been submitted" if record.not_submitted else ""
    return (
        f"{label} was broken off {duration(record.ended_s - record.started_s)} after its beginning: "
        f"{count_of(figures.unfinished, 'workload')} had not ended{not_submitted}. All figures are of what had happened until then; "
        "means over completed workloads leave out the long ones."
    )
