"""topmast data: where the tables of a warehouse are, and where they should be (MAST's Tetris)."""

from __future__ import annotations

import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from services.command_line.commands import data_catalog, data_explain
from services.command_line.exit_code import ExitCode
from services.command_line.failures import reported
from services.command_line.files import replayable
from services.command_line.options import AddressOption, JsonOption, in_a_folder
from services.command_line.output import note, show, show_json, show_line
from services.command_line.plan_options import (
    BoundOption,
    DisasterCopiesOption,
    FailureOption,
    HotShareOption,
    PartitionCopiesOption,
    ReplicasOption,
    SpareHardwareOption,
    SpareOption,
    failures_of,
    spare_shares_of,
)
from services.command_line.plan_view import plan_tables
from services.command_line.wording import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from data_placement.placement_plan import PlacementPlan
    from data_placement.plan_choices import PlanChoices
    from data_placement.solvers.plan import SavedSearch
    from domain.warehouse import Warehouse

app = typer.Typer(
    name="data", help="Where the tables of a warehouse are, and where they should be.", no_args_is_help=True
)
app.command("import")(data_catalog.import_warehouse)
app.command("export")(data_catalog.export_warehouse)
app.command("list")(data_catalog.list_tables)
app.command("apply")(data_catalog.apply_plan)
app.command("explain")(data_explain.explain_table)


class Version(StrEnum):
    """The paper's versions of its objective (§5.6)."""

    V0 = "v0"
    V1 = "v1"
    V2 = "v2"


class SolverName(StrEnum):
    """The ways to a better placement."""

    HILL_CLIMBING = "hill_climbing"
    SINGLE_MOVES = "single_moves"
    LATE_ACCEPTANCE = "late_acceptance"
    JOINT = "joint"
    MILP = "milp"


TablesOption = Annotated[int, typer.Option("--tables", min=10, help="How many tables.", show_default=False)]
RegionsOption = Annotated[int, typer.Option("--regions", min=2, max=63, help="How many regions.")]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="The same seed gives the same result.")]
OutFolderOption = Annotated[
    Path, typer.Option("-o", "--out", metavar="DIR", file_okay=False, callback=in_a_folder, show_default=False)
]
OptionalFolder = Annotated[
    Path | None,
    typer.Argument(metavar="[DIR]", help="A folder that describes a warehouse; none with --live.", show_default=False),
]
LiveOption = Annotated[bool, typer.Option("--live", help="Of the service, by its catalog and its configuration.")]
SolverOption = Annotated[
    SolverName | None,
    typer.Option("--solver", help="How to look for a better placement; hill_climbing if left out.", show_default=False),
]
VersionOption = Annotated[
    Version | None,
    typer.Option(
        "--version",
        help="v0: nothing moves; v1: overload costs no more than its opposite; v2 (if left out): it does.",
        show_default=False,
    ),
]
TimeLimitOption = Annotated[
    float | None,
    typer.Option("--time-limit", min=0.001, help="Seconds; what was found by then counts.", show_default=False),
]
QuotaOption = Annotated[
    float | None, typer.Option("--quota-bytes", min=0.0, help="To copy in a day at most.", show_default=False)
]
LinksOption = Annotated[
    bool | None, typer.Option("--links/--no-links", help="Keep to what links carry in a day.", show_default=False)
]
HomeShareOption = Annotated[
    float | None,
    typer.Option("--home-training", min=0.0, max=1.0, help="To be trained at home at least.", show_default=False),
]
PlanOption = Annotated[
    Path | None,
    typer.Option(
        "-o", "--out", metavar="FILE", dir_okay=False, callback=in_a_folder, help="Write new homes and copies (CSV)."
    ),
]
MovesOption = Annotated[int, typer.Option("--explain", min=0, help="Explain so many of the first moves.")]
SaveOption = Annotated[
    Path | None,
    typer.Option(
        "--save",
        metavar="FILE",
        dir_okay=False,
        callback=in_a_folder,
        help="Where a search that the time limit stops is kept.",
    ),
]
ResumeOption = Annotated[
    Path | None,
    typer.Option(
        "--resume",
        metavar="FILE",
        exists=True,
        dir_okay=False,
        callback=replayable,
        help="Go on with a search that was kept.",
    ),
]


@app.command("generate")
@reported()
def generate(tables: TablesOption, out: OutFolderOption, regions: RegionsOption = 10, seed: SeedOption = 1) -> None:
    """Make a warehouse with published statistics: a folder of Parquet files."""
    from numpy.random import default_rng

    from data_placement.warehouse_generator import generate_warehouse
    from formats.warehouse_folder import write_warehouse

    warehouse = generate_warehouse(tables, regions, default_rng(seed))
    write_warehouse(out, warehouse)
    pairs = len(warehouse.jobs.tables)
    show_line(
        f"wrote {tables:,} tables in {regions} regions, and {warehouse.jobs.count:,} jobs that read them {pairs:,} times, to {out}"
    )


@app.command("plan")
@reported()
def plan(
    folder: OptionalFolder = None,
    live: LiveOption = False,
    solver: SolverOption = None,
    version: VersionOption = None,
    time_limit: TimeLimitOption = None,
    quota_bytes: QuotaOption = None,
    links: LinksOption = None,
    home_training: HomeShareOption = None,
    replicas: ReplicasOption = None,
    disaster_copies: DisasterCopiesOption = None,
    spare_hardware: SpareHardwareOption = None,
    hot_share: HotShareOption = None,
    partition_copies: PartitionCopiesOption = None,
    failures: FailureOption = None,
    spare: SpareOption = None,
    bound: BoundOption = None,
    seed: SeedOption = 1,
    explain: MovesOption = 0,
    out: PlanOption = None,
    save: SaveOption = None,
    resume: ResumeOption = None,
    address: AddressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find better homes for the tables, and copies beside them; show what changes. Nothing is moved.

    With --live the plan stays with the service until `topmast data apply`.
    """
    chosen = {
        "solver": None if solver is None else solver.value,
        "preset": None if version is None else version.value,
        "time_limit_s": time_limit,
        "quota_bytes": quota_bytes,
        "keep_to_links": links,
        "home_training_share": home_training,
        "replicas": replicas,
        "disaster_copies": disaster_copies,
        "spare_hardware": spare_hardware,
        "hot_storage_share": hot_share,
        "partition_copies": partition_copies,
        "correlated_failures": failures_of(failures),
        "spare_gpu_shares": spare_shares_of(spare),
        "bound": bound,
        "seed": seed,
    }
    if live:
        from topmast.warehouses import PlacementChoices as LiveChoices

        if any(each is not None for each in (folder, out, save, resume)):
            raise typer.BadParameter("--live goes without a folder, --out, --save and --resume")
        data_catalog.plan_live(LiveChoices(**chosen), explain, address, as_json=as_json)  # type: ignore[arg-type]  # fields by name
        return
    if folder is None:
        raise typer.BadParameter("name a folder, or say --live")
    _plan_folder(folder, _choices_of(chosen), explain, out, save, resume, as_json=as_json)


def _choices_of(chosen: Mapping[str, object]) -> PlanChoices:
    """Of what was said; the rest is as it is by itself."""
    from data_placement.copy_choices import CorrelatedFailure, SpareShare
    from data_placement.plan_choices import PlanChoices

    given = {name: value for name, value in chosen.items() if value is not None}
    for name, kind in (("correlated_failures", CorrelatedFailure), ("spare_gpu_shares", SpareShare)):
        rows = given.get(name)
        if isinstance(rows, dict):
            rows = rows.items()
        if rows is not None:
            given[name] = tuple([kind(*row) for row in rows])  # type: ignore[attr-defined]  # rows of these two alone
    return PlanChoices(**given)  # type: ignore[arg-type]  # fields by name


def _plan_folder(
    folder: Path,
    choices: PlanChoices,
    explain: int,
    out: Path | None,
    save: Path | None,
    resume: Path | None,
    *,
    as_json: bool,
) -> None:
    from numpy.random import default_rng

    from data_placement.plan_choices import plan_by_choices
    from data_placement.plan_document import figures_document
    from formats.warehouse_folder import read_warehouse
    from services.simulation.memory import forget_peak_memory, peak_memory_mib

    forget_peak_memory()
    warehouse = read_warehouse(folder)
    begun_s = time.monotonic()
    found = plan_by_choices(
        warehouse,
        choices,
        default_rng(choices.seed),
        _watched(begun_s, choices.time_limit_s),
        resume=_kept(resume),
    )
    wall_s = time.monotonic() - begun_s
    if out is not None:
        _write_moves(out, warehouse, found)
    if save is not None and found.solution.saved is not None:
        _keep(save, found.solution.saved)
    figures = figures_document(warehouse, found, choices, wall_s, peak_memory_mib())
    if as_json:
        show_json(figures)
        return
    show(*plan_tables(figures))
    for remark in found.solution.remarks:
        note(remark)
    for sentence in _explained(warehouse, found, explain):
        show_line(sentence)
    show_line(
        f"{counted(len(found.solution.moves.table), 'table')} to move, {found.solution.moves.bytes.sum():.4g} bytes are copied "
        f"to new homes; planned in {wall_s:.1f} s{'' if found.solution.finished else ', stopped by the time limit'}"
    )


def _kept(path: Path | None) -> SavedSearch | None:
    """The arrays of a search that was kept. Ends the command where the file holds none."""
    import zipfile

    from numpy import load

    if path is None:
        return None
    try:
        with load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (zipfile.BadZipFile, ValueError, AttributeError, TypeError) as error:
        note(f"{path} holds no search: {error}; give a file that --save has written")
        raise typer.Exit(ExitCode.USAGE) from None


def _keep(path: Path, saved: SavedSearch) -> None:
    from numpy import savez

    from formats.atomic_file import atomic_file

    with atomic_file(path) as part, part.open("wb") as file:
        savez(file, **dict(saved))  # type: ignore[arg-type]  # NumPy's types take these arrays for an option
    note(f"the search is kept in {path}; go on with --resume {path}")


def _watched(begun_s: float, time_limit_s: float | None) -> Callable[[str, float], bool]:
    """Says on standard error how far it is, now and then, and stops at the time limit."""
    told = [begun_s]

    def progress(what: str, done: float) -> bool:
        now_s = time.monotonic()
        if now_s - told[0] >= 5.0:
            told[0] = now_s
            note(f"{what}: {done:.0%} after {now_s - begun_s:.0f} s")
        return time_limit_s is None or now_s - begun_s < time_limit_s

    return progress


def _explained(warehouse: Warehouse, found: PlacementPlan, count: int) -> list[str]:
    """A sentence for each of the first moves: which terms it improved by how much."""
    from data_placement.plan_document import move_reason

    moves, names = found.solution.moves, warehouse.regions.names
    sentences: list[str] = []
    for place in range(min(count, len(moves.table))):
        table = warehouse.tables.names[int(moves.table[place])]
        source, target = names[int(moves.source[place])], names[int(moves.target[place])]
        sentences.append(
            f"{table} moves from {source} to {target} ({moves.bytes[place]:.4g} bytes): {move_reason(found, place)}"
            f"{found.communities.clause(int(moves.table[place]))}"
        )
    return sentences


def _write_moves(path: Path, warehouse: Warehouse, found: PlacementPlan) -> None:
    """New homes and new copies, as `topmast simulate --table-moves` reads them; of new homes also what they gain."""
    import csv

    from data_placement.plan_document import proposed_moves
    from formats.atomic_file import atomic_file

    moves = found.solution.moves
    heads = ("table", "source", "target", "kind", "bytes", "priority", "newest_share")
    gains = ("reads_gain", "gpu_gain", "storage_gain")
    with atomic_file(path) as part, part.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow((*heads, *gains))
        for place, move in enumerate(proposed_moves(warehouse, found)):
            is_home = place < len(moves.table)
            size = int(moves.bytes[place]) if is_home else move.size_bytes
            gained = (
                [repr(float(term[place])) for term in (moves.reads, moves.gpu, moves.storage)] if is_home else [""] * 3
            )
            share = "" if move.newest_share is None else repr(move.newest_share)
            writer.writerow((move.table, move.source, move.target, move.kind, size, move.priority, share, *gained))
