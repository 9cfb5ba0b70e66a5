"""topmast data explain: why a table is where it is, of a folder or of a running service."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from services.command_line.commands.data_catalog import tables_table
from services.command_line.connection import connect
from services.command_line.failures import not_there, reported
from services.command_line.options import AddressOption, JsonOption
from services.command_line.output import TextTable, show, show_json, show_line

if TYPE_CHECKING:
    from domain.warehouse import Warehouse
    from topmast.warehouses import TableExplanation, TableMove

NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="TABLE|DIR",
        help="A table of the service; or a folder that describes a warehouse, with a table of it behind.",
        show_default=False,
    ),
]
TableOfFolder = Annotated[str, typer.Argument(metavar="TABLE", help="A table of the folder.", show_default=False)]


@reported()
def explain_table(
    name: NameArgument, table: TableOfFolder = "", address: AddressOption = None, as_json: JsonOption = False
) -> None:
    """What each region would cost as the home of a table of a folder; of a table of the service, where it is and who reads it.

    `topmast data explain TABLE` asks the service, `topmast data explain DIR TABLE` reads a folder. Both say with which
    tables it belongs together, because the same jobs read them.
    """
    if table:
        explain_in_folder(Path(name), table, as_json=as_json)
        return
    if any((Path(name) / f"tables{ending}").is_file() for ending in (".parquet", ".csv")):
        raise typer.BadParameter(f"{name} is a folder of tables; name one of them behind it", param_hint="TABLE")
    explain_live(name, address, as_json=as_json)


def explain_in_folder(folder: Path, table: str, *, as_json: bool) -> None:
    """What each region would cost as its home, and the community of tables that it belongs to."""
    from data_placement.communities import communities_of
    from data_placement.community_explanation import describe_communities
    from data_placement.objective.goals import V2
    from data_placement.objective.problem import problem_of
    from data_placement.plan_choices import PlanChoices
    from data_placement.plan_document import community_document
    from formats.warehouse_folder import read_warehouse

    warehouse = read_warehouse(folder)
    place = _place_of(warehouse, table)
    problem = problem_of(warehouse, V2)
    community = describe_communities(warehouse, communities_of(problem, PlanChoices().seed)).of(place)
    rows = _cost_of_each_home(warehouse, place)
    readers = int(problem.reader_start[place + 1] - problem.reader_start[place])
    size = int(warehouse.tables.size_bytes[place])
    if as_json:
        show_json(
            {
                "table": table,
                "bytes": size,
                "readers": readers,
                "regions": rows,
                "community": None if community is None else community_document(community),
            }
        )
        return
    shown = [
        (
            str(row["region"]) + (" (home)" if row["home"] else ""),
            "yes" if row["legal"] else "no",
            *(f"{row[term]:+.3g}" for term in ("reads", "gpu", "storage")),
            f"{float(str(row['reads'])) + float(str(row['gpu'])) + float(str(row['storage'])):+.3g}",
        )
        for row in rows
    ]
    show_line(f"{table}: {size:,} bytes, {readers:,} jobs read it")
    show_line("it is read with no other table" if community is None else community.sentence)
    head = ("home in", "allowed", "reads", "gpu", "storage", "cost")
    show(TextTable("What moving its home would change; less is better", head, shown, frozenset({2, 3, 4, 5})))


def _cost_of_each_home(warehouse: Warehouse, place: int) -> list[dict[str, object]]:
    from data_placement.objective.goals import V2
    from data_placement.objective.placement_state import evaluate, scratch_of, state_of
    from data_placement.objective.problem import problem_of

    problem = problem_of(warehouse, V2)
    state, scratch = state_of(problem, warehouse.tables.home), scratch_of(problem)
    home = int(state.home[place])
    rows: list[dict[str, object]] = []
    for region, name in enumerate(warehouse.regions.names):
        if region == home:
            rows.append({"region": name, "home": True, "legal": True, "reads": 0.0, "gpu": 0.0, "storage": 0.0})
            continue
        change = evaluate(problem, state, scratch, place, region)
        rows.append(
            {
                "region": name,
                "home": False,
                "legal": bool(change.legal),
                "reads": float(change.reads),
                "gpu": float(change.gpu),
                "storage": float(change.storage),
            }
        )
    return rows


def _place_of(warehouse: Warehouse, table: str) -> int:
    """The table's place. Ends the command where there is no such table."""
    names = list(warehouse.tables.names)
    if table not in names:
        # Of a million names those that begin alike are near enough.
        alike = [name for name in names if name[:6] == table[:6]][:2_000]
        not_there(table, alike or names[:2_000], "table")
    return names.index(table)


def explain_live(table: str, address: str | None, *, as_json: bool) -> None:
    """Shows where a table of the service is, who reads it, and what is to become of it."""
    with connect(address) as client:
        found = client.data.explain(table)
    if as_json:
        show_json(found)
        return
    show(tables_table([found.table]))
    if found.readers:
        show(_readers(found))
    if found.community is not None:
        show_line(f"plan {found.community.plan}: {found.community.sentence}")
    for proposed in found.proposed:
        show_line(
            f"plan {proposed.plan}: {proposed.kind} from {proposed.source} to {proposed.target}: {proposed.reason}"
        )
    for move in found.moves:
        show_line(
            f"move {move.move}: {move.kind} {_part_of(move)}from {move.source} to {move.target} is {move.state}, "
            f"{move.copied_bytes:,} of {_bytes_of(move):,} bytes{': ' + move.reason if move.reason else ''}"
        )


def _part_of(move: TableMove) -> str:
    return "" if move.newest_partitions is None else f"of the newest {move.newest_partitions} partitions "


def _bytes_of(move: TableMove) -> int:
    return move.size_bytes if move.newest_partitions is None else move.to_copy_bytes


def _readers(found: TableExplanation) -> TextTable:
    rows = [
        (
            reader.reader,
            reader.kind,
            reader.gpu_model,
            str(reader.priority),
            f"{reader.gpu_hours:.4g}",
            f"{reader.cpu_hours:.4g}",
            f"{reader.other_tables:,}",
            reader.hint,
        )
        for reader in found.readers
    ]
    heads = ("reader", "kind", "GPU model", "priority", "GPU hours", "CPU hours", "other tables", "hint")
    title = f"Readers, {len(found.readers)} of {found.all_readers}; hours in a day"
    return TextTable(title, heads, rows, frozenset({3, 4, 5, 6}))
