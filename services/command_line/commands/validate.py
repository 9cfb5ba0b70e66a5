"""topmast validate: the invariants, recomputed from an event log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from services.command_line.exit_code import ExitCode
from services.command_line.files import STANDARD_INPUT
from services.command_line.options import JsonOption, existing
from services.command_line.output import show_json, show_line

EventsArgument = Annotated[
    Path,
    typer.Argument(
        metavar="EVENTS", callback=existing, help="JSON lines, packed or not; - is standard input.", show_default=False
    ),
]
FleetOption = Annotated[
    Path, typer.Option("--fleet", exists=True, dir_okay=False, help="The run's fleet.yaml.", show_default=False)
]
TenantsOption = Annotated[
    Path, typer.Option("--tenants", exists=True, dir_okay=False, help="The run's tenants.yaml.", show_default=False)
]
CompleteOption = Annotated[
    bool, typer.Option("--complete", help="The log is a whole run: every workload must have ended.")
]


def validate(
    events: EventsArgument,
    fleet: FleetOption,
    tenants: TenantsOption,
    complete: CompleteOption = False,
    as_json: JsonOption = False,
) -> None:
    """Check an event log: recompute the invariants from it alone. The exit code is 1 on any violation."""
    from formats.fleet_file import read_fleet_file
    from formats.tenants_file import read_tenants
    from simulator.validate import validate_log

    log = Path("/dev/stdin") if events == STANDARD_INPUT else events
    described = read_fleet_file(fleet)
    report = validate_log(log, described.fleet, read_tenants(tenants), tables=described.tables, complete=complete)
    if as_json:
        show_json(report.as_json())
    else:
        show_line(str(report))
    if not report.valid:
        raise typer.Exit(ExitCode.NOT_WELL)
