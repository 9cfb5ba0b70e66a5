"""An operator knows that a cluster or a region is lost: it is declared so at once, without waiting for its leases.

What still runs there is nobody's any more. Where the region has a scheduler, that ends its attempts, and has what can be
reached stopped before; else they are ended here, and their workloads begin again only after managers that are there, and
find themselves fenced, have had the time to stop them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from domain.identifiers import ClusterId, RegionId, WorkloadId
from domain.placement import AttemptKey
from formats.problems import listed
from services.clock import ServiceClock
from services.database import award_store, lost_cluster_store, queue_store
from services.database.connection import AnyConnection
from services.database.lease_store import fence_regions
from services.database.lost_look import RegionLook, live_attempts_on, look_at_regions
from services.grpc_errors import InvalidArgument, NotFound, PreconditionFailed
from services.regional_scheduler.lost_clusters import STOP_PATIENCE_REAL_S
from services.regional_scheduler.lost_regions import declare_clusters_lost, declare_region_lost
from services.wire.plans import attempt_to_text
from topmast.v1 import global_scheduler_pb2 as messages

WHY = "an operator has declared it lost"

_NAMED = 10
"""Attempts, in a refusal."""


async def declare_lost(
    connection: AnyConnection, request: messages.DeclareLostRequest, clock: ServiceClock
) -> messages.DeclareLostResponse:
    """Raises NotFound for a region or cluster that the fleet does not have, InvalidArgument, and PreconditionFailed for one
    that is there, or whose tasks may not have stopped themselves yet, unless the request says yes."""
    if not request.region:
        raise InvalidArgument.of("region", "is empty; say which region is lost, or in which one the cluster is")
    regions = await look_at_regions(connection)
    region = RegionId(request.region)
    if region not in regions:
        raise NotFound("region", region, f"the fleet has {_names(regions)}")
    look = regions[region]
    clusters = [ClusterId(request.cluster)] if request.cluster else list(look.clusters)
    if request.cluster and request.cluster not in look.clusters:
        raise NotFound("cluster", f"{region}/{request.cluster}", f"region {region} has {_names(look.clusters)}")
    there = await live_attempts_on(connection, clusters)
    alive = _alive(region, clusters, look, whole_region=not request.cluster)
    if there:
        alive += _running_on(clusters, look)
    if alive and not request.yes:
        raise PreconditionFailed(
            "ALIVE",
            "/".join([region, *([request.cluster] if request.cluster else [])]),
            f"{', '.join(alive)}; {_what_runs(there)}; say yes (--yes) to end all that at once",
        )
    now = clock.now()
    silent = [cluster for cluster in clusters if not look.clusters[cluster]]
    if look.live:
        await lost_cluster_store.fence(connection, silent)
        declared = await lost_cluster_store.declare(connection, region, clusters, WHY, now)
        if not request.cluster:
            await award_store.give_back_awards_of(connection, region)
    else:
        await fence_regions(connection, [region])
        if request.cluster:
            losses = await declare_clusters_lost(connection, region, clusters, WHY, now)
        else:
            losses = await declare_region_lost(connection, region, WHY, now)
        declared = losses.clusters
        if len(silent) < len(clusters):
            await _wait_for_managers(connection, losses.workloads, clock)
    return messages.DeclareLostResponse(clusters=declared, attempts=[attempt_to_text(key) for key in there])


def _alive(region: RegionId, clusters: Iterable[ClusterId], look: RegionLook, *, whole_region: bool) -> list[str]:
    """What holds its lease of that which is to be lost, in words."""
    found = [f"the scheduler of region {region} holds its lease"] if whole_region and look.live else []
    return found + [
        f"the manager of cluster {cluster} holds its lease" for cluster in clusters if look.clusters[cluster]
    ]


def _running_on(clusters: Iterable[ClusterId], look: RegionLook) -> list[str]:
    """Where tasks may still run although nobody holds the lease: elsewhere they would run twice."""
    return [
        f"the tasks of cluster {cluster} may run on for {math.ceil(look.tasks_run_on_s[cluster])} s without its manager"
        for cluster in clusters
        if cluster in look.tasks_run_on_s
    ]


def _what_runs(there: Sequence[AttemptKey]) -> str:
    if not there:
        return "nothing runs there"
    run = "attempt runs" if len(there) == 1 else "attempts run"
    return f"{len(there)} {run} there: {listed([attempt_to_text(key) for key in there], _NAMED)}"


async def _wait_for_managers(connection: AnyConnection, ended: Sequence[WorkloadId], clock: ServiceClock) -> None:
    """Managers notice within the time of their lease that they are fenced, and kill what is over."""
    from_s = clock.now() + STOP_PATIENCE_REAL_S / clock.real_seconds(1.0)
    await queue_store.not_before(connection, ended, from_s)


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
