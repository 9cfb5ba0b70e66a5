"""topmast up: a whole service on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from services.command_line.files import replayable
from services.command_line.options import ConfigurationOption, DatabaseOption, HomeOption, JsonOption
from services.command_line.output import StageDisplay, note, show_json, show_line

FleetOption = Annotated[
    Path | None,
    typer.Option(
        "--fleet",
        exists=True,
        dir_okay=False,
        callback=replayable,
        help="The fleet to apply (fleet.yaml).",
        show_default=False,
    ),
]
TenantsOption = Annotated[
    Path | None,
    typer.Option(
        "--tenants",
        exists=True,
        dir_okay=False,
        callback=replayable,
        help="The tenants to apply (tenants.yaml).",
        show_default=False,
    ),
]
PortOption = Annotated[int, typer.Option("--port", min=0, max=65_535, help="Of the global scheduler; 0: any.")]
ListenHostOption = Annotated[str, typer.Option("--listen-host", help="Where the tiers listen.")]
RayOption = Annotated[
    str | None,
    typer.Option("--ray-address", help="A Ray cluster to use. Otherwise one is started here.", show_default=False),
]
ClockSpeedOption = Annotated[
    float | None,
    typer.Option(
        "--clock-speed",
        min=0.001,
        max=100_000.0,
        help="How many seconds pass on the service's clock in a real one; kept from the first start on.",
        show_default=False,
    ),
]
EmulateOption = Annotated[
    bool, typer.Option("--emulate", help="Run emulated workloads only: clusters without processes.")
]
MetricsPortOption = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        min=0,
        max=65_535,
        help="Where the tiers, in one process, serve their metrics on loopback; 0: any.",
        show_default="as the configuration says, else any",
    ),
]
TiersName = Literal["shared", "separate"]
TiersOption = Annotated[
    TiersName | None,
    typer.Option(
        "--tiers",
        help="All tiers in one process, or each in its own; with --ray-address as actors there.",
        show_default="shared; separate with --ray-address",
    ),
]
StandbyOption = Annotated[
    bool, typer.Option("--standby", help="Have a second tier stand by for each, which takes over when that dies.")
]
ForegroundOption = Annotated[
    bool,
    typer.Option("--foreground", help="Stay, and end the service when this process is told to: for service managers."),
]


_FIELDS = {
    "fleet": "fleet_file",
    "tenants": "tenants_file",
    "configuration": "configuration_file",
    "emulate": "executor",
}
"""Of HostOptions, where they are called otherwise than the parameters here."""


def up(
    context: typer.Context,
    home: HomeOption = None,
    fleet: FleetOption = None,
    tenants: TenantsOption = None,
    port: PortOption = 7460,
    listen_host: ListenHostOption = "127.0.0.1",
    database_url: DatabaseOption = None,
    ray_address: RayOption = None,
    clock_speed: ClockSpeedOption = None,
    emulate: EmulateOption = False,
    tiers: TiersOption = None,
    standby: StandbyOption = False,
    metrics_port: MetricsPortOption = None,
    configuration: ConfigurationOption = None,
    foreground: ForegroundOption = False,
    as_json: JsonOption = False,
) -> None:
    """Start Topmast on this machine: database, Ray and all tiers. When it is up already, waits until all its parts run."""
    from services.runtime.executor_kind import ExecutorKind
    from services.runtime.home import default_home
    from services.runtime.host_options import HostOptions
    from services.runtime.local import StartInterrupted, stay_up
    from services.runtime.local import up as bring_up
    from services.runtime.tier_place import TierProcesses

    given = {
        "port": port,
        "listen_host": listen_host,
        "database_url": database_url,
        "ray_address": ray_address,
        "fleet": fleet,
        "tenants": tenants,
        "configuration": configuration,
        "clock_speed": clock_speed,
        "emulate": ExecutorKind.EMULATED if emulate else ExecutorKind.RAY,
        "tiers": TierProcesses(tiers) if tiers is not None else None,
        "standby": standby,
        "metrics_port": metrics_port,
    }
    # What nobody typed is not wanted otherwise of a service that is up already.
    typed = {
        _FIELDS.get(name, name): value
        for name, value in given.items()
        if (source := context.get_parameter_source(name)) is not None and source.name != "DEFAULT"
    }
    options = HostOptions.model_validate({"home": (home or default_home()).expanduser().resolve(), **typed})
    if foreground:
        stay_up(options)
    try:
        with StageDisplay("starting Topmast") as say:
            service = bring_up(options, progress=say)
    except StartInterrupted:
        note("Topmast goes on starting; 'topmast status' says when it is up, 'topmast down' ends it")
        raise
    if as_json:
        show_json(service)
        return
    show_line(f"Topmast {'was already' if service.was_running else 'is'} up at {service.address}")
    for mended in service.mended:
        note(f"this was not as it should be, and is now: {mended}")
    if service.metrics:
        note(f"metrics: {', '.join(f'http://{one}/metrics' for one in service.metrics)}")
    for difference in service.not_taken_over:
        note(str(difference))
    if service.tasks_are_root:
        note(
            "tasks run as root here; scheduler.yaml can name another user for them: tasks.run_as (tasks.allow_root: true is silent)"
        )
    if fleet is None and not service.was_running:
        note("without --fleet it has the machines that were applied before; if none: topmast apply -f fleet.yaml")
