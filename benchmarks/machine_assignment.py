"""Machines to clusters of a region: ``python -m benchmarks.machine_assignment``.

10,000 machines of four kinds in 625 racks and 8 power domains, 30 clusters, of which 20 ask for each kind: together for 85 % of
what is there, many with a limit for each power domain and spares for the failure of any of them. Machines are where chance has put
them, so that thousands have to move; and once more a day later, when one power domain in eight has lost some machines.
"""

import time

import numpy as np

from benchmarks.measurement import report
from data_placement.machine_assignment.assignment import Assignment, assign_machines
from data_placement.machine_assignment.problem import AssignableMachine, AssignmentProblem
from domain.capacity_requests import CapacityRequest, CapacityUnit, FailureDomain
from domain.fleet import NO_GPU_MODEL
from domain.identifiers import ClusterId, GpuModel, MachineId, RackId

MACHINES, CLUSTERS, PER_RACK, POWER_DOMAINS = 10_000, 30, 16, 8
MODELS = (GpuModel("H100"), GpuModel("A100"), GpuModel("V100"), NO_GPU_MODEL)
ASKING, LOAD = 20, 0.85
TIME_LIMIT_S = 40.0
BUDGET = "<= 60 s for 10,000 machines, 30 clusters"


def problem_of(machines: int, rng: np.random.Generator, *, by_rack: bool = False) -> AssignmentProblem:
    """A region; `by_rack`: large requests have a limit for each rack, too."""
    clusters = [ClusterId(f"c{number:02d}") for number in range(CLUSTERS)]
    made: list[AssignableMachine] = []
    for rack in range(machines // PER_RACK):
        model = MODELS[int(rng.choice(len(MODELS), p=(0.3, 0.3, 0.2, 0.2)))]
        home = int(rng.integers(CLUSTERS))
        for place in range(PER_RACK):
            cluster = clusters[home if rng.random() < 0.8 else int(rng.integers(CLUSTERS))]
            gpus = 8 if model else 0
            running = int(rng.choice((0, 0, 1, 2, 4, 8))) if gpus else int(rng.integers(2))
            name = MachineId(f"k{rack:04d}-m{place:02d}")
            power_domain = f"p{rack % POWER_DOMAINS}"
            made.append(AssignableMachine(name, cluster, RackId(f"k{rack:04d}"), power_domain, model, gpus, running))
    requests: list[CapacityRequest] = []
    for model in MODELS:
        there = sum(machine.gpu_model == model for machine in made)
        shares = rng.random(ASKING)
        for cluster, share in zip(rng.permutation(CLUSTERS)[:ASKING], shares / shares.sum(), strict=True):
            amount = int(there * LOAD * share)
            is_large = amount > PER_RACK
            survives = FailureDomain.POWER_DOMAIN if is_large and rng.random() < 0.5 else FailureDomain.NONE
            requests.append(
                CapacityRequest(
                    clusters[int(cluster)],
                    model,
                    amount,
                    CapacityUnit.MACHINES,
                    0.1 if by_rack and amount > 4 * PER_RACK else 1.0,
                    0.5 if is_large else 1.0,
                    survives,
                    2,
                )
            )
    return AssignmentProblem(tuple(made), tuple(requests))


def measure(name: str, problem: AssignmentProblem, time_limit_s: float) -> Assignment:
    began, began_wall = time.process_time(), time.perf_counter()
    found = assign_machines(problem, time_limit_s)
    spent_s, wall_s = time.process_time() - began, time.perf_counter() - began_wall
    work = {"machines": len(problem.machines), "clusters": CLUSTERS, "requests": len(problem.requests)}
    extra = {
        "solver": found.solver,
        "optimal": found.optimal,
        "present": found.present._asdict(),
        "cost": found.cost._asdict(),
        "bound": found.bound._asdict(),
        "wall_s": round(wall_s, 2),
    }
    report(name, work, [spent_s], BUDGET, extra)
    return found


def main() -> None:
    problem = problem_of(MACHINES, np.random.default_rng(1))
    measure("machine_assignment_greedy", problem, 0.0)
    found = measure("machine_assignment", problem, TIME_LIMIT_S)
    to = {move.machine: move.to_cluster for move in found.moves}
    rng = np.random.default_rng(2)
    later = [
        AssignableMachine(*(one.machine, to.get(one.machine, one.cluster), *_rest(one)))
        for one in problem.machines
        if one.power_domain != "p0" or rng.random() > 0.05
    ]
    measure("machine_assignment_after_losses", AssignmentProblem(tuple(later), problem.requests), TIME_LIMIT_S)
    by_rack = problem_of(MACHINES, np.random.default_rng(1), by_rack=True)
    measure("machine_assignment_by_rack", by_rack, TIME_LIMIT_S)


def _rest(one: AssignableMachine) -> tuple[RackId, str, GpuModel, int, int]:
    return one.rack, one.power_domain, one.gpu_model, one.gpus, one.running


if __name__ == "__main__":
    main()
