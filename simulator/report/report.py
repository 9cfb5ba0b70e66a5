"""The report of runs: one HTML file with everything in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape
from pathlib import Path

from formats.atomic_file import atomic_file
from simulator.report.comparison_panels import comparison_panels
from simulator.report.duration_panels import completion_panel, queueing_panel, waiting_panels
from simulator.report.gantt_panel import GanttChoice, gantt_panel
from simulator.report.late_start_panel import late_start_panel
from simulator.report.overview import (
    broken_off_sentence,
    facts,
    figures_table,
    tiles,
)
from simulator.report.page import page, table_html
from simulator.report.panel import LabelledRun, Panel
from simulator.report.preemption_panel import preemption_panel
from simulator.report.timeline_panels import gpu_use_panel, queue_panel, region_panel
from simulator.report.wording import count_of
from simulator.results.comparison import Comparison
from simulator.results.figures import RunFigures
from simulator.results.run_record import RunRecord


def write_report(
    path: Path,
    runs: Sequence[RunRecord],
    figures: Sequence[RunFigures],
    comparison: Comparison | None = None,
    *,
    title: str = "",
    choice: GanttChoice | None = None,
) -> None:
    """Writes the report of these runs to a file, whole or not at all.

    `figures` are those of the runs, one by one; `choice` says which machines to show, and when. Raises ValueError when
    there is no run, or for a choice that the runs do not have.
    """
    document = report_of(runs, figures, comparison, title=title, choice=choice)
    with atomic_file(path) as unfinished:
        unfinished.write_text(document, encoding="utf-8")


def report_of(
    runs: Sequence[RunRecord],
    figures: Sequence[RunFigures],
    comparison: Comparison | None = None,
    *,
    title: str = "",
    choice: GanttChoice | None = None,
) -> str:
    """The report as an HTML document. The same runs give the same bytes.

    Of each policy the first run is drawn; the table of figures has all of them.
    """
    if not runs:
        raise ValueError("a report needs at least one run")
    labels = _labels(runs)
    drawn = _first_of_each_policy(runs)
    panels: list[Panel] = [*comparison_panels(comparison)] if comparison is not None else []
    panels += [
        completion_panel(drawn),
        queueing_panel(drawn),
        gpu_use_panel(drawn),
        queue_panel(drawn),
        region_panel(drawn),
        *waiting_panels(drawn),
        late_start_panel(labels, figures),
        preemption_panel(drawn),
        gantt_panel(drawn, choice),
    ]
    policies = [run.label for run in drawn]
    heading = title or (f"{', '.join(policies)} on {runs[0].trace}" if runs[0].trace else ", ".join(policies))
    return page(heading, _head(runs, figures, labels, drawn), panels)


def _head(
    runs: Sequence[RunRecord], figures: Sequence[RunFigures], labels: Sequence[str], drawn: Sequence[LabelledRun]
) -> str:
    fact_list = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(what)}</dd></div>" for name, what in facts(runs[0], figures[0])
    )
    sentences = [broken_off_sentence(*one) for one in zip(labels, runs, figures, strict=True)]
    warnings = "".join(f'<p class="warning" role="alert">{escape(sentence)}</p>' for sentence in sentences if sentence)
    cards = ""
    if len(runs) == 1:
        cards = "".join(
            f"<div class=tile><span>{escape(name)}</span><strong>{escape(value)}</strong><em>{escape(remark)}</em></div>"
            for name, value, remark in tiles(figures[0])
        )
        cards = f"<div class=tiles>{cards}</div>"
    seeds = ""
    if len(drawn) < len(runs):
        shown = ", ".join(f"{run.label} (seed {run.record.seed})" for run in drawn)
        seeds = f"<p>{count_of(len(runs), 'run')}; the pictures show {escape(shown)}.</p>"
    return (
        f"<dl class=facts>{fact_list}</dl>{warnings}{cards}{seeds}"
        f"<section class=figures><h2>Figures</h2>{table_html(figures_table(labels, figures))}</section>"
    )


def _labels(runs: Sequence[RunRecord]) -> list[str]:
    """The policy; with the seed where a policy has several runs."""
    policies = Counter(run.policy for run in runs)
    return [_name(run) if policies[run.policy] == 1 else f"{_name(run)}, seed {run.seed}" for run in runs]


def _first_of_each_policy(runs: Sequence[RunRecord]) -> list[LabelledRun]:
    first: dict[str, RunRecord] = {}
    for run in runs:
        first.setdefault(run.policy, run)
    return [LabelledRun(_name(run), run) for run in first.values()]


def _name(run: RunRecord) -> str:
    return run.policy or "run"
