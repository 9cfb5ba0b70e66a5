"""topmast simulate: a trace under a policy, on a virtual clock."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from services.command_line.exit_code import ExitCode
from services.command_line.options import JsonOption, in_a_folder
from services.command_line.output import StageDisplay, note, show, show_json, show_line
from services.command_line.run_progress import RunsProgress
from services.command_line.run_view import (
    figures_of_run,
    figures_view,
    inputs_document,
    private_view,
    run_document,
    tell_run,
)
from services.command_line.simulation_options import (
    AgainstPrivateOption,
    AssignRegionsOption,
    ClearCacheOption,
    ClustersOption,
    ConfigOption,
    CopiesOnDemandOption,
    DefaultDurationOption,
    DistributionOption,
    FleetOption,
    FurtherTraceOption,
    GpuModelOption,
    GpusOption,
    GpusPerMachineOption,
    InferenceOption,
    LinkSpeedOption,
    LoansOption,
    ModelsOfTraceOption,
    NoCacheOption,
    NodesOption,
    ProfilesOption,
    RegionGpusOption,
    RegionsOfTraceOption,
    RegionsOption,
    ReportOption,
    SetOption,
    SnapshotOption,
    SynthesizeTablesOption,
    TableMovesOption,
    TenantsOption,
    VcsOfTraceOption,
    VcsOption,
    WithQuotasOption,
    fleet_source,
    input_source,
    sensitivity_of,
    sharing_of,
    simulation_settings,
    table_moves_of,
)
from services.command_line.snapshot_remarks import tell_snapshot
from services.command_line.trace_options import FormatOption, FromOption, GpusOnlyOption, StrictOption, UntilOption
from services.command_line.trace_remarks import tell_rows

if TYPE_CHECKING:
    from services.simulation.inputs import InputSource, SimulationInputs
    from services.simulation.interruption import Interruption
    from services.simulation.logged_run import LoggedRun
    from simulator.engine.settings import SimulationSettings
    from simulator.engine.simulation import RunProgress
    from simulator.policies.policy import Policy
    from simulator.results.figures import RunFigures

PolicyOption = Annotated[str, typer.Option("--policy", help="One of 'topmast policies'.")]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="What is drawn at random is drawn from this.")]


def _log_path(path: Path | None) -> Path | None:
    if path is not None and not path.name.removesuffix(".gz").endswith(".jsonl"):
        raise typer.BadParameter(f"an event log is called something.jsonl or something.jsonl.gz, not {path.name}")
    return in_a_folder(path)


EventsOption = Annotated[
    Path | None,
    typer.Option(
        "--events",
        dir_okay=False,
        metavar="OUT.jsonl[.gz]",
        callback=_log_path,
        help="Write the event log, and OUT.fleet.yaml and OUT.tenants.yaml beside it.",
        show_default=False,
    ),
]
ValidateOption = Annotated[
    bool, typer.Option("--validate", help="Check the invariants of the event log; the exit code is 1 on any violation.")
]


def simulate(
    trace: FurtherTraceOption = None,
    snapshot: SnapshotOption = None,
    default_duration: DefaultDurationOption = None,
    fleet: FleetOption = None,
    nodes: NodesOption = None,
    gpus: GpusOption = None,
    region_gpus: RegionGpusOption = None,
    gpus_per_machine: GpusPerMachineOption = 8,
    gpu_model: GpuModelOption = "V100",
    regions: RegionsOption = 1,
    clusters_per_region: ClustersOption = 1,
    tenants: TenantsOption = None,
    policy: PolicyOption = "mast",
    config: ConfigOption = None,
    changes: SetOption = None,
    seed: SeedOption = 1,
    events: EventsOption = None,
    validate: ValidateOption = False,
    report: ReportOption = None,
    format_name: FormatOption = None,
    strict: StrictOption = False,
    gpus_only: GpusOnlyOption = False,
    from_time: FromOption = None,
    until_time: UntilOption = None,
    regions_of_trace: RegionsOfTraceOption = False,
    assign_regions: AssignRegionsOption = False,
    synthesize_tables: SynthesizeTablesOption = False,
    loans: LoansOption = None,
    inference: InferenceOption = None,
    table_moves: TableMovesOption = None,
    copies_on_demand: CopiesOnDemandOption = False,
    link_bytes_per_s: LinkSpeedOption = None,
    distribution: DistributionOption = None,
    profiles: ProfilesOption = None,
    models_of_trace: ModelsOfTraceOption = None,
    vcs: VcsOption = None,
    vcs_of_trace: VcsOfTraceOption = False,
    with_quotas: WithQuotasOption = False,
    against_private: AgainstPrivateOption = False,
    no_cache: NoCacheOption = False,
    clear_cache: ClearCacheOption = False,  # noqa: ARG001 -- its callback has ended the command
    as_json: JsonOption = False,
) -> None:
    """Run a trace through the scheduler's own decisions, or those of another policy; print what it came to.

    With --snapshot the run goes on from a moment of a service, with or without a trace of what is submitted then.
    Ctrl-C breaks the run off and prints the figures of what was done so far; the exit code is then 130.
    """
    machines = fleet_source(
        fleet, nodes, gpus, region_gpus, gpus_per_machine=gpus_per_machine, gpu_model=gpu_model, regions=regions, clusters_per_region=clusters_per_region, snapshot=snapshot,
    )  # fmt: skip
    sharing = sharing_of(vcs, vcs_of_trace=vcs_of_trace, with_quotas=with_quotas, against_private=against_private)
    source = input_source(
        trace, machines, tenants, format_name=format_name, strict=strict, gpus_only=gpus_only, from_time=from_time, until_time=until_time,
        assign_regions=assign_regions, synthesize_tables=synthesize_tables, loans=loans, inference=inference, distribution=distribution,
        sensitivity=sensitivity_of(profiles, models_of_trace), sharing=sharing, snapshot=snapshot, default_duration=default_duration, table_moves=table_moves_of(table_moves, link_bytes_per_s, on_demand=copies_on_demand),
    )  # fmt: skip
    settings = simulation_settings(config, changes or [], regions_of_trace=regions_of_trace)
    _simulate(_RunRequest(source, settings, policy, seed, events, validate, report, not no_cache, as_json))


@dataclass(frozen=True, slots=True)
class _RunRequest:
    """What the options say, together."""

    source: InputSource
    settings: SimulationSettings
    policy: str
    seed: int
    events: Path | None
    validate: bool
    report: Path | None
    cached: bool
    as_json: bool


def _simulate(asked: _RunRequest) -> None:
    from services.runtime.kernels import compile_kernels
    from services.simulation.inputs import check_regions, read_inputs
    from services.simulation.interruption import Interruption

    policy = _policy_called(asked.policy)
    with StageDisplay("simulate") as say:
        say(f"reading {asked.source.name}")
        inputs = read_inputs(asked.source)
        check_regions(inputs, asked.settings)
        compile_kernels()
    tell_rows(inputs.trace)
    if inputs.snapshot is not None:
        tell_snapshot(inputs.snapshot, inputs.source.default_duration_s)
    with Interruption() as interruption:
        done = _run(asked, policy, inputs, interruption)
    interrupted = interruption.asked and done.run.record.broken_off
    if interrupted:
        note("interrupted: this is what was done so far")
    figures = figures_of_run(done.run)
    if asked.report is not None:
        from simulator.report.report import write_report

        write_report(asked.report, [done.run.record], [figures])
    _show(asked, inputs, done, figures)
    if done.run.laws or (done.validation is not None and not done.validation.valid):
        raise typer.Exit(ExitCode.NOT_WELL)
    if interrupted:
        raise typer.Exit(ExitCode.INTERRUPTED)


def _policy_called(name: str) -> Policy:
    from formats.problems import FormatError
    from simulator.policies.registry import policy_called

    try:
        return policy_called(name)
    except FormatError as error:
        raise FormatError("--policy", error.problems) from error


def _run(asked: _RunRequest, policy: Policy, inputs: SimulationInputs, interruption: Interruption) -> LoggedRun:
    """The run, with its progress shown; a wish to stop is granted at the next look."""
    from services.simulation.cache import SimulationCache, default_folder
    from services.simulation.inputs import input_of_run
    from services.simulation.logged_run import LogFiles, LoggedRun, logged_run
    from services.simulation.run import run_once
    from services.simulation.sharing import policy_of_run

    with RunsProgress([policy.name], inputs.trace.clock_zero_s) as view:

        def watch(progress: RunProgress) -> bool:
            view.say(0, progress)
            return not interruption.asked

        if asked.events is None and not asked.validate:
            cache = SimulationCache(default_folder()) if asked.cached else None
            run = run_once(inputs, policy, asked.settings, asked.seed, cache=cache, watcher=watch)
            return LoggedRun(run, None)
        sharing = inputs.source.sharing
        with_passes = policy_of_run(sharing, policy)
        return logged_run(
            input_of_run(inputs, with_passes, asked.seed),
            with_passes,
            asked.settings,
            asked.seed,
            files=LogFiles(asked.events) if asked.events is not None else None,
            validate=asked.validate,
            against_private=sharing.against_private,
            watcher=watch,
        )


def _show(asked: _RunRequest, inputs: SimulationInputs, done: LoggedRun, figures: RunFigures) -> None:
    from services.simulation.logged_run import LogFiles

    if asked.as_json:
        validation = done.validation.as_json() if done.validation is not None else None
        document = run_document(done.run, figures)
        show_json({**document, "inputs": inputs_document(inputs, asked.settings), "validation": validation})
    else:
        tables = [figures_view([figures.policy], [figures])]
        if done.run.against_private is not None:
            tables.append(private_view(figures.policy, done.run.against_private))
        show(*tables)
        if done.validation is not None:
            show_line(f"\n{done.validation}")
    tell_run(figures.policy, done.run, figures, inputs)
    if asked.events is not None:
        files = LogFiles(asked.events)
        note(f"the event log is in {files.events}; check it with")
        note(f"  topmast validate {files.events} --fleet {files.fleet} --tenants {files.tenants}")
    if asked.report is not None:
        note(f"the page is in {asked.report}")
