"""topmast up: a whole service on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from services.command_line.options import ConfigurationOption, DatabaseOption, HomeOption, JsonOption
from services.command_line.output import StageDisplay, note, show_json, show_line

FleetOption = Annotated[
    Path | None,
    typer.Option("--fleet", exists=True, dir_okay=False, help="The fleet to apply (fleet.yaml).", show_default=False),
]
TenantsOption = Annotated[
    Path | None,
    typer.Option(
        "--tenants", exists=True, dir_okay=False, help="The tenants to apply (tenants.yaml).", show_default=False
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


def up(
    home: HomeOption = None,
    fleet: FleetOption = None,
    tenants: TenantsOption = None,
    port: PortOption = 7460,
    listen_host: ListenHostOption = "127.0.0.1",
    database_url: DatabaseOption = None,
    ray_address: RayOption = None,
    clock_speed: ClockSpeedOption = None,
    emulate: EmulateOption = False,
    configuration: ConfigurationOption = None,
    as_json: JsonOption = False,
) -> None:
    """Start Topmast on this machine: database, Ray and all tiers. Does nothing when it is up already."""
    from services.runtime.executor_kind import ExecutorKind
    from services.runtime.home import default_home
    from services.runtime.host_options import HostOptions
    from services.runtime.local import up as bring_up

    options = HostOptions(
        home=(home or default_home()).expanduser().resolve(),
        port=port,
        listen_host=listen_host,
        database_url=database_url,
        ray_address=ray_address,
        fleet_file=fleet,
        tenants_file=tenants,
        configuration_file=configuration,
        clock_speed=clock_speed,
        executor=ExecutorKind.EMULATED if emulate else ExecutorKind.RAY,
    )
    with StageDisplay("starting Topmast") as say:
        service = bring_up(options, progress=say)
    if as_json:
        show_json(service)
        return
    show_line(f"Topmast {'was already' if service.was_running else 'is'} up at {service.address}")
    if service.was_running and (fleet or tenants):
        note("the files were not applied: topmast apply -f FILE applies a fleet or tenants to what is up")
    if service.was_running and configuration:
        note(f"{configuration} was not taken over: settings are read at the start, after topmast down")
    if service.was_running and clock_speed is not None:
        note("--clock-speed was not taken over: the clock is kept from the first start on")
    if fleet is None and not service.was_running:
        note("without --fleet it has the machines that were applied before; if none: topmast apply -f fleet.yaml")
