"""topmast trace: looking at traces of any known format, cutting and scaling them, making new ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from services.command_line.extras import Extra
from services.command_line.failures import reported
from services.command_line.files import STANDARD_INPUT
from services.command_line.options import JsonOption
from services.command_line.output import TextTable, note, show, show_json, show_line
from services.command_line.trace_options import (
    ArrivalsOption,
    CopiesOption,
    CountOption,
    DailySwingOption,
    DefaultTenantOption,
    DurationsOption,
    FleetOption,
    ForGpusOption,
    FormatOption,
    FromOption,
    GpusAtMostOption,
    GpusFactorOption,
    GpusOnlyOption,
    JitterOption,
    JobsOption,
    LoadByOption,
    LoadOption,
    OutputOption,
    PictureOption,
    ProfileOption,
    RebaseOption,
    RegionsFilter,
    SeedOption,
    ShareOption,
    SizesOption,
    SpanOption,
    StrictOption,
    TenantsFilter,
    TenantsOption,
    TraceArgument,
    UntilOption,
    WorkloadsOption,
    positive,
    seconds,
)
from services.command_line.trace_remarks import tell_rows
from services.command_line.wording import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from formats.trace import TraceRow
    from simulator.inputs.summary import TraceSummary
    from simulator.inputs.trace_files import Trace, TraceOptions

app = typer.Typer(name="trace", help="Job traces: look, cut, scale, make.", no_args_is_help=True)


@app.command("formats")
@reported(needs=Extra.SIMULATOR)
def formats(as_json: JsonOption = False) -> None:
    """List the formats that can be read."""
    from simulator.inputs.importers.registry import importers

    if as_json:
        show_json([{"format": importer.name, "title": importer.title} for importer in importers()])
        return
    show(TextTable("", ("format", "what it is"), [(importer.name, importer.title) for importer in importers()]))


@app.command("inspect")
@reported(needs=Extra.SIMULATOR)
def inspect(
    file: TraceArgument,
    format_name: FormatOption = None,
    picture: PictureOption = None,
    strict: StrictOption = False,
    default_tenant: DefaultTenantOption = None,
    gpus_only: GpusOnlyOption = False,
    jobs: JobsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what a trace asks for: how many, how large, how long, whose, and when. Bad rows are shown too."""
    from services.command_line.trace_view import load_chart, summary_tables
    from simulator.inputs.summary import summarise

    trace = _read(file, _options(format_name, strict, default_tenant, gpus_only, jobs))
    summary = summarise(trace.rows)
    if as_json:
        show_json(_as_json(file, trace, summary))
    else:
        show(*summary_tables(trace, summary))
        show_line("\n" + load_chart(summary.load))
        tell_rows(trace)
    if picture is not None:
        from services.command_line.trace_picture import write_picture

        title = f"{file.name}: {counted(summary.workloads, 'workload')}, {summary.gpu_hours:,.0f} GPU-hours"
        write_picture(picture, title, trace.rows, summary)
        note(f"drawn into {picture}")


@app.command("slice")
@reported(needs=Extra.SIMULATOR)
def slice_trace(
    file: TraceArgument,
    output: OutputOption,
    from_time: FromOption = None,
    until_time: UntilOption = None,
    tenant: TenantsFilter = None,
    region: RegionsFilter = None,
    share: ShareOption = None,
    count: CountOption = None,
    rebase: RebaseOption = False,
    seed: SeedOption = 1,
    format_name: FormatOption = None,
    strict: StrictOption = False,
    default_tenant: DefaultTenantOption = None,
    gpus_only: GpusOnlyOption = False,
    jobs: JobsOption = None,
) -> None:
    """Write a part of a trace as a generic trace. Without a condition it is all of it: a conversion."""
    from numpy.random import default_rng

    from simulator.inputs.slicing import Slice, slice_rows

    wanted = Slice(
        from_s=None if from_time is None else seconds(from_time),
        until_s=None if until_time is None else seconds(until_time),
        tenants=tuple(tenant or ()),
        regions=tuple(region or ()),
        share=share,
        count=count,
        rebase=rebase,
    )
    trace = _read(file, _options(format_name, strict, default_tenant, gpus_only, jobs))
    tell_rows(trace)
    kept = slice_rows(trace.rows, wanted, default_rng(seed))
    _write(output, kept, f"{len(kept):,} of {counted(len(trace.rows), 'workload')} of {file}")


@app.command("scale")
@reported(needs=Extra.SIMULATOR)
def scale(
    file: TraceArgument,
    output: OutputOption,
    arrivals: ArrivalsOption = 1.0,
    durations: DurationsOption = 1.0,
    gpus: GpusFactorOption = 1.0,
    greatest_gpus: GpusAtMostOption = None,
    copies: CopiesOption = 1,
    jitter: JitterOption = "0",
    load: LoadOption = None,
    for_gpus: ForGpusOption = None,
    load_by: LoadByOption = "arrivals",
    seed: SeedOption = 1,
    format_name: FormatOption = None,
    strict: StrictOption = False,
    default_tenant: DefaultTenantOption = None,
    gpus_only: GpusOnlyOption = False,
    jobs: JobsOption = None,
) -> None:
    """Write a trace made busier, longer, larger, repeated or fitted to a load, as a generic trace."""
    from numpy.random import default_rng

    from simulator.inputs.scaling import LoadBy, Scale, scale_rows

    _together(load, for_gpus)
    if load_by not in tuple(LoadBy):
        raise typer.BadParameter(f"--load-by is {' or '.join(LoadBy)}, not {load_by}")
    wanted = Scale(
        copies=copies,
        jitter_s=seconds(jitter),
        arrivals=arrivals,
        durations=durations,
        gpus=gpus,
        greatest_gpus=greatest_gpus,
        load=load,
        fleet_gpus=for_gpus or 0,
        load_by=LoadBy(load_by),
    )
    trace = _read(file, _options(format_name, strict, default_tenant, gpus_only, jobs))
    tell_rows(trace)
    try:
        made = scale_rows(trace.rows, wanted, default_rng(seed))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    _write(output, made, f"{counted(len(made), 'workload')} from {len(trace.rows):,} of {file}")


@app.command("generate")
@reported(needs=Extra.SIMULATOR)
def generate(
    output: OutputOption,
    workloads: WorkloadsOption,
    profile: ProfileOption = "mast",
    span: SpanOption = "1d",
    fleet: FleetOption = None,
    tenants: TenantsOption = None,
    load: LoadOption = None,
    for_gpus: ForGpusOption = None,
    size_factor: SizesOption = None,
    duration_factor: DurationsOption = 1.0,
    daily_swing: DailySwingOption = 0.0,
    seed: SeedOption = 1,
) -> None:
    """Write a trace that looks like a published one, from a seed (docs/formats.md has the figures)."""
    from dataclasses import replace

    from numpy.random import default_rng

    from formats.fleet_file import read_fleet_file
    from formats.tenants_file import read_tenants
    from simulator.workload_generator import GeneratorSettings, Profile, generate_workloads, with_load

    if profile not in tuple(Profile):
        raise typer.BadParameter(f"--profile is {' or '.join(Profile)}, not {profile}")
    _together(load, for_gpus)
    span_s = positive(seconds(span))
    people = read_tenants(tenants) if tenants is not None else ()
    kind = Profile(profile)
    settings = GeneratorSettings(workloads, span_s, profile=kind, tenants=people)
    if fleet is not None:
        try:
            described = read_fleet_file(fleet)
            settings = GeneratorSettings.for_fleet(
                described.fleet, people, workloads, tables=described.tables, profile=kind, span_s=span_s
            )
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error
    settings = replace(
        settings,
        size_factor=settings.size_factor if size_factor is None else size_factor,
        duration_factor=duration_factor,
        daily_swing=daily_swing,
    )
    rows = list(generate_workloads(settings, default_rng(seed)))
    if load is not None and for_gpus is not None:
        rows = with_load(rows, for_gpus, span_s, load)
    _write(output, rows, f"{counted(len(rows), 'workload')} of the profile {profile}, seed {seed}")


def _together(load: float | None, for_gpus: int | None) -> None:
    if (load is None) != (for_gpus is None):
        raise typer.BadParameter("--load and --for-gpus go together: the load is a share of that many GPUs")


def _options(
    format_name: str | None, strict: bool, default_tenant: str | None, gpus_only: bool, jobs: Path | None
) -> TraceOptions:
    from domain.identifiers import TenantId
    from simulator.inputs.trace_files import TraceOptions

    tenant = TenantId(default_tenant) if default_tenant is not None else None
    return TraceOptions(format_name, strict, tenant, gpus_only, jobs)


def _read(file: Path, options: TraceOptions) -> Trace:
    from simulator.inputs.trace_files import read_trace_file

    return read_trace_file(file, options)


def _as_json(file: Path, trace: Trace, summary: TraceSummary) -> dict[str, object]:
    from services.command_line.output import as_json

    figures = as_json(summary)
    if not isinstance(figures, dict):
        raise TypeError("a summary is an object")
    return {
        "file": str(file),
        "format": trace.format,
        "clock_zero_s": trace.clock_zero_s,
        **figures,
        "bad_rows": trace.row_report.bad_rows,
        "shown_bad_rows": as_json(trace.row_report.shown_bad_rows),
        "left_out": dict(trace.row_report.left_out),
        "adjusted": dict(trace.row_report.adjusted),
        "ignored_columns": list(trace.row_report.ignored_columns),
    }


def _write(output: Path, rows: Sequence[TraceRow], what: str) -> None:
    """Writes whole or not at all, and says what."""
    import sys

    from formats.atomic_file import atomic_file
    from formats.problems import FieldProblem, FormatError
    from formats.trace import write_trace, write_trace_rows

    if not rows:
        raise FormatError(
            str(output), [FieldProblem("", "would have no workload: nothing is left; nothing is written")]
        )
    if output == STANDARD_INPUT:
        write_trace_rows(sys.stdout, rows)
        note(f"{what}, written to standard output")
        return
    with atomic_file(output) as written:
        write_trace(written, rows)
    note(f"{what}, written to {output}")
