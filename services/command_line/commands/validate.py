"""topmast validate: the invariants, recomputed from an event log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from services.command_line.exit_code import ExitCode
from services.command_line.files import STANDARD_INPUT, replayable
from services.command_line.options import JsonOption, existing
from services.command_line.output import show_json, show_line

if TYPE_CHECKING:
    from domain.eviction import EvictionRule

EventsArgument = Annotated[
    Path,
    typer.Argument(
        metavar="EVENTS", callback=existing, help="JSON lines, packed or not; - is standard input.", show_default=False
    ),
]
FleetOption = Annotated[
    Path,
    typer.Option(
        "--fleet", exists=True, dir_okay=False, callback=replayable, help="The run's fleet.yaml.", show_default=False
    ),
]
TenantsOption = Annotated[
    Path,
    typer.Option(
        "--tenants",
        exists=True,
        dir_okay=False,
        callback=replayable,
        help="The run's tenants.yaml.",
        show_default=False,
    ),
]
CompleteOption = Annotated[
    bool, typer.Option("--complete", help="The log is a whole run: every workload must have ended.")
]

ConfigurationOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        exists=True,
        dir_okay=False,
        callback=replayable,
        help="The run's scheduler.yaml: its eviction section bounds evictions.",
        show_default=False,
    ),
]
ProfilesOption = Annotated[
    Path | None,
    typer.Option(
        "--profiles",
        exists=True,
        dir_okay=False,
        callback=replayable,
        help="The sensitivity profiles (CSV) that the run was tuned by: none may be slower than with its proportional share.",
        show_default=False,
    ),
]
MinimumRunTimeOption = Annotated[
    float | None,
    typer.Option(
        "--minimum-run-time", min=0.0, max=1e9, help="Seconds that an attempt runs before it is evicted for others."
    ),
]
EvictionsPerHourOption = Annotated[
    int | None,
    typer.Option("--evictions-per-hour", min=0, help="How often a workload is evicted for others within any hour."),
]


def validate(
    events: EventsArgument,
    fleet: FleetOption,
    tenants: TenantsOption,
    complete: CompleteOption = False,
    config: ConfigurationOption = None,
    profiles: ProfilesOption = None,
    minimum_run_time: MinimumRunTimeOption = None,
    evictions_per_hour: EvictionsPerHourOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check an event log: recompute the invariants from it alone. The exit code is 1 on any violation."""
    from cluster_manager.cells.declared import declarations_of, fleet_with_virtual_clusters
    from formats.fleet_file import read_fleet_file
    from formats.profiles_file import read_profiles
    from formats.tenants_file import read_tenants
    from simulator.validate import validate_log

    log = Path("/dev/stdin") if events == STANDARD_INPUT else events
    described, owners = read_fleet_file(fleet), read_tenants(tenants)
    report = validate_log(
        log,
        fleet_with_virtual_clusters(described.fleet, declarations_of(owners), f"{fleet} and {tenants}"),
        owners,
        tables=described.tables,
        complete=complete,
        rule=_rule(config, minimum_run_time, evictions_per_hour),
        profiles=read_profiles(profiles) if profiles is not None else {},
    )
    if as_json:
        show_json(report.as_json())
    else:
        show_line(str(report))
    if not report.valid:
        raise typer.Exit(ExitCode.NOT_WELL)


def _rule(config: Path | None, minimum_run_time_s: float | None, evictions_per_hour: int | None) -> EvictionRule:
    """The bounds of evictions that were in force: those of the file, but for what is said beside it."""
    from services.configuration import load_configuration

    rule = load_configuration(config).eviction_rule()
    if minimum_run_time_s is not None:
        rule = replace(rule, minimum_run_time_s=minimum_run_time_s)
    if evictions_per_hour is not None:
        rule = replace(rule, evictions_per_workload_and_hour=evictions_per_hour)
    return rule
