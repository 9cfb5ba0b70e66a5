"""topmast data moves: tables that are on the way between regions, or were."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from services.command_line.connection import connect
from services.command_line.options import AddressOption, JsonOption, WideOption
from services.command_line.output import TextTable, note, show, show_json
from services.command_line.wording import moment

if TYPE_CHECKING:
    from topmast.warehouses import TableMove

MOST_SHOWN = 10_000

StateFilter = Annotated[
    str, typer.Option("--state", help="Only those in this state: planned, copying, switched, done, abandoned, ...")
]
TableFilter = Annotated[str, typer.Option("--table", help="Only those of this table.")]
LimitOption = Annotated[int, typer.Option("--limit", min=1, max=MOST_SHOWN, help="The newest so many.")]


def moves(
    state: StateFilter = "",
    table: TableFilter = "",
    limit: LimitOption = 100,
    wide: WideOption = False,
    address: AddressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show moves of tables, newest first: how far each is, and why it waits or was given up."""
    _check_state(state)
    with connect(address) as client:
        found = client.data.moves(state=state, table=table, limit=limit)
    if as_json:
        for one in found:
            show_json(one)
    elif not found:
        note("there are no such moves" if state or table else "no table has been moved")
    else:
        show(_table(found), wide=wide)


def _check_state(state: str) -> None:
    from data_placement.migrations.life_cycle import MigrationState

    states = [each.value for each in MigrationState]
    if state and state not in states:
        raise typer.BadParameter(f"there is no state {state}; the states are {', '.join(states)}")


def _table(found: tuple[TableMove, ...]) -> TextTable:
    rows = [
        (
            str(one.move),
            one.table,
            f"{one.source} to {one.target}",
            one.kind if one.newest_partitions is None else f"copy of newest {one.newest_partitions}",
            one.state,
            f"{_all_bytes(one):.4g}",
            _progress(one),
            "" if one.deadline_s is None else moment(one.deadline_s),
            one.reason,
        )
        for one in found
    ]
    head = ("move", "table", "regions", "kind", "state", "bytes", "copied", "by", "why")
    return TextTable("Moves of tables", head, rows, frozenset({0, 5, 6}), prose=frozenset({8}), least=(7, 5, 3, 2))


def _progress(one: TableMove) -> str:
    """The share that has been copied; empty before it begins."""
    if one.state == "planned":
        return ""
    size = _all_bytes(one)
    return f"{min(one.copied_bytes, size) / size:.0%}" if size else "100%"


def _all_bytes(one: TableMove) -> int:
    """Of the table, or of the partitions that are copied."""
    return one.size_bytes if one.newest_partitions is None else one.to_copy_bytes
