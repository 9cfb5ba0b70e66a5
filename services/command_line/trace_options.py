"""The options of `topmast trace`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from services.command_line.files import STANDARD_INPUT, replayable
from services.command_line.options import existing
from services.command_line.trace_picture import picture_path

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
_is_time = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhdw]?)", re.ASCII).fullmatch


def seconds(text: str) -> float:
    """Seconds of `3600`, `90m`, `12h`, `3d`, `2w`; refuses anything else."""
    found = _is_time(text.strip())
    if not found:
        raise typer.BadParameter(f"'{text}' is no time; write seconds, or 90m, 12h, 3d, 2w")
    return float(found[1]) * _UNITS[found[2]]


def positive(value: float) -> float:
    """The value; refuses one that is not more than 0."""
    if not 0 < value < float("inf"):
        raise typer.BadParameter("must be more than 0")
    return value


def _positive_or_none(value: float | None) -> float | None:
    return value if value is None else positive(value)


def _readable(file: Path) -> Path:
    return Path("/dev/stdin") if file == STANDARD_INPUT else existing(file)


TraceArgument: TypeAlias = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        callback=_readable,
        help="A trace of any format of 'topmast trace formats', packed or not; - is standard input.",
        show_default=False,
    ),
]
FormatOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--format", help="What it is. Otherwise recognised by its first lines.", show_default=False),
]
StrictOption: TypeAlias = Annotated[
    bool, typer.Option("--strict", help="Stop at the first bad row, with line and column.")
]
DefaultTenantOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--default-tenant", help="Whose the rows are, where the trace does not say.", show_default=False),
]
GpusOnlyOption: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--gpus-only", help="Of GPU workloads forget CPUs, memory and tasks: they get their share, in tasks that fit."
    ),
]
JobsOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--jobs",
        exists=True,
        dir_okay=False,
        callback=replayable,
        help="Alibaba's pai_job_table.csv, beside its task table: whose each task is.",
        show_default=False,
    ),
]
OutputOption: TypeAlias = Annotated[
    Path,
    typer.Option(
        "--output",
        "-o",
        dir_okay=False,
        help="The new trace, packed if it ends in .gz; - is standard output.",
        show_default=False,
    ),
]
PictureOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--picture",
        dir_okay=False,
        callback=picture_path,
        help="Draw it into this file: .svg, .png or .html.",
        show_default=False,
    ),
]
SeedOption: TypeAlias = Annotated[
    int, typer.Option("--seed", min=0, help="What is drawn at random is drawn from this.")
]
FromOption: TypeAlias = Annotated[
    str | None, typer.Option("--from", help="Submitted then or later: 49d, 12h, 3600.", show_default=False)
]
UntilOption: TypeAlias = Annotated[str | None, typer.Option("--until", help="Submitted before.", show_default=False)]
TenantsFilter: TypeAlias = Annotated[
    list[str] | None, typer.Option("--tenant", help="Only of this tenant; may be repeated.", show_default=False)
]
RegionsFilter: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--region", help="Only bound to this region; may be repeated.", show_default=False),
]
ShareOption: TypeAlias = Annotated[
    float | None,
    typer.Option("--share", min=0.0, max=1.0, help="So much of them, at random: 0.1.", show_default=False),
]
CountOption: TypeAlias = Annotated[
    int | None, typer.Option("--count", min=1, help="The first so many of what is left.", show_default=False)
]
RebaseOption: TypeAlias = Annotated[bool, typer.Option("--rebase", help="Let the clock begin where the slice does.")]
ArrivalsOption: TypeAlias = Annotated[
    float, typer.Option("--arrivals", callback=positive, help="So many times as busy.")
]
DurationsOption: TypeAlias = Annotated[
    float, typer.Option("--durations", callback=positive, help="So many times as long.")
]
GpusFactorOption: TypeAlias = Annotated[
    float, typer.Option("--gpus", callback=positive, help="So many times as large.")
]
GpusAtMostOption: TypeAlias = Annotated[
    int | None, typer.Option("--gpus-at-most", min=1, help="Cut larger workloads down.", show_default=False)
]
CopiesOption: TypeAlias = Annotated[int, typer.Option("--copies", min=1, help="So many of each workload.")]
JitterOption: TypeAlias = Annotated[str, typer.Option("--jitter", help="Copies come up to so much earlier or later.")]
LoadOption: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--load",
        callback=_positive_or_none,
        help="Fit to this load of --for-gpus: 1.0 offers as much as they can do.",
        show_default=False,
    ),
]
ForGpusOption: TypeAlias = Annotated[
    int | None, typer.Option("--for-gpus", min=1, help="The fleet's GPUs, for --load.", show_default=False)
]
LoadByOption: TypeAlias = Annotated[
    str, typer.Option("--load-by", help="What is changed to reach the load: arrivals or durations.")
]
WorkloadsOption: TypeAlias = Annotated[
    int, typer.Option("--workloads", "-n", min=1, help="How many.", show_default=False)
]
ProfileOption: TypeAlias = Annotated[str, typer.Option("--profile", help="mast or hived: whose published figures.")]
SpanOption: TypeAlias = Annotated[str, typer.Option("--span", help="They are submitted within this time.")]
FleetOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--fleet",
        exists=True,
        dir_okay=False,
        callback=replayable,
        help="Fit sizes, models and tables to this fleet.yaml.",
        show_default=False,
    ),
]
TenantsOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--tenants",
        exists=True,
        dir_okay=False,
        callback=replayable,
        help="Give them to these tenants (YAML).",
        show_default=False,
    ),
]
SizesOption: TypeAlias = Annotated[
    float | None,
    typer.Option("--sizes", callback=_positive_or_none, help="So many times as large.", show_default=False),
]
DailySwingOption: TypeAlias = Annotated[
    float, typer.Option("--daily-swing", min=0.0, max=1.0, help="0: even; 1: nothing at the quietest hour.")
]
