"""Which machines of a region belong to which cluster."""

from __future__ import annotations

from dataclasses import dataclass

from topmast.v1 import machine_assignment_pb2


@dataclass(frozen=True, slots=True)
class MachineMove:
    """A machine that is to change its cluster; `running` are the GPUs in use on it, or 1 where something runs without any."""

    machine: str
    from_cluster: str
    to_cluster: str
    running: int


@dataclass(frozen=True, slots=True)
class CapacityOutcome:
    """What one request gets: in `unit` (machines or gpus), before and after the plan; `gpu_model` "": without GPUs.

    `holds_after`: it is met, also if any one of the domains fails that it is to survive.
    """

    cluster: str
    gpu_model: str
    unit: str
    wanted: int
    has_before: int
    has_after: int
    spares_after: int
    holds_after: bool
    sentence: str


@dataclass(frozen=True, slots=True)
class AssignmentCost:
    """The figures of a plan, the weightiest first: what is missing of amounts and of spares, GPUs in use on machines that move,
    machines that move, and the most that requests have in one power domain."""

    unmet: int
    unmet_spares: int
    running: int
    moves: int
    spread: int


@dataclass(frozen=True, slots=True)
class MachinePlan:
    """A plan for one region. No plan costs less than `bound`; `present` is what it costs to move nothing."""

    region: str
    solver: str
    optimal: bool
    present: AssignmentCost
    cost: AssignmentCost
    bound: AssignmentCost
    moves: tuple[MachineMove, ...]
    requests: tuple[CapacityOutcome, ...]
    wall_s: float


def machine_plans_from_proto(
    message: machine_assignment_pb2.PlanMachinesResponse,
) -> tuple[MachinePlan, ...]:
    return tuple(
        MachinePlan(
            plan.region,
            plan.solver,
            plan.optimal,
            _cost(plan.present),
            _cost(plan.cost),
            _cost(plan.bound),
            tuple(MachineMove(move.machine, move.from_cluster, move.to_cluster, move.running) for move in plan.moves),
            tuple(
                CapacityOutcome(
                    one.cluster,
                    one.gpu_model,
                    one.unit,
                    one.wanted,
                    one.has_before,
                    one.has_after,
                    one.spares_after,
                    one.holds_after,
                    one.sentence,
                )
                for one in plan.requests
            ),
            plan.wall_s,
        )
        for plan in message.regions
    )


def _cost(message: machine_assignment_pb2.AssignmentCost) -> AssignmentCost:
    return AssignmentCost(message.unmet, message.unmet_spares, message.running, message.moves, message.spread)
