"""Machines to clusters, asked for through the API: planned, applied, explained."""

from __future__ import annotations

from collections.abc import Sequence

from data_placement.machine_assignment.explanation import explain_cluster, explain_machine
from data_placement.machine_assignment.time_limits import DEFAULT_TIME_LIMIT_S, GREATEST_TIME_LIMIT_S
from domain.capacity_requests import ClusterRequests
from domain.fleet import Cluster, Fleet
from domain.identifiers import ClusterId, MachineId, RegionId
from formats.capacity_requests_file import check_requests, parse_requests
from formats.problems import FormatError, suggestion
from services.database import fleet_store, machine_move_store
from services.database.connection import AnyConnection
from services.grpc_errors import InvalidArgument, NotFound, PreconditionFailed
from services.machine_decision import Question, load_question
from topmast.v1 import machine_assignment_pb2 as messages


async def load_questions(
    connection: AnyConnection, request: messages.PlanMachinesRequest
) -> list[tuple[Question, tuple[ClusterRequests, ...]]]:
    """What is to be decided in each region. Raises InvalidArgument, NotFound, and PreconditionFailed where nothing is asked for."""
    if request.HasField("time_limit_s") and not 0.0 <= request.time_limit_s <= GREATEST_TIME_LIMIT_S:
        raise InvalidArgument.of("time_limit_s", f"must be from 0 to {GREATEST_TIME_LIMIT_S:g}")
    fleet, _ = await fleet_store.load_fleet(connection)
    regions = [region.region for region in fleet.regions]
    if request.region and request.region not in regions:
        raise NotFound("region", request.region, suggestion(request.region, regions, "region"))
    if request.requests:
        by_region = requests_by_region(checked_requests(request.requests, fleet), fleet)
    else:
        stored = await machine_move_store.load_requests(connection)
        by_region = {region: one.requests for region, one in stored.items()}
    wanted = [region for region in regions if region in by_region and request.region in ("", region)]
    if not wanted:
        raise _nothing_asked(request.region)
    questions = [await load_question(connection, region) for region in wanted]
    return [(one, by_region[one.machines.region.region]) for one in questions if one is not None]


async def apply_requests(connection: AnyConnection, text: str, only: str, now: float) -> list[RegionId]:
    """Stores them for their regions, or for that one alone, all or none; returns these. To do so again changes nothing but
    that it is decided anew.

    Raises InvalidArgument with every problem, NotFound for a region that is not there, and PreconditionFailed where none of
    its clusters is named.
    """
    fleet, _ = await fleet_store.load_fleet(connection)
    regions = [region.region for region in fleet.regions]
    if only and only not in regions:
        raise NotFound("region", only, suggestion(only, regions, "region"))
    by_region = requests_by_region(checked_requests(text, fleet), fleet)
    wanted = {region: requests for region, requests in by_region.items() if only in ("", region)}
    if only and not wanted:
        raise _nothing_asked(only)
    for region, requests in wanted.items():
        await machine_move_store.store_requests(connection, region, requests, now)
    return list(wanted)


async def explain(connection: AnyConnection, name: str) -> list[str]:
    """Of a cluster or a machine. Raises NotFound."""
    fleet, _ = await fleet_store.load_fleet(connection)
    for region in fleet.regions:
        cluster = _cluster_named(region.clusters, name)
        if cluster is None and all(one.machine != name for one in region.machines()):
            continue
        machines = await machine_move_store.load_region_machines(connection, region.region)
        stored = (await machine_move_store.load_requests(connection, region.region)).get(region.region)
        if machines is None or stored is None:
            return [f"no cluster of region {region.region} asks for machines: all stay where they are"]
        moves = await machine_move_store.load_moves(connection, region.region)
        if cluster is not None:
            return explain_cluster(machines, stored.requests, moves, cluster)
        return explain_machine(machines, stored.requests, moves, MachineId(name))
    # To look for the likest of many thousand machines would take too long here.
    clusters = [one.cluster for region in fleet.regions for one in region.clusters]
    raise NotFound("machine or cluster", name, suggestion(name, clusters, "cluster"))


def checked_requests(text: str, fleet: Fleet) -> tuple[ClusterRequests, ...]:
    """Raises InvalidArgument with every problem."""
    try:
        requests = parse_requests(text, "requests")
    except FormatError as error:
        raise InvalidArgument(list(error.problems)) from error
    problems = check_requests(requests, fleet)
    if problems:
        raise InvalidArgument(problems)
    return requests


def requests_by_region(
    requests: Sequence[ClusterRequests], fleet: Fleet
) -> dict[RegionId, tuple[ClusterRequests, ...]]:
    """In the order of the fleet."""
    region_of = {cluster.cluster: region.region for region in fleet.regions for cluster in region.clusters}
    return {
        region.region: own
        for region in fleet.regions
        if (own := tuple([one for one in requests if region_of[one.cluster] == region.region]))
    }


def time_limit_of(request: messages.PlanMachinesRequest) -> float:
    """In seconds, for each region."""
    return request.time_limit_s if request.HasField("time_limit_s") else DEFAULT_TIME_LIMIT_S


def _nothing_asked(region: str) -> PreconditionFailed:
    where = f"in region {region}" if region else "anywhere"
    return PreconditionFailed("REQUESTS", "requests", f"no cluster asks for machines {where}; give requests")


def _cluster_named(clusters: Sequence[Cluster], name: str) -> Cluster | None:
    return next((one for one in clusters if one.cluster == ClusterId(name)), None)
