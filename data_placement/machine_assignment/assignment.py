"""Which machine belongs to which cluster: the best assignment that is found within the time, and how good it could be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from data_placement.machine_assignment.greedy import assign_greedily
from data_placement.machine_assignment.groups import GroupedMachines
from data_placement.machine_assignment.measure import AssignmentCost, cost_of
from data_placement.machine_assignment.problem import AssignmentProblem, ModelProblem
from data_placement.machine_assignment.program import FigureBound, solve_program
from data_placement.machine_assignment.time_limits import DEFAULT_TIME_LIMIT_S
from domain.identifiers import ClusterId, MachineId


class MachineMove(NamedTuple):
    """A machine that is to change its cluster."""

    machine: MachineId
    from_cluster: ClusterId
    to_cluster: ClusterId
    running: int
    """What that disturbs: GPUs in use on it, and 1 where something runs that uses none."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """The answer."""

    moves: tuple[MachineMove, ...]
    """By machine."""
    cost: AssignmentCost
    present: AssignmentCost
    """What leaving everything where it is costs."""
    bound: AssignmentCost
    """No assignment costs less: in a figure where all earlier ones are best, else in that earlier one."""
    optimal: bool
    """Whether nothing better is possible."""
    solver: str
    """`mixed_integer`, or `greedy` where that was all that there was time for."""


def assign_machines(problem: AssignmentProblem, time_limit_s: float = DEFAULT_TIME_LIMIT_S) -> Assignment:
    """The assignment of least cost. Decides the same every time, unless the time runs out.

    The time is that of HiGHS, by its own account; 0: the greedy assignment.
    """
    models = list(problem.by_model())
    left_s = time_limit_s
    moves: list[MachineMove] = []
    cost = present = bound = AssignmentCost()
    optimal, programmed = True, False
    for position, model in enumerate(models):
        found = _assign_model(model, left_s / (len(models) - position))
        left_s -= found.run_time_s
        cost, present, bound = cost.plus(found.cost), present.plus(found.present), bound.plus(found.bound)
        optimal, programmed = optimal and found.optimal, programmed or found.programmed
        moves += [
            MachineMove(one.machine, one.cluster, found.cluster_of[one.machine], one.running)
            for one in model.machines
            if found.cluster_of[one.machine] != one.cluster
        ]
    solver = "mixed_integer" if programmed or not models else "greedy"
    return Assignment(tuple(sorted(moves)), cost, present, bound, optimal, solver)


class _OfModel(NamedTuple):
    """The answer for the machines of one GPU model."""

    cluster_of: dict[MachineId, ClusterId]
    cost: AssignmentCost
    present: AssignmentCost
    bound: AssignmentCost
    optimal: bool
    programmed: bool
    run_time_s: float


def _assign_model(model: ModelProblem, time_limit_s: float) -> _OfModel:
    stays = {machine.machine: machine.cluster for machine in model.machines}
    present = cost_of(model, stays)
    if not model.machines:
        return _OfModel(stays, present, present, present, optimal=True, programmed=True, run_time_s=0.0)
    greedy = assign_greedily(model)
    if time_limit_s <= 0.0:
        return _OfModel(
            greedy, cost_of(model, greedy), present, AssignmentCost(), optimal=False, programmed=False, run_time_s=0.0
        )
    machines = GroupedMachines(model)
    found = solve_program(model, machines, machines.numbers(greedy), time_limit_s)
    named = machines.named(found.numbers)
    cluster_of = min((named, greedy), key=lambda one: cost_of(model, one))
    cost = cost_of(model, cluster_of)
    bound = _bound(found.bounds)
    return _OfModel(
        cluster_of,
        cost,
        present,
        bound,
        optimal=bound == cost,
        programmed=cluster_of is named,
        run_time_s=found.run_time_s,
    )


def _bound(figures: tuple[FigureBound, ...]) -> AssignmentCost:
    """The bounds as a cost: figures after one that is not known to be the best have none."""
    known: dict[str, int] = {}
    for figure in figures:
        known[figure.figure] = figure.bound
        if figure.bound < figure.value:
            break
    return AssignmentCost(**known)
