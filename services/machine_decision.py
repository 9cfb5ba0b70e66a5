"""Which machines of a region belong to which cluster: decided from what the database says, beside the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from data_placement.machine_assignment.assignment import Assignment, assign_machines
from data_placement.machine_assignment.measure import AssignmentCost
from data_placement.machine_assignment.outcome import RequestOutcome, outcomes_of
from data_placement.machine_assignment.problem import AssignmentProblem
from data_placement.machine_assignment.region_machines import RegionMachines
from domain.capacity_requests import ClusterRequests
from domain.identifiers import RegionId
from services.database import machine_move_store
from services.database.connection import AnyConnection
from services.database.revision_store import Subject, load_revision
from topmast.v1 import machine_assignment_pb2 as messages


@dataclass(frozen=True, slots=True)
class MachineDecision:
    """What is to be where."""

    region: RegionId
    fleet_revision: int
    """Of the fleet of which it was decided."""
    assignment: Assignment
    before: tuple[RequestOutcome, ...]
    after: tuple[RequestOutcome, ...]

    def document(self) -> dict[str, object]:
        """As it is stored."""
        return {
            "solver": self.assignment.solver,
            "optimal": self.assignment.optimal,
            "moves": len(self.assignment.moves),
            "cost": self.assignment.cost._asdict(),
            "bound": self.assignment.bound._asdict(),
            "requests": [outcome.sentence for outcome in self.after],
        }


@dataclass(frozen=True, slots=True)
class Question:
    """A region as it is, of which it is to be decided."""

    machines: RegionMachines
    fleet_revision: int

    def problem(self, requests: Sequence[ClusterRequests]) -> AssignmentProblem:
        """What is to be decided."""
        return self.machines.problem(requests)


async def load_question(connection: AnyConnection, region: RegionId) -> Question | None:
    """The region as the database says, of one snapshot; None: there is no such region."""
    machines = await machine_move_store.load_region_machines(connection, region)
    if machines is None:
        return None
    return Question(machines, await load_revision(connection, Subject.FLEET))


async def decide(question: Question, requests: Sequence[ClusterRequests], time_limit_s: float) -> MachineDecision:
    """In a thread: HiGHS leaves the interpreter to the loop while it works."""
    return await asyncio.to_thread(decided, question, requests, time_limit_s)


def decided(question: Question, requests: Sequence[ClusterRequests], time_limit_s: float) -> MachineDecision:
    """The same, at once."""
    problem = question.problem(requests)
    assignment = assign_machines(problem, time_limit_s)
    after = {move.machine: move.to_cluster for move in assignment.moves}
    return MachineDecision(
        question.machines.region.region,
        question.fleet_revision,
        assignment,
        outcomes_of(problem, {}),
        outcomes_of(problem, after),
    )


def decision_message(decision: MachineDecision, wall_s: float) -> messages.RegionMachinePlan:
    """As the API answers."""
    assignment = decision.assignment
    return messages.RegionMachinePlan(
        region=decision.region,
        solver=assignment.solver,
        optimal=assignment.optimal,
        present=_cost_message(assignment.present),
        cost=_cost_message(assignment.cost),
        bound=_cost_message(assignment.bound),
        moves=[
            messages.MachineMove(
                machine=move.machine, from_cluster=move.from_cluster, to_cluster=move.to_cluster, running=move.running
            )
            for move in assignment.moves
        ],
        requests=[
            messages.RequestOutcome(
                cluster=after.cluster,
                gpu_model=after.gpu_model,
                unit=after.unit.value,
                wanted=after.wanted,
                has_before=before.has,
                has_after=after.has,
                spares_after=after.spares,
                holds_after=after.holds,
                sentence=after.sentence,
            )
            for before, after in zip(decision.before, decision.after, strict=True)
        ],
        wall_s=wall_s,
    )


def _cost_message(cost: AssignmentCost) -> messages.AssignmentCost:
    return messages.AssignmentCost(**cost._asdict())
