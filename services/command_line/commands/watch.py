"""topmast watch: a workload as it changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from services.command_line.connection import connect
from services.command_line.exit_code import ExitCode
from services.command_line.options import AddressOption, JsonOption, WorkloadArgument
from services.command_line.output import as_shown, is_terminal, rich_table, show_json, show_line
from services.command_line.table_fit import fit
from services.command_line.workload_view import attempts_table, change_line, details_table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from topmast import Workload


def watch(workload: WorkloadArgument, address: AddressOption = None, as_json: JsonOption = False) -> None:
    """Follow a workload until it has ended. The exit code is 1 unless it completed."""
    with connect(address) as client:
        changes = client.watch(workload)
        last = _show_live(changes) if is_terminal() and not as_json else _show_lines(changes, as_json)
    if last is None or last.state != "COMPLETED":
        raise typer.Exit(ExitCode.NOT_WELL)


def _show_lines(changes: Iterable[Workload], as_json: bool) -> Workload | None:
    now = None
    last_line = ""
    for now in changes:
        if as_json:
            show_json(now)
        elif (line := change_line(now)) != last_line:
            show_line(line)
            last_line = line
    return now


def _show_live(changes: Iterable[Workload]) -> Workload | None:
    from rich.console import Group
    from rich.live import Live

    now = None
    with Live(auto_refresh=False) as live:
        for now in changes:
            tables = [details_table(now)]
            if now.attempts:
                tables.append(attempts_table(now.attempts))
            live.update(
                Group(*(rich_table(fit(as_shown(table), live.console.width)) for table in tables)), refresh=True
            )
    return now
