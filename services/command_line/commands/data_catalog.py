"""topmast data, of a running service: its catalog of tables, plans of where they should be, and moves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from services.command_line.connection import CHANGING_ATTEMPTS, connect
from services.command_line.exit_code import ExitCode
from services.command_line.failures import reported
from services.command_line.options import AddressOption, JsonOption, WideOption, in_a_folder
from services.command_line.output import TextTable, note, show, show_json, show_line
from services.command_line.plan_view import plan_tables
from services.command_line.wording import counted, moment

if TYPE_CHECKING:
    from collections.abc import Iterable

    from topmast.warehouses import PlacementChoices, PlacementPlan, TableCopy, WarehouseTable

ImportArgument = Annotated[
    Path,
    typer.Argument(metavar="DIR", exists=True, file_okay=False, help="A warehouse folder.", show_default=False),
]
YesOption = Annotated[bool, typer.Option("--yes", help="Do it; otherwise only what would change is shown.")]
KeepOption = Annotated[bool, typer.Option("--keep-others", help="Tables of earlier imports that DIR lacks stay.")]
PlacesOption = Annotated[
    bool, typer.Option("--take-places", help="Known tables are where DIR says, and not where the catalog does.")
]
ExportOption = Annotated[
    Path, typer.Option("-o", "--out", metavar="DIR", file_okay=False, callback=in_a_folder, show_default=False)
]
RegionOption = Annotated[str, typer.Option("--region", help="Only tables of which this region has a copy.")]
NamespaceOption = Annotated[str, typer.Option("--namespace", help="Only tables whose name begins with it and a dot.")]
LimitOption = Annotated[int, typer.Option("--limit", min=1, help="At most so many.")]
PlanArgument = Annotated[
    int, typer.Argument(metavar="[PLAN]", min=0, help="Its number; the newest one that could be made if left out.")
]


@reported()
def import_warehouse(
    folder: ImportArgument,
    yes: YesOption = False,
    keep_others: KeepOption = False,
    take_places: PlacesOption = False,
    address: AddressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bring the tables of a warehouse folder, and who reads them, into the catalog: all or nothing."""
    with connect(address, CHANGING_ATTEMPTS) as client:
        done = client.data.import_folder(folder, dry_run=not yes, keep_others=keep_others, take_places=take_places)
    if as_json:
        show_json(done)
        return
    for remark in done.remarks:
        note(remark)
    would = "" if yes else "would be "
    show_line(
        f"{counted(done.tables, 'table')}: {done.new_tables:,} {would}new, {done.changed_tables:,} {would}changed, "
        f"{done.dropped_tables:,} others {would}dropped; {counted(done.partitions, 'partition')}, "
        f"{counted(done.readers, 'reader')}, {counted(done.reads, 'read')}"
    )
    if not yes:
        note("nothing was changed; --yes does it")


@reported()
def export_warehouse(out: ExportOption, address: AddressOption = None) -> None:
    """Write the catalog into a folder of Parquet files that `topmast data import` and `topmast data plan` read."""
    with connect(address) as client:
        client.data.export_folder(out)
    show_line(f"wrote the catalog to {out}")


@reported()
def list_tables(
    region: RegionOption = "",
    namespace: NamespaceOption = "",
    limit: LimitOption = 100,
    wide: WideOption = False,
    address: AddressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show tables by name: how large they are, where their home is, and where copies are."""
    with connect(address) as client:
        found = list(client.data.tables(region=region, namespace=namespace, limit=limit))
    if as_json:
        for table in found:
            show_json(table)
    elif not found:
        note("there is no such table in the catalog")
    else:
        show(tables_table(found), wide=wide)


@reported()
def apply_plan(
    plan: PlanArgument = 0, yes: YesOption = False, address: AddressOption = None, as_json: JsonOption = False
) -> None:
    """Begin the moves of a plan that `topmast data plan --live` made."""
    with connect(address, CHANGING_ATTEMPTS) as client:
        if not yes:
            found = client.data.plan(plan)
            if found.problem:
                note(f"plan {found.plan} could not be made: {found.problem}")
                raise typer.Exit(ExitCode.REFUSED)
            if as_json:
                show_json({"plan": found.plan, **found.figures})
            else:
                show(*plan_tables(found.figures))
            note(
                f"nothing was moved; topmast data apply {found.plan} --yes begins its {counted(found.all_moves, 'move')}"
            )
            return
        # By its number: should the answer be lost, the same plan is asked for again, and not a newer one.
        done = client.data.apply_plan(plan or client.data.plan().plan)
    if as_json:
        show_json(done)
        return
    show_line(
        f"plan {done.plan}, applied {moment(done.applied_s)}: {counted(done.moves, 'move')} of {done.bytes:.4g} bytes; "
        f"{done.passed_over:,} passed over"
    )


def plan_live(choices: PlacementChoices, explain: int, address: str | None, *, as_json: bool) -> None:
    """Has the service make a plan, and shows it. Ends the command where it cannot be made."""
    result: PlacementPlan | None = None
    said = ""
    with connect(address) as client:
        for progress in client.data.make_plan(choices):
            result = progress.result
            if progress.stage and progress.stage != said:
                said = progress.stage
                note(f"plan {progress.plan}: {said}")
        if result is not None and explain > 100:
            result = client.data.plan(result.plan, moves=min(explain, 10_000))
    if result is None or result.problem:
        note("there is no plan" if result is None else f"plan {result.plan} could not be made: {result.problem}")
        raise typer.Exit(ExitCode.REFUSED)
    if as_json:
        show_json({"plan": result.plan, **result.figures})
        return
    show(*plan_tables(result.figures))
    for move in result.moves[:explain]:
        show_line(
            f"{move.table}: {move.kind} from {move.source} to {move.target} ({move.size_bytes:,} bytes): {move.reason}"
        )
    show_line(
        f"plan {result.plan} has {counted(result.all_moves, 'move')}; topmast data apply {result.plan} --yes carries it out"
    )


def _held(copy: TableCopy) -> str:
    """What there is of a copy that is not complete."""
    if copy.partitions is None:
        return ""
    return f" ({copy.partitions} partitions, the newest {copy.newest_partitions or 0} of them without a gap)"


def tables_table(found: Iterable[WarehouseTable]) -> TextTable:
    rows = [
        (
            table.table,
            table.tenant,
            f"{table.size_bytes:,}",
            table.home,
            ", ".join(copy.region + _held(copy) for copy in table.copies),
            f"{table.partitions:,}",
            "" if table.last_partition_s is None else moment(table.last_partition_s),
        )
        for table in found
    ]
    heads = ("table", "tenant", "bytes", "home", "copies", "partitions", "newest")
    return TextTable("Tables", heads, rows, frozenset({2, 5}), prose=frozenset({4}), least=(6, 5, 1, 2))
