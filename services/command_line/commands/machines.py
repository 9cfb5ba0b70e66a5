"""topmast machines: machines, what is on them, and why they take no work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from domain.fleet import MachineState
from services.command_line.commands.fleet import ClusterFilter, ModelFilter, RegionFilter
from services.command_line.connection import connect
from services.command_line.options import AddressOption, JsonOption
from services.command_line.output import TextTable, note, show, show_json
from services.command_line.wording import moment

if TYPE_CHECKING:
    from topmast import FleetMachine

RackFilter = Annotated[str, typer.Option("--rack", help="Only this rack.", show_default=False)]
StateOption = Annotated[
    list[MachineState] | None,
    typer.Option("--state", case_sensitive=False, help="Only in this state; may be repeated.", show_default=False),
]
OccupiedOption = Annotated[bool, typer.Option("--occupied", help="Only those on which something is.")]
LimitOption = Annotated[int, typer.Option("--limit", min=1, max=1_000, help="Of one page.")]
PageTokenOption = Annotated[
    str, typer.Option("--page-token", help="Goes on where the last page ended.", show_default=False)
]
AllOption = Annotated[bool, typer.Option("--all", help="All pages.")]

_SHOWN_HOLDERS = 3


def machines(
    region: RegionFilter = "",
    cluster: ClusterFilter = "",
    rack: RackFilter = "",
    state: StateOption = None,
    gpu_model: ModelFilter = None,
    occupied: OccupiedOption = False,
    limit: LimitOption = 100,
    page_token: PageTokenOption = "",
    every_page: AllOption = False,
    address: AddressOption = None,
    as_json: JsonOption = False,
) -> None:
    """List machines by name, with their state, what of them is in use, and who is on them."""
    from topmast.machines import MachineFilter

    wanted = MachineFilter(
        region=region,
        cluster=cluster,
        rack=rack,
        states=[one.value for one in state or ()],
        gpu_model=gpu_model,
        occupied=occupied,
    )
    next_token = ""
    with connect(address) as client:
        if every_page:
            found = client.machines(**wanted)
        else:
            page = client.machines_page(page_size=limit, page_token=page_token, **wanted)
            found, next_token = (one for one in page.machines), page.next_page_token
        if as_json:
            for machine in found:
                show_json(machine)
        else:
            _show([_row(machine) for machine in found])
    if next_token:
        note(f"there are more: --page-token {next_token}, or --all")


def _show(rows: list[tuple[str, ...]]) -> None:
    if not rows:
        note("no machine is like that")
        return
    head = ("machine", "region", "cluster", "rack", "state", "gpu model", "gpus", "in use", "on it", "why")
    show(TextTable("Machines", head, rows, right=frozenset({6, 7})))


def _row(machine: FleetMachine) -> tuple[str, ...]:
    return (
        machine.machine,
        machine.region,
        machine.cluster,
        machine.rack,
        machine.state,
        machine.gpu_model,
        str(machine.gpus),
        str(machine.gpus_in_use),
        _holders(machine),
        "; ".join(why for why in (machine.down_reason, _drain(machine)) if why),
    )


def _holders(machine: FleetMachine) -> str:
    names = [f"{one.workload}#{one.attempt} ({one.tenant})" for one in machine.holders]
    more = len(names) - _SHOWN_HOLDERS
    return ", ".join(names[:_SHOWN_HOLDERS]) + (f" and {more} more" if more > 0 else "")


def _drain(machine: FleetMachine) -> str:
    """Why, and until when what is on it may stay."""
    drain = machine.drain
    if drain is None:
        return ""
    if not machine.holders:
        return drain.reason
    if drain.deadline_s is None:
        return f"{drain.reason}; what is on it may stay"
    if drain.deadline_s <= drain.drained_s:
        return f"{drain.reason}; what is on it leaves"
    return f"{drain.reason}; what is on it leaves at {moment(drain.deadline_s)}"
