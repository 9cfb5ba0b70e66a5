"""topmast virtual-clusters: who owns and uses what of the cells of clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from services.command_line.connection import connect
from services.command_line.failures import not_there
from services.command_line.options import AddressOption, JsonOption, TenantFilter, WideOption
from services.command_line.output import TextTable, note, show, show_json

if TYPE_CHECKING:
    from topmast import VirtualClusters

ClusterFilter = Annotated[str, typer.Option("--cluster", help="Only this cluster.")]


def virtual_clusters(
    tenant: TenantFilter = "",
    cluster: ClusterFilter = "",
    wide: WideOption = False,
    address: AddressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the virtual clusters: the cells that tenants own, which are used, free or bad, and the GPUs in and outside of them."""
    with connect(address) as client:
        found = client.virtual_clusters(tenant=tenant, cluster=cluster)
        if cluster and not found.clusters:
            not_there(cluster, [one.cluster for one in client.virtual_clusters().clusters], "cluster with cells")
    if as_json:
        show_json(found)
    elif not found.clusters:
        note("no cluster is divided into cells")
    else:
        show(*_tables(found), wide=wide)


def _tables(found: VirtualClusters) -> tuple[TextTable, ...]:
    return (
        TextTable(
            "Clusters",
            ("cluster", "region", "gpus", "guaranteed", "opportunistic", "idle", "out of use"),
            [
                (
                    one.cluster,
                    one.region,
                    str(one.gpus),
                    str(one.guaranteed_gpus),
                    str(one.opportunistic_gpus),
                    str(one.idle_gpus),
                    str(one.out_of_use_gpus),
                )
                for one in found.clusters
            ],
            right=frozenset(range(2, 7)),
        ),
        TextTable(
            "GPUs",
            ("tenant", "cluster", "owned", "guaranteed", "opportunistic", "fair share", "downgraded", "bad"),
            [
                (
                    one.tenant,
                    one.cluster,
                    str(one.owned_gpus),
                    str(one.guaranteed_gpus),
                    str(one.opportunistic_gpus),
                    str(one.fair_share_gpus),
                    str(one.downgraded_gpus),
                    str(one.bad_gpus),
                )
                for one in found.tenants
            ],
            right=frozenset(range(2, 8)),
        ),
        TextTable(
            "Cells",
            ("tenant", "cluster", "hierarchy", "level", "pinned", "gpus each", "owned", "used", "free", "bad"),
            [
                (
                    one.tenant,
                    one.cluster,
                    one.hierarchy,
                    one.level,
                    one.pinned_cell,
                    str(one.gpus_per_cell),
                    str(one.owned),
                    str(one.used),
                    str(one.free),
                    str(one.bad),
                )
                for one in found.levels
            ],
            right=frozenset(range(5, 10)),
        ),
    )
