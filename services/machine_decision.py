"""Which machines of a region belong to which cluster: decided from what the database says, beside the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from data_placement.machine_assignment.assignment import Assignment, assign_machines
from data_placement.machine_assignment.outcome import RequestOutcome, outcomes_of
from data_placement.machine_assignment.problem import AssignmentProblem
from data_placement.machine_assignment.region_machines import RegionMachines
from domain.capacity_requests import ClusterRequests
from domain.identifiers import RegionId
from services.database import machine_move_store
from services.database.connection import AnyConnection
from services.database.revision_store import Subject, load_revision


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
    return await asyncio.to_thread(_decide, question, requests, time_limit_s)


def _decide(question: Question, requests: Sequence[ClusterRequests], time_limit_s: float) -> MachineDecision:
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
