"""The options that `topmast simulate` and `topmast compare` share, and what they ask for together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from services.command_line.files import STANDARD_INPUT, replayable
from services.command_line.options import existing, in_a_folder
from services.command_line.trace_options import seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from services.simulation.inputs import InputSource, Sensitivity, TableMovesSource
    from services.simulation.sharing import Sharing
    from simulator.engine.settings import SimulationSettings
    from simulator.inputs.fleets import FleetSource
    from simulator.inputs.slicing import Slice

TraceOption: TypeAlias = Annotated[
    Path,
    typer.Option(
        "--trace",
        metavar="FILE",
        callback=existing,
        help="A trace of any format of 'topmast trace formats', packed or not; - is standard input.",
        show_default=False,
    ),
]


def _existing_if_any(file: Path | None) -> Path | None:
    return None if file is None else existing(file)


FurtherTraceOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--trace",
        metavar="FILE",
        callback=_existing_if_any,
        help="A trace of any format of 'topmast trace formats', packed or not; - is standard input. With --snapshot "
        "it is what is submitted from then on.",
        show_default=False,
    ),
]
SnapshotOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--snapshot",
        exists=True,
        dir_okay=False,
        callback=replayable,
        metavar="FILE",
        help="Go on from this moment of a service ('topmast snapshot save'), with its machines and tenants.",
        show_default=False,
    ),
]
DefaultDurationOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--default-duration",
        metavar="DURATION",
        help="With --snapshot: so long workloads that are not emulated go on from then on: 90m, 2h.",
        show_default=False,
    ),
]
FleetOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--fleet",
        exists=True,
        dir_okay=False,
        callback=replayable,
        help="Machines: this fleet.yaml.",
        show_default=False,
    ),
]
NodesOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--nodes",
        exists=True,
        dir_okay=False,
        callback=replayable,
        help="Machines: those of this list of nodes (CSV).",
        show_default=False,
    ),
]
GpusOption: TypeAlias = Annotated[
    int | None, typer.Option("--gpus", min=1, help="Machines: so many GPUs in all.", show_default=False)
]
RegionGpusOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--region-gpus",
        metavar="REGION=GPUS,...",
        help="Machines: so many GPUs in each region: east=512,west=256.",
        show_default=False,
    ),
]
GpusPerMachineOption: TypeAlias = Annotated[
    int, typer.Option("--gpus-per-machine", min=1, help="With --gpus or --region-gpus.")
]
GpuModelOption: TypeAlias = Annotated[str, typer.Option("--gpu-model", help="With --gpus or --region-gpus.")]
RegionsOption: TypeAlias = Annotated[
    int, typer.Option("--regions", min=1, help="With --gpus or --nodes: divided into so many regions.")
]
ClustersOption: TypeAlias = Annotated[
    int, typer.Option("--clusters-per-region", min=1, help="With --gpus, --region-gpus or --nodes.")
]
TenantsOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--tenants",
        exists=True,
        dir_okay=False,
        callback=replayable,
        help="Priorities and quotas (YAML). Otherwise made from the trace.",
        show_default=False,
    ),
]
LoansOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--loans",
        exists=True,
        dir_okay=False,
        callback=replayable,
        help="Which clusters are for inference, and when they lend how many machines (CSV).",
        show_default=False,
    ),
]
TableMovesOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--table-moves",
        exists=True,
        dir_okay=False,
        callback=replayable,
        metavar="FILE",
        help="Tables that get another home, or copies, during the run (CSV, as 'topmast data plan -o' writes).",
        show_default=False,
    ),
]
CopiesOnDemandOption: TypeAlias = Annotated[
    bool, typer.Option("--copies-on-demand", help="Copy tables for workloads that wait for them.")
]
LinkSpeedOption: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--link-bytes-per-s",
        min=0.0,
        help="With --table-moves or --copies-on-demand: what each link between two regions carries.",
        show_default=False,
    ),
]
InferenceOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--inference",
        metavar="CLUSTER=SERIES[:FORECAST]",
        help="An inference cluster that lends what a series of its load (CSV) leaves idle, by a forecast; may be repeated.",
        show_default=False,
    ),
]
DistributionOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--distribution",
        exists=True,
        dir_okay=False,
        callback=replayable,
        metavar="FILE",
        help="Service of workloads that completed before, for policies that go by it (CSV with a column gpu_time_s).",
        show_default=False,
    ),
]
ProfilesOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--profiles",
        exists=True,
        dir_okay=False,
        callback=replayable,
        metavar="FILE",
        help="How fast the models that workloads name are with which CPUs and memory (CSV).",
        show_default=False,
    ),
]
ModelsOfTraceOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--models-of-trace",
        metavar="SPLIT",
        help="With --profiles: draw a model for workloads without one, by percentages of image, language and speech: 20-70-10.",
        show_default=False,
    ),
]
ConfigOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--config", exists=True, dir_okay=False, callback=replayable, help="Settings (YAML).", show_default=False
    ),
]
SetOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="One setting: costs.restore_s=0. May be repeated.", show_default=False
    ),
]
RegionsOfTraceOption: TypeAlias = Annotated[
    bool,
    typer.Option("--regions-of-trace", help="Workloads run in the region that the trace names; otherwise anywhere."),
]
AssignRegionsOption: TypeAlias = Annotated[
    bool,
    typer.Option("--assign-regions", help="Draw a region for workloads without one, by the regions' GPUs."),
]
SynthesizeTablesOption: TypeAlias = Annotated[
    bool, typer.Option("--synthesize-tables", help="Draw tables that workloads read, as shared at MAST.")
]
VcsOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--vcs",
        exists=True,
        dir_okay=False,
        callback=replayable,
        help="Virtual clusters by tenant (YAML; a tenants.yaml is such a file): the clusters they name are divided into cells.",
        show_default=False,
    ),
]
VcsOfTraceOption: TypeAlias = Annotated[
    bool,
    typer.Option("--vcs-of-trace", help="Give each tenant of the trace a virtual cluster by its share of the work."),
]
WithQuotasOption: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--with-quotas",
        help="Policies without scan passes make them too, so that work beyond a tenant's quota is opportunistic.",
    ),
]
AgainstPrivateOption: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--against-private",
        help="Simulate each tenant that owns cells also alone with these, and compare how long its workloads wait.",
    ),
]
NoCacheOption: TypeAlias = Annotated[
    bool, typer.Option("--no-cache", help="Neither look for runs that were made before, nor keep these.")
]
ReportOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--report",
        dir_okay=False,
        metavar="FILE",
        callback=in_a_folder,
        help="Write a page of pictures, HTML.",
        show_default=False,
    ),
]


def _clear(asked: bool) -> None:
    if not asked:
        return
    from services.command_line.output import note
    from services.command_line.wording import counted
    from services.simulation.cache import SimulationCache, default_folder

    cache = SimulationCache(default_folder())
    note(f"removed {counted(cache.clear(), 'run')} from {cache.folder}")
    raise typer.Exit


ClearCacheOption: TypeAlias = Annotated[
    bool,
    typer.Option("--clear-cache", is_eager=True, callback=_clear, help="Remove all runs that were kept, and exit."),
]


def fleet_source(
    fleet: Path | None,
    nodes: Path | None,
    gpus: int | None,
    region_gpus: str | None,
    *,
    gpus_per_machine: int,
    gpu_model: str,
    regions: int,
    clusters_per_region: int,
    snapshot: Path | None = None,
) -> FleetSource | None:
    """Which machines there are; refuses two ways to say it, and none. With a snapshot None: those that it has."""
    from simulator.inputs.fleets import FleetSource, parse_region_gpus

    ways = {"--fleet": fleet, "--nodes": nodes, "--gpus": gpus, "--region-gpus": region_gpus}
    said = [name for name, value in ways.items() if value is not None]
    if snapshot is not None and not said:
        return None
    if len(said) != 1:
        found = f"{' and '.join(said)} are given" if said else "none is given"
        raise typer.BadParameter(f"say one of {', '.join(ways)}: {found}")
    return FleetSource(
        file=fleet or nodes,
        gpus=gpus,
        region_gpus=parse_region_gpus(region_gpus) if region_gpus is not None else (),
        regions=regions,
        clusters_per_region=clusters_per_region,
        gpus_per_machine=gpus_per_machine,
        gpu_model=gpu_model,
    )


def input_source(
    trace: Path | None,
    fleet: FleetSource | None,
    tenants: Path | None,
    *,
    format_name: str | None,
    strict: bool,
    gpus_only: bool,
    from_time: str | None,
    until_time: str | None,
    assign_regions: bool,
    synthesize_tables: bool,
    loans: Path | None,
    inference: Sequence[str] | None = None,
    distribution: Path | None = None,
    sensitivity: Sensitivity | None = None,
    snapshot: Path | None = None,
    default_duration: str | None = None,
    sharing: Sharing | None = None,
    table_moves: TableMovesSource | None = None,
) -> InputSource:
    """Where everything comes from; refuses what a snapshot has already to be drawn or lent besides."""
    if trace is None and snapshot is None:
        raise typer.BadParameter("say --trace, --snapshot or both: what is to be simulated?")
    if snapshot is None and default_duration is not None:
        raise typer.BadParameter("--default-duration is about workloads of a snapshot; say --snapshot too")
    alone = {"--synthesize-tables": synthesize_tables, "--loans": loans is not None, "--inference": bool(inference)}
    if sharing is not None:
        alone |= {
            "--vcs": sharing.file is not None,
            "--vcs-of-trace": sharing.of_trace,
            "--against-private": sharing.against_private,
        }
    for option, said in alone.items():
        if snapshot is not None and said:
            raise typer.BadParameter(
                f"{option} does not go with --snapshot: that has tables, machines and virtual clusters of its own"
            )
    from services.simulation.inputs import InputSource, Sensitivity
    from services.simulation.sharing import Sharing
    from simulator.inputs.trace_files import TraceOptions

    return InputSource(
        trace=Path("/dev/stdin") if trace == STANDARD_INPUT else trace,
        fleet=fleet,
        tenants=tenants,
        options=TraceOptions(format_name, strict, gpus_only=gpus_only),
        window=_window(from_time, until_time),
        assign_regions=assign_regions,
        synthesize_tables=synthesize_tables,
        loans=loans,
        inference=tuple(inference or ()),
        distribution=distribution,
        sensitivity=sensitivity or Sensitivity(),
        snapshot=snapshot,
        default_duration_s=None if default_duration is None else seconds(default_duration),
        sharing=sharing or Sharing(),
        table_moves=table_moves,
    )


def table_moves_of(file: Path | None, link_bytes_per_s: float | None, *, on_demand: bool) -> TableMovesSource | None:
    """What is said of tables that move; None: nothing, and they stay. Refuses a speed of links over which nothing moves."""
    from data_placement.links import DEFAULT_BYTES_PER_S
    from services.simulation.inputs import TableMovesSource

    if file is None and not on_demand:
        if link_bytes_per_s is not None:
            raise typer.BadParameter(
                "--link-bytes-per-s says how fast tables move; say --table-moves or --copies-on-demand"
            )
        return None
    rate = DEFAULT_BYTES_PER_S if link_bytes_per_s is None else link_bytes_per_s
    return TableMovesSource(file, on_demand, rate)


def sensitivity_of(profiles: Path | None, models_of_trace: str | None) -> Sensitivity:
    """What is said of CPUs and memory; refuses models without profiles to draw them from."""
    from services.simulation.inputs import Sensitivity
    from simulator.inputs.models import ModelSplit

    if models_of_trace is not None and profiles is None:
        raise typer.BadParameter("--models-of-trace draws models that have profiles; say --profiles too")
    return Sensitivity(profiles, None if models_of_trace is None else ModelSplit.parse(models_of_trace))


def _window(from_time: str | None, until_time: str | None) -> Slice:
    """The part of the trace that is wanted."""
    from simulator.inputs.slicing import Slice

    return Slice(
        from_s=None if from_time is None else seconds(from_time),
        until_s=None if until_time is None else seconds(until_time),
    )


def sharing_of(vcs: Path | None, *, vcs_of_trace: bool, with_quotas: bool, against_private: bool) -> Sharing:
    """What is said of virtual clusters; refuses two ways to say which there are."""
    from services.simulation.sharing import Sharing

    if vcs is not None and vcs_of_trace:
        raise typer.BadParameter("say --vcs or --vcs-of-trace, not both: which virtual clusters are there?")
    return Sharing(vcs, vcs_of_trace, with_quotas, against_private)


def simulation_settings(config: Path | None, changes: Sequence[str], *, regions_of_trace: bool) -> SimulationSettings:
    """The settings of the file, then the changes; workloads are bound to the trace's regions only where that is said."""
    from formats.text_stream import read_text
    from formats.yaml_document import load_document
    from simulator.engine.settings import settings_from

    document = load_document(read_text(config), str(config)) if config is not None else {}
    if isinstance(document, dict):
        document = {"trace_regions_bind": False, **document}
    bind = ["trace_regions_bind=true"] if regions_of_trace else []
    return settings_from(document, [*changes, *bind], "--set" if config is None else str(config))
