"""Machines: what is on them, and which of a region belong to which cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict, Unpack

from topmast.keywords import refuse_unknown_keywords
from topmast.messages import message_of, strings
from topmast.v1 import fleet_state_pb2, machine_assignment_pb2


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


@dataclass(frozen=True, slots=True)
class MachineHolder:
    """An attempt, as far as it is on a machine."""

    workload: str
    attempt: int
    tenant: str
    tasks: int
    gpus: int


@dataclass(frozen=True, slots=True)
class MachineDrain:
    """Why a machine takes no work. What is on it leaves at `deadline_s` (a time of the service); None: it may end by itself."""

    reason: str
    drained_s: float
    deadline_s: float | None


@dataclass(frozen=True, slots=True)
class FleetMachine:
    """A machine with what is on it.

    `state`: up, draining, down or draining_down; in inference clusters serving, on_loan or returning, or one of these with
    _down. `gpu_model` "": it has no GPUs. `drain` None: no operator has drained it. `down_reason`: of one
    that is down, what was said when it was lost.
    """

    machine: str
    region: str
    cluster: str
    rack: str
    state: str
    gpu_model: str
    gpus: int
    gpus_in_use: int
    cpus: float
    memory_gib: float
    holders: tuple[MachineHolder, ...]
    drain: MachineDrain | None
    down_reason: str = ""


@dataclass(frozen=True, slots=True)
class MachinePage:
    """Some machines, by name; `next_page_token` is empty on the last page."""

    machines: tuple[FleetMachine, ...]
    next_page_token: str


class MachineFilter(TypedDict, total=False):
    """Which machines to list; what is left out does not matter. `gpu_model` "": those without GPUs. `occupied`: only those
    on which something is."""

    region: str
    cluster: str
    rack: str
    machine: str
    states: Sequence[str]
    gpu_model: str | None
    occupied: bool


def list_machines_request(
    page_size: int,
    page_token: str,
    **wanted: Unpack[MachineFilter],
) -> fleet_state_pb2.ListMachinesRequest:
    refuse_unknown_keywords("machines", wanted, MachineFilter.__annotations__)
    if "states" in wanted:
        wanted["states"] = strings("states", wanted["states"])
    return message_of(fleet_state_pb2.ListMachinesRequest, page_size=page_size, page_token=page_token, **wanted)


def machine_page_from_proto(message: fleet_state_pb2.ListMachinesResponse) -> MachinePage:
    return MachinePage(tuple(_machine(one) for one in message.machines), message.next_page_token)


def _machine(message: fleet_state_pb2.FleetMachine) -> FleetMachine:
    drain = message.drain
    return FleetMachine(
        message.machine,
        message.region,
        message.cluster,
        message.rack,
        message.state,
        message.gpu_model,
        message.gpus,
        message.gpus_in_use,
        message.cpus,
        message.memory_gib,
        tuple(MachineHolder(one.workload, one.attempt, one.tenant, one.tasks, one.gpus) for one in message.holders),
        MachineDrain(drain.reason, drain.drained_s, drain.deadline_s if drain.HasField("deadline_s") else None)
        if message.HasField("drain")
        else None,
        message.down_reason,
    )
