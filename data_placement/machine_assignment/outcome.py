"""What the requests of a region get: before and after an assignment, in figures and in a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from data_placement.machine_assignment.measure import tallies_of
from data_placement.machine_assignment.problem import AssignmentProblem
from data_placement.machine_assignment.tally import Tally, worst_loss
from domain.capacity_requests import CapacityRequest, CapacityUnit, FailureDomain
from domain.identifiers import ClusterId, GpuModel, MachineId


class RequestOutcome(NamedTuple):
    """What one request gets."""

    cluster: ClusterId
    gpu_model: GpuModel
    unit: CapacityUnit
    wanted: int
    has: int
    """What counts of what is there."""
    spares: int
    """What that is more than wanted, with that of those that it shares its spares with."""
    survives: FailureDomain
    holds: bool
    """Whether the amounts would still be there if the worst of these failed."""
    sentence: str


def outcomes_of(problem: AssignmentProblem, cluster_of: Mapping[MachineId, ClusterId]) -> tuple[RequestOutcome, ...]:
    """In the order of the requests, where these machines are in those clusters; those that are missing stay."""
    found: dict[tuple[ClusterId, GpuModel], RequestOutcome] = {}
    for model in problem.by_model():
        there = {one.machine: cluster_of.get(one.machine, one.cluster) for one in model.machines}
        tallies = tallies_of(model, there)
        for pool in model.pools():
            of_pool = [tallies[request.cluster] for request in pool]
            for request in pool:
                found[request.cluster, request.gpu_model] = _outcome(request, tallies[request.cluster], of_pool)
    return tuple([found[request.cluster, request.gpu_model] for request in problem.requests])


def _outcome(request: CapacityRequest, tally: Tally, pool: list[Tally]) -> RequestOutcome:
    spares = sum(max(0, one.total - one.request.amount) for one in pool)
    left = sum(one.total for one in pool) - worst_loss(pool)
    holds = left >= sum(one.request.amount for one in pool)
    sentence = f"{request.cluster} has {tally.total} of {request.amount} {request.unit.value}"
    sentence += f" ({request.machines_named})"
    if request.spares or request.survives is not FailureDomain.NONE:
        sentence += f", and {spares} spare" + (f" in pool {request.spare_pool}" if request.spare_pool else "")
    if request.survives is not FailureDomain.NONE:
        kind = request.survives.value.replace("_", " ")
        sentence += f"; it {'holds' if holds else 'does not hold'} if any one {kind} fails"
    uncounted = sum(tally.held.values()) - tally.total
    if uncounted:
        sentence += f"; {uncounted} more do not count, beyond its share of a rack or power domain"
    return RequestOutcome(
        request.cluster,
        request.gpu_model,
        request.unit,
        request.amount,
        tally.total,
        spares,
        request.survives,
        holds if request.survives is not FailureDomain.NONE else tally.unmet == 0,
        sentence,
    )
