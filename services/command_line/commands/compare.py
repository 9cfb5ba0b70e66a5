"""topmast compare: a trace under several policies, compared workload by workload."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from services.command_line.exit_code import ExitCode
from services.command_line.options import JsonOption
from services.command_line.output import StageDisplay, note, show, show_json
from services.command_line.run_progress import RunsProgress
from services.command_line.run_view import (
    figures_of_run,
    figures_view,
    inputs_document,
    pairs_view,
    private_view,
    run_document,
    tell_run,
)
from services.command_line.simulation_options import (
    AgainstPrivateOption,
    AssignRegionsOption,
    ClustersOption,
    ConfigOption,
    CopiesOnDemandOption,
    DistributionOption,
    FleetOption,
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
    SynthesizeTablesOption,
    TableMovesOption,
    TenantsOption,
    TraceOption,
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
from services.command_line.trace_options import FormatOption, FromOption, GpusOnlyOption, StrictOption, UntilOption
from services.command_line.trace_remarks import tell_rows
from services.command_line.wording import counted

if TYPE_CHECKING:
    from services.simulation.inputs import InputSource, SimulationInputs
    from services.simulation.interruption import Interruption
    from services.simulation.run import FinishedRun
    from services.simulation.worker_pool import RunRequest
    from simulator.engine.settings import SimulationSettings
    from simulator.results.comparison import Comparison
    from simulator.results.figures import RunFigures

MOST_SEEDS = 1_000
_is_range = re.compile(r"(\d{1,9})(?:\.\.(\d{1,9}))?", re.ASCII).fullmatch

PoliciesOption = Annotated[
    str,
    typer.Option(
        "--policies",
        metavar="A,B,...",
        help="Of 'topmast policies'; the first is what the others are compared with.",
        show_default=False,
    ),
]
SeedsOption = Annotated[str, typer.Option("--seeds", help="One run of each policy for each seed: 1..5 or 1,2,7.")]
JobsOption = Annotated[int, typer.Option("--jobs", min=1, max=256, help="So many runs at once, a process for each.")]


def compare(
    trace: TraceOption,
    policies: PoliciesOption,
    fleet: FleetOption = None,
    nodes: NodesOption = None,
    gpus: GpusOption = None,
    region_gpus: RegionGpusOption = None,
    gpus_per_machine: GpusPerMachineOption = 8,
    gpu_model: GpuModelOption = "V100",
    regions: RegionsOption = 1,
    clusters_per_region: ClustersOption = 1,
    tenants: TenantsOption = None,
    config: ConfigOption = None,
    changes: SetOption = None,
    seeds: SeedsOption = "1",
    jobs: JobsOption = 2,
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
    as_json: JsonOption = False,
) -> None:
    """Run a trace under several policies, and compare them workload by workload.

    Ctrl-C ends the runs that are not finished and compares the others; the exit code is then 130.
    """
    machines = fleet_source(
        fleet, nodes, gpus, region_gpus,
        gpus_per_machine=gpus_per_machine, gpu_model=gpu_model,
        regions=regions, clusters_per_region=clusters_per_region,
    )  # fmt: skip
    sharing = sharing_of(vcs, vcs_of_trace=vcs_of_trace, with_quotas=with_quotas, against_private=against_private)
    source = input_source(
        trace, machines, tenants,
        format_name=format_name, strict=strict, gpus_only=gpus_only, from_time=from_time, until_time=until_time,
        assign_regions=assign_regions, synthesize_tables=synthesize_tables, loans=loans, inference=inference, sharing=sharing,
        distribution=distribution, sensitivity=sensitivity_of(profiles, models_of_trace),
        table_moves=table_moves_of(table_moves, link_bytes_per_s, on_demand=copies_on_demand),
    )  # fmt: skip
    settings = simulation_settings(config, changes or [], regions_of_trace=regions_of_trace)
    requests = _requests(_names(policies), parse_seeds(seeds))
    _compare(_ComparisonRequest(source, settings, requests, jobs, report, not no_cache, as_json))


@dataclass(frozen=True, slots=True)
class _ComparisonRequest:
    """What the options say, together."""

    source: InputSource
    settings: SimulationSettings
    requests: Sequence[RunRequest]
    jobs: int
    report: Path | None
    cached: bool
    as_json: bool


@dataclass(frozen=True, slots=True)
class _FinishedRun:
    """A finished run and its figures."""

    label: str
    run: FinishedRun
    figures: RunFigures


def parse_seeds(text: str) -> tuple[int, ...]:
    """Seeds from `1..5` or `1,2,7`, each once, in their order; refuses anything else."""
    seeds: dict[int, None] = {}
    for part in text.split(","):
        found = _is_range(part.strip())
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if first > last or last - first >= MOST_SEEDS:
            raise typer.BadParameter(
                f"'{part}' is no seed; write 1..5 or 1,2,7, at most {MOST_SEEDS}", param_hint="--seeds"
            )
        seeds |= dict.fromkeys(range(first, last + 1))
    return tuple(seeds)


def _names(text: str) -> list[str]:
    """The policies, checked; refuses an unknown one, one that is there twice, and only one."""
    from simulator.policies.registry import policies, policy_called

    known = policies()
    names = [policy_called(name.strip(), known).name for name in text.split(",") if name.strip()]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise typer.BadParameter(f"{twice} is there twice", param_hint="--policies")
    if len(names) < 2:
        raise typer.BadParameter(
            "name at least two policies: --policies fifo,mast; 'topmast simulate' runs one", param_hint="--policies"
        )
    return names


def _requests(policies: Sequence[str], seeds: Sequence[int]) -> list[RunRequest]:
    """All policies of the first seed first: what is interrupted can still be compared."""
    from services.simulation.worker_pool import RunRequest

    return [RunRequest(policy, seed) for seed in seeds for policy in policies]


def _compare(asked: _ComparisonRequest) -> None:
    from services.simulation.inputs import check_regions, read_inputs
    from services.simulation.interruption import Interruption

    with StageDisplay("compare") as say:
        say(f"reading {asked.source.trace}")
        inputs = read_inputs(asked.source)
        check_regions(inputs, asked.settings)
    tell_rows(inputs.trace)
    with Interruption() as interruption:
        runs = _run_all(asked, inputs, interruption)
    missing = [request for request, run in zip(asked.requests, runs, strict=True) if run is None]
    finished = [
        _FinishedRun(f"{request.policy}, seed {request.seed}", run, figures_of_run(run))
        for request, run in zip(asked.requests, runs, strict=True)
        if run is not None
    ]
    # Policy by policy, as in the report.
    order = list(dict.fromkeys(request.policy for request in asked.requests))
    finished.sort(key=lambda one: (order.index(one.figures.policy), one.figures.seed))
    comparison = _comparison(finished)
    if asked.report is not None and finished:
        _write_report(asked.report, finished, comparison)
    _show(asked, inputs, finished, comparison, missing)
    if missing:
        unfinished = ", ".join(f"{request.policy} (seed {request.seed})" for request in missing)
        note(f"interrupted: {counted(len(missing), 'run')} of {len(runs)} not finished and left out: {unfinished}")
    if any(one.run.laws for one in finished):
        raise typer.Exit(ExitCode.NOT_WELL)
    if missing:
        raise typer.Exit(ExitCode.INTERRUPTED)


def _run_all(
    asked: _ComparisonRequest, inputs: SimulationInputs, interruption: Interruption
) -> list[FinishedRun | None]:
    """By the position of its request; None for what was not finished when the user broke off."""
    from services.simulation.cache import default_folder
    from services.simulation.worker_pool import WorkerSetup, run_all

    runs: list[FinishedRun | None] = [None] * len(asked.requests)
    labels = [f"{request.policy}, seed {request.seed}" for request in asked.requests]
    with RunsProgress(labels, inputs.trace.clock_zero_s) as view:

        def finished(position: int, run: FinishedRun) -> None:
            runs[position] = run
            view.ended(position)

        run_all(
            WorkerSetup(inputs, asked.settings, default_folder() if asked.cached else None),
            asked.requests,
            asked.jobs,
            on_progress=view.say,
            on_finished=finished,
            go_on=lambda: not interruption.asked,
        )
    return runs


def _comparison(finished: Sequence[_FinishedRun]) -> Comparison | None:
    """Of those policies that have a seed in common with the first one; None when there are not two."""
    import numpy as np

    from simulator.results.comparison import compare_runs

    if not finished:
        return None
    baseline = finished[0].figures.policy
    seeds = {one.figures.seed for one in finished if one.figures.policy == baseline}
    paired = {one.figures.policy for one in finished if one.figures.seed in seeds}
    compared = [one for one in finished if one.figures.policy in paired]
    if len(paired) < 2:
        return None
    figures = [one.figures for one in compared]
    return compare_runs([one.run.record for one in compared], figures, np.random.default_rng(min(seeds)))


def _seeds_are_alike(finished: Sequence[_FinishedRun]) -> bool:
    """Whether there are several runs of every policy, and they differ in nothing but their seed."""
    by_policy: dict[str, list[RunFigures]] = {}
    for one in finished:
        alike = replace(one.figures, seed=0, wall_s=None, peak_rss_mib=None)
        by_policy.setdefault(alike.policy, []).append(alike)
    return bool(by_policy) and all(len(runs) > 1 and all(run == runs[0] for run in runs) for runs in by_policy.values())


def _write_report(path: Path, finished: Sequence[_FinishedRun], comparison: Comparison | None) -> None:
    from simulator.report.report import write_report

    write_report(path, [one.run.record for one in finished], [one.figures for one in finished], comparison)


def _show(
    asked: _ComparisonRequest,
    inputs: SimulationInputs,
    finished: Sequence[_FinishedRun],
    comparison: Comparison | None,
    missing: Sequence[RunRequest],
) -> None:
    if asked.as_json:
        show_json(
            {
                "report": str(asked.report) if asked.report is not None and finished else None,
                "runs": [run_document(one.run, one.figures) for one in finished],
                "comparison": None if comparison is None else comparison.as_json(),
                "missing": [{"policy": request.policy, "seed": request.seed} for request in missing],
                "inputs": inputs_document(inputs, asked.settings),
            }
        )
    elif finished:
        several = len({one.figures.seed for one in finished}) > 1
        labels = [one.label if several else one.figures.policy for one in finished]
        tables = [figures_view(labels, [one.figures for one in finished])]
        if comparison is not None:
            tables.append(pairs_view(comparison))
        tables += [
            private_view(label, one.run.against_private)
            for label, one in zip(labels, finished, strict=True)
            if one.run.against_private is not None
        ]
        show(*tables)
    if _seeds_are_alike(finished):
        note("all seeds gave the same runs: nothing here is drawn from them, so one is enough")
    for one in finished:
        tell_run(one.label, one.run, one.figures, inputs)
    if asked.report is not None and finished:
        note(f"the page is in {asked.report}")
