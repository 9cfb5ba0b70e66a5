"""topmast cluster and topmast region: for an operator who knows that one of them is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from services.command_line.connection import CHANGING_ATTEMPTS, connect
from services.command_line.failures import reported
from services.command_line.options import AddressOption, JsonOption
from services.command_line.output import show_json, show_line
from services.command_line.wording import counted

if TYPE_CHECKING:
    from topmast.losses import DeclaredLost

cluster_app = typer.Typer(name="cluster", help="What becomes of a cluster that is lost.", no_args_is_help=True)
region_app = typer.Typer(name="region", help="What becomes of a region that is lost.", no_args_is_help=True)

ClusterArgument = Annotated[str, typer.Argument(metavar="REGION/CLUSTER", show_default=False)]
RegionArgument = Annotated[str, typer.Argument(metavar="REGION", show_default=False)]
YesOption = Annotated[bool, typer.Option("--yes", help="Also when it is there: what runs there is stopped.")]


@cluster_app.command("declare-lost")
@reported()
def declare_cluster_lost(
    name: ClusterArgument, yes: YesOption = False, address: AddressOption = None, as_json: JsonOption = False
) -> None:
    """Say that a cluster is lost: what ran there runs elsewhere, at once."""
    region, _, cluster = name.partition("/")
    if not (region and cluster):
        raise typer.BadParameter(
            f"is '{name}'; say which cluster of which region, as in east/east-a", param_hint="REGION/CLUSTER"
        )
    with connect(address, attempts=CHANGING_ATTEMPTS) as client:
        _show(client.declare_lost(region, cluster, yes=yes), f"cluster {name}", as_json)


@region_app.command("declare-lost")
@reported()
def declare_region_lost(
    name: RegionArgument, yes: YesOption = False, address: AddressOption = None, as_json: JsonOption = False
) -> None:
    """Say that a region is lost with all its clusters: what ran there runs elsewhere, at once."""
    with connect(address, attempts=CHANGING_ATTEMPTS) as client:
        _show(client.declare_lost(name, yes=yes), f"region {name}", as_json)


def _show(declared: DeclaredLost, what: str, as_json: bool) -> None:
    if as_json:
        show_json(declared)
        return
    already = "" if declared.clusters else " already"
    end = "ends" if len(declared.attempts) == 1 else "end"
    show_line(f"{what} is lost{already}: {counted(len(declared.attempts), 'attempt')} {end}")
