"""topmast report: what runs came to, from their event logs: a page for people, figures for programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from services.command_line.files import replayable
from services.command_line.options import JsonOption, existing
from services.command_line.output import StageDisplay, TextTable, note, show, show_json
from services.command_line.trace_options import seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from domain.fleet import Fleet
    from simulator.results.figures import RunFigures
    from simulator.results.run_record import RunRecord

EventsArgument = Annotated[
    list[Path],
    typer.Argument(
        metavar="EVENTS...",
        callback=lambda files: [replayable(existing(file)) for file in files],
        help="Event logs (JSON lines, packed or not), one per run; the first is what the others are compared with.",
        show_default=False,
    ),
]
FleetOption = Annotated[
    Path,
    typer.Option(
        "--fleet", exists=True, dir_okay=False, callback=replayable, help="The runs' fleet.yaml.", show_default=False
    ),
]
OutOption = Annotated[Path, typer.Option("--out", "-o", dir_okay=False, metavar="FILE", help="The page, HTML.")]
LabelOption = Annotated[
    list[str],
    typer.Option("--label", help="What to call a run, once per log. Otherwise its file's name.", show_default=False),
]
TitleOption = Annotated[str, typer.Option("--title", help="The page's title.", show_default=False)]
LimitOption = Annotated[
    list[float],
    typer.Option(
        "--slo-s",
        min=0.001,
        help="Within how many seconds a workload is to run, for each priority from 0 to 6; seven times.",
        show_default="600, and twice as long at each lower priority",
    ),
]
SeedOption = Annotated[int, typer.Option("--seed", help="Of the resamples behind confidence intervals.")]
WindowFromOption = Annotated[
    float | None,
    typer.Option(
        "--window-from",
        parser=seconds,
        metavar="TIME",
        help="Machines: show them from so long after the beginning on (12h, 3d, seconds). Otherwise the busiest time.",
        show_default=False,
    ),
]
WindowOption = Annotated[
    float | None,
    typer.Option("--window", parser=seconds, metavar="TIME", help="Machines: for so long.", show_default=False),
]
MachineOption = Annotated[
    list[str], typer.Option("--machine", help="Machines: show this one. May be repeated.", show_default=False)
]


def report(
    events: EventsArgument,
    fleet: FleetOption,
    out: OutOption = Path("report.html"),
    label: LabelOption = [],  # noqa: B006 -- typer makes a new list of it for each call
    title: TitleOption = "",
    slo_s: LimitOption = [],  # noqa: B006 -- as above
    seed: SeedOption = 1,
    window_from: WindowFromOption = None,
    window: WindowOption = None,
    machine: MachineOption = [],  # noqa: B006 -- as above
    as_json: JsonOption = False,
) -> None:
    """Make figures and a page from event logs, of the simulator or of the live service.

    The page is one file that needs no network. With several logs the runs are also compared, workload by workload.
    """
    import numpy as np

    from formats.fleet_file import read_fleet
    from simulator.report.gantt_panel import GanttChoice
    from simulator.report.report import write_report
    from simulator.results.comparison import compare_runs
    from simulator.results.figures import figures_of

    labels, limits_s = _labels(events, label), _limits(slo_s)
    choice = None
    if window_from is not None or window is not None or machine:
        choice = GanttChoice(window_from, window, tuple(machine))
    with StageDisplay("report") as say:
        read = read_fleet(fleet)
        runs = []
        for log, name in zip(events, labels, strict=True):
            say(f"reading {log}")
            runs.append(_read_run(log, read, name))
        figures = [figures_of(run, slo_limits_s=limits_s) for run in runs]
        comparison = None
        if len(runs) > 1:
            say("comparing")
            comparison = compare_runs(runs, figures, np.random.default_rng(seed))
        say(f"writing {out}")
        try:
            write_report(out, runs, figures, comparison, title=title, choice=choice)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--window-from, --window, --machine") from error
    if as_json:
        show_json(
            {
                "report": str(out),
                "runs": [figure.as_json() for figure in figures],
                "comparison": None if comparison is None else comparison.as_json(),
            }
        )
    else:
        show(_table(labels, figures))
        note(f"the page is in {out}")


def _limits(given: Sequence[float]) -> tuple[float, ...]:
    from simulator.results.service_levels import DEFAULT_LIMITS_S, check_limits

    try:
        return check_limits(tuple(given)) if given else DEFAULT_LIMITS_S
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--slo-s") from error


def _labels(events: Sequence[Path], given: Sequence[str]) -> list[str]:
    """One per log, no two alike."""
    if given and len(given) != len(events):
        raise typer.BadParameter(
            f"there are {len(events)} event logs and {len(given)} labels; give one for each log, in their order",
            param_hint="--label",
        )
    labels = list(given) or [_stem(file) for file in events]
    if len(set(labels)) < len(labels) and not given:
        # events.jsonl in several folders: the folders tell them apart.
        labels = [f"{file.resolve().parent.name}/{_stem(file)}" for file in events]
    twice = next((name for name in labels if labels.count(name) > 1), None)
    if twice is not None:
        raise typer.BadParameter(f"two runs are called {twice}; tell them apart with --label", param_hint="--label")
    return labels


def _stem(file: Path) -> str:
    return file.name.removesuffix(".gz").removesuffix(".jsonl")


def _read_run(log: Path, fleet: Fleet, name: str) -> RunRecord:
    from formats.event_log import read_records
    from services.command_line.files import STANDARD_INPUT
    from simulator.results.record_of_log import record_of_log

    file = Path("/dev/stdin") if log == STANDARD_INPUT else log
    return record_of_log(read_records(file), fleet, policy=name, source=str(log))


def _table(labels: Sequence[str], figures: Sequence[RunFigures]) -> TextTable:
    from simulator.report.overview import figures_table

    shown = figures_table(labels, figures)
    return TextTable("Figures", ("figure", *shown.head[1:]), shown.rows, right=frozenset(range(1, len(shown.head))))
