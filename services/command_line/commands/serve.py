"""topmast serve: one tier as this very process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from services.command_line.extras import Extra
from services.command_line.failures import reported
from services.command_line.hidden_url import leave_out_of_arguments
from services.command_line.options import ConfigurationOption, DatabaseOption, HomeOption

app = typer.Typer(
    name="serve",
    help="Be one tier, in this process, until it is stopped: for containers and service managers.",
    no_args_is_help=True,
)

ListenOption = Annotated[
    str, typer.Option("--listen", metavar="HOST:PORT", help="Also the address that other tiers call; port 0: any.")
]
MetricsPortOption = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        min=0,
        max=65_535,
        help="Where metrics are served; 0: any.",
        show_default="as the configuration says, else any",
    ),
]
MetricsHostOption = Annotated[
    str | None,
    typer.Option(
        "--metrics-host", help="The same: at which address.", show_default="as the configuration says, else 127.0.0.1"
    ),
]
TierTokenFileOption = Annotated[
    Path | None,
    typer.Option(
        "--tier-token-file",
        help="A file with the token by which the other tiers know this one.",
        show_default="as the configuration says, else secrets/tier.token in the home",
    ),
]
RegionOption = Annotated[str, typer.Option("--region", help="Which region.", show_default=False)]
ClusterOption = Annotated[str, typer.Option("--cluster", help="Which cluster.", show_default=False)]
ExecutorName = Literal["ray", "emulated"]
ExecutorOption = Annotated[ExecutorName, typer.Option("--executor", help="What runs attempts; emulated: no processes.")]


@app.command("global")
@reported(needs=Extra.SERVER, in_full=True)
def serve_global(
    listen: ListenOption = "127.0.0.1:7460",
    database_url: DatabaseOption = None,
    home: HomeOption = None,
    configuration: ConfigurationOption = None,
    metrics_port: MetricsPortOption = None,
    metrics_host: MetricsHostOption = None,
    tier_token_file: TierTokenFileOption = None,
) -> None:
    """Be the global scheduler: the front door and the queue."""
    _serve("global", listen, database_url, home, configuration, (metrics_host, metrics_port), tier_token_file)


@app.command("regional")
@reported(needs=Extra.SERVER, in_full=True)
def serve_regional(
    region: RegionOption,
    listen: ListenOption = "127.0.0.1:0",
    database_url: DatabaseOption = None,
    home: HomeOption = None,
    configuration: ConfigurationOption = None,
    metrics_port: MetricsPortOption = None,
    metrics_host: MetricsHostOption = None,
    tier_token_file: TierTokenFileOption = None,
) -> None:
    """Be the regional scheduler of a region: its bids, and what runs there."""
    _serve(
        "regional",
        listen,
        database_url,
        home,
        configuration,
        (metrics_host, metrics_port),
        tier_token_file,
        region=region,
    )


@app.command("cluster")
@reported(needs=Extra.SERVER, in_full=True)
def serve_cluster(
    region: RegionOption,
    cluster: ClusterOption,
    executor: ExecutorOption = "ray",
    listen: ListenOption = "127.0.0.1:0",
    database_url: DatabaseOption = None,
    home: HomeOption = None,
    configuration: ConfigurationOption = None,
    metrics_port: MetricsPortOption = None,
    metrics_host: MetricsHostOption = None,
    tier_token_file: TierTokenFileOption = None,
) -> None:
    """Be the manager of a cluster: it runs the tasks."""
    _serve(
        "cluster",
        listen,
        database_url,
        home,
        configuration,
        (metrics_host, metrics_port),
        tier_token_file,
        region=region,
        cluster=cluster,
        executor=executor,
    )


def _serve(
    kind: str,
    listen: str,
    database_url: str | None,
    home: Path | None,
    configuration: Path | None,
    metrics: tuple[str | None, int | None],
    tier_token_file: Path | None,
    *,
    region: str | None = None,
    cluster: str | None = None,
    executor: ExecutorName = "ray",
) -> None:
    from domain.identifiers import ClusterId, RegionId
    from services.configuration import load_configuration
    from services.database.server_address import URL_VARIABLE, resolve_database_url
    from services.runtime.executor_kind import ExecutorKind
    from services.runtime.home import default_home
    from services.runtime.serve import serve
    from services.runtime.tier_place import TierKind
    from services.runtime.tier_process import TierRequest

    if database_url:
        leave_out_of_arguments(database_url)
    folder = (home or default_home()).expanduser().resolve()
    serve(
        TierRequest(
            kind=TierKind(kind),
            database_url=resolve_database_url(folder, {URL_VARIABLE: database_url} if database_url else os.environ),
            home=folder,
            configuration=load_configuration(configuration).with_metrics_at(*metrics).with_tier_token(tier_token_file),
            listen=listen,
            region=RegionId(region) if region is not None else None,
            cluster=ClusterId(cluster) if cluster is not None else None,
            executor=ExecutorKind(executor),
        )
    )
