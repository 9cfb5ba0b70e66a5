"""topmast fleet: the GPUs of the fleet, by region, cluster and model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from services.command_line.connection import connect
from services.command_line.options import AddressOption, JsonOption
from services.command_line.output import TextTable, note, show, show_json

if TYPE_CHECKING:
    from topmast import FleetCapacity

RegionFilter = Annotated[str, typer.Option("--region", help="Only this region.", show_default=False)]
ClusterFilter = Annotated[str, typer.Option("--cluster", help="Only this cluster.", show_default=False)]
ModelFilter = Annotated[str | None, typer.Option("--gpu-model", help="Only GPUs of this model.", show_default=False)]

_COUNTS = ("gpus", "gpus_in_use", "gpus_free", "gpus_draining", "gpus_down", "gpus_serving", "gpus_lent")
_HEAD = ("machines", "up", "gpus", "in use", "free", "draining", "down", "serving", "lent")


def fleet(
    region: RegionFilter = "",
    cluster: ClusterFilter = "",
    gpu_model: ModelFilter = None,
    address: AddressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the GPUs of each cluster by model: in use, free, on machines that are drained or down, serving inference, lent."""
    with connect(address) as client:
        found = client.fleet(region=region, cluster=cluster, gpu_model=gpu_model)
    if as_json:
        for one in found:
            show_json(one)
        return
    if not found:
        note("no fleet was applied yet: topmast apply -f fleet.yaml")
        return
    show(_clusters(found), _models(found))
    for away in sorted({(one.region, one.cluster) for one in found if not (one.alive or one.lost)}):
        region_name, name = away
        note(
            f"cluster {name} has no manager, or its region no scheduler: a local service starts them by itself; else"
            f" topmast serve cluster --region {region_name} --cluster {name} (topmast status shows who is there)"
        )


def _clusters(found: Sequence[FleetCapacity]) -> TextTable:
    return TextTable(
        "Clusters",
        ("region", "cluster", "gpu model", *_HEAD, ""),
        [(one.region, one.cluster, one.gpu_model or "none", *_row([one]), _remark(one)) for one in found],
        right=frozenset(range(3, 12)),
    )


def _models(found: Sequence[FleetCapacity]) -> TextTable:
    models = sorted({one.gpu_model for one in found})
    return TextTable(
        "All of them",
        ("gpu model", *_HEAD),
        [(model or "none", *_row([one for one in found if one.gpu_model == model])) for model in models],
        right=frozenset(range(1, 10)),
    )


def _row(some: Iterable[FleetCapacity]) -> tuple[str, ...]:
    some = list(some)
    figures = (sum(one.machines for one in some), sum(one.machines_up for one in some))
    return tuple(str(figure) for figure in (*figures, *(sum(getattr(one, name) for one in some) for name in _COUNTS)))


def _remark(one: FleetCapacity) -> str:
    return "lost" if one.lost else "" if one.alive else "away"
