"""How good an assignment is: five figures, of which an earlier one counts before all later ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from data_placement.machine_assignment.problem import ModelProblem
from data_placement.machine_assignment.tally import Tally, missing_spares
from domain.identifiers import ClusterId, MachineId


class AssignmentCost(NamedTuple):
    """What an assignment costs; compared from the left."""

    unmet: int = 0
    """Machines, or GPUs, that requests ask for and do not get."""
    unmet_spares: int = 0
    """What is missing of their spares: so that any one domain may fail, and machines one by one."""
    running: int = 0
    """GPUs in use on machines that move; 1 for one on which something runs that uses none."""
    moves: int = 0
    """Machines that move."""
    spread: int = 0
    """Of each request the most that its cluster has in one power domain, summed up."""

    def plus(self, other: AssignmentCost) -> AssignmentCost:
        """The cost of two assignments that have nothing to do with each other."""
        return AssignmentCost(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


def tallies_of(problem: ModelProblem, cluster_of: Mapping[MachineId, ClusterId]) -> dict[ClusterId, Tally]:
    """What counts for each request, by its cluster, where each machine is in that cluster."""
    tallies = {request.cluster: Tally(request) for request in problem.requests}
    for machine in problem.machines:
        tally = tallies.get(cluster_of[machine.machine])
        if tally is not None:
            tally.add(machine)
    return tallies


def cost_of(problem: ModelProblem, cluster_of: Mapping[MachineId, ClusterId]) -> AssignmentCost:
    """The cost of having each machine in that cluster."""
    tallies = tallies_of(problem, cluster_of)
    moved = [machine for machine in problem.machines if cluster_of[machine.machine] != machine.cluster]
    return AssignmentCost(
        unmet=sum(tally.unmet for tally in tallies.values()),
        unmet_spares=sum(missing_spares([tallies[one.cluster] for one in pool]) for pool in problem.pools()),
        running=sum(machine.running for machine in moved),
        moves=len(moved),
        spread=sum(max(tally.held.values(), default=0) for tally in tallies.values()),
    )
