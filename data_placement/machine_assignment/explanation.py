"""Why a machine is where it is, and what a cluster asks for and has: in sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from data_placement.machine_assignment.outcome import outcomes_of
from data_placement.machine_assignment.region_machines import RegionMachines
from domain.capacity_requests import ClusterRequests, why_fixed
from domain.clock import utc_time
from domain.fleet import Cluster, MachineState
from domain.identifiers import ClusterId, MachineId
from domain.machine_moves import MachineMovement, MoveState


def explain_cluster(
    machines: RegionMachines,
    requests: Sequence[ClusterRequests],
    moves: Mapping[MachineId, MachineMovement],
    cluster: Cluster,
) -> list[str]:
    """What the cluster asks for and gets when the machines under way have come, and which those are."""
    fixed = why_fixed(cluster)
    if fixed:
        return [fixed]
    asked = next((one for one in requests if one.cluster == cluster.cluster), None)
    if asked is None:
        return [f"cluster {cluster.cluster} is not named in the requests: its machines stay"]
    problem = machines.problem(requests)
    to = {move.machine: move.to_cluster for move in moves.values() if move.state is not MoveState.RETURNING}
    sentences = [one.sentence for one in outcomes_of(problem, to) if one.cluster == cluster.cluster]
    if not asked.capacity:
        sentences.append(f"cluster {cluster.cluster} asks for nothing: what it has may be given to others")
    down = [
        one.machine
        for one in cluster.machines()
        if machines.states.get(one.machine, MachineState.UP) is not MachineState.UP and one.machine not in moves
    ]
    if down:
        sentences.append(f"{len(down)} of its machines do not count, because they take no work: {_some(down)}")
    for machine, move in sorted(moves.items()):
        if cluster.cluster in (move.from_cluster, move.to_cluster):
            sentences.append(_movement(machine, move, machines.running.get(machine, 0)))
    return sentences


def explain_machine(
    machines: RegionMachines,
    requests: Sequence[ClusterRequests],
    moves: Mapping[MachineId, MachineMovement],
    machine: MachineId,
) -> list[str]:
    """Where the machine is, what it does there, where it goes, and whether its cluster could do without it.

    Raises KeyError when the region has no such machine.
    """
    cluster, rack = _place_of(machines, machine)
    state = machines.states.get(machine, MachineState.UP)
    running = machines.running.get(machine, 0)
    where = f"machine {machine} is in cluster {cluster.cluster}, rack {rack}, and is {state.value.replace('_', ' ')}"
    sentences = [f"{where}, with {running} GPUs in use" if running else f"{where}, with nothing on it"]
    move = moves.get(machine)
    if move is not None:
        return [*sentences, _movement(machine, move, running)]
    stays = machines.why_it_stays(machine, cluster, {one.cluster for one in requests})
    if stays:
        return [*sentences, f"it does not move: {stays}"]
    problem = machines.problem(requests)
    nowhere = ClusterId("")
    before = {(one.cluster, one.gpu_model): one for one in outcomes_of(problem, {})}
    after = outcomes_of(problem, {machine: nowhere})
    for one in after:
        known = before[one.cluster, one.gpu_model]
        if (min(one.has, one.wanted), one.holds) != (min(known.has, known.wanted), known.holds):
            what = f"without it {one.sentence}"
            return [*sentences, f"it stays because it is needed: {what}"]
    return [*sentences, "it stays because nobody needs it more; what its cluster asks for is met without it, too"]


def _movement(machine: MachineId, move: MachineMovement, running: int) -> str:
    going = f"machine {machine} goes from {move.from_cluster} to {move.to_cluster}"
    match move.state:
        case MoveState.WAITING:
            return f"{going} when its turn comes"
        case MoveState.RETURNING:
            return f"machine {machine} was to go to {move.to_cluster}, and stays in {move.from_cluster} after all"
        case MoveState.DRAINING:
            held = f"; {running} GPUs are in use on it" if running else "; nothing is on it any more"
            until = "" if move.deadline_s is None else f", until {utc_time(move.deadline_s)}"
            return f"{going}: it drains{until}{held}"


def _place_of(machines: RegionMachines, machine: MachineId) -> tuple[Cluster, str]:
    for cluster in machines.region.clusters:
        for rack in cluster.racks:
            if any(one.machine == machine for one in rack.machines):
                return cluster, rack.rack
    raise KeyError(machine)


def _some(machines: Sequence[MachineId]) -> str:
    named = ", ".join(sorted(machines)[:5])
    return named if len(machines) <= 5 else f"{named} and {len(machines) - 5} more"
