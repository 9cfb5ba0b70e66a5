"""The choice of machines that go back: ``python -m benchmarks.reclaim [--worlds N] [--optimal]``.

500 machines of 8 GPUs on loan, 60, 150 or 300 of which go back. What runs there came and went for a while, best fit, until
92 % of the GPUs were in use: jobs of 1 to 64 GPUs, those of more than 8 in tasks of 2, 4 or 8 (`packed`); or gangs of up to
three tasks on machines at random, the hardest for everybody (`scattered`). Reported are the time of a whole choice and, of
all policies, the evictions in all worlds; with ``--optimal`` also the fewest that are possible.
"""

import argparse
import time
from collections.abc import Callable

import numpy as np

from benchmarks.measurement import report
from domain.identifiers import AttemptNumber, MachineId, WorkloadId
from domain.placement import AttemptKey
from regional_scheduler.reclaiming.fewest_evictions import FewestEvictions
from regional_scheduler.reclaiming.fewest_workloads import FewestWorkloadsFirst
from regional_scheduler.reclaiming.least_preemption_cost import LeastPreemptionCost
from regional_scheduler.reclaiming.optimal import OptimalEvictions
from regional_scheduler.reclaiming.policy import AttemptOnMachine, MachineOnLoan, ReclaimingPolicy, check_reclaim
from regional_scheduler.reclaiming.random_machines import RandomMachines

MACHINES, GPUS = 500, 8
SHARE_IN_USE = 0.92
COUNTS = (60, 150, 300)
JOB_GPUS = (1, 2, 4, 8, 16, 32, 64)
JOB_SHARES = (0.45, 0.13, 0.15, 0.15, 0.07, 0.03, 0.02)
BUDGET = "<= 1 ms; evictions <= 1.05 x optimal"

Places = dict[int, int]
"""GPUs of a job by machine."""


def packed(rng: np.random.Generator) -> list[Places]:
    """What runs after 6,000 arrivals and departures."""
    free = np.full(MACHINES, GPUS)
    jobs: list[Places] = []
    for _ in range(6_000):
        if free.sum() > MACHINES * GPUS * (1 - SHARE_IN_USE) or not jobs:
            gpus = int(rng.choice(JOB_GPUS, p=JOB_SHARES))
            per_task = gpus if gpus <= GPUS else int(rng.choice((2, 4, 8), p=(0.2, 0.3, 0.5)))
            left, places = free.copy(), Places()
            for _ in range(gpus // per_task):
                fitting = np.flatnonzero(left >= per_task)
                if len(fitting) == 0:
                    break
                machine = int(fitting[np.argmin(left[fitting])])
                left[machine] -= per_task
                places[machine] = places.get(machine, 0) + per_task
            else:
                free = left
                jobs.append(places)
                continue
        ended = jobs.pop(int(rng.integers(len(jobs))))
        for machine, held in ended.items():
            free[machine] += held
    return jobs


def scattered(rng: np.random.Generator) -> list[Places]:
    """Jobs of one to three tasks, each on another machine at random."""
    free = np.full(MACHINES, GPUS)
    jobs: list[Places] = []
    while free.sum() > MACHINES * GPUS * (1 - SHARE_IN_USE):
        width, per_task = int(rng.integers(1, 4)), int(rng.choice((1, 2, 4, 8)))
        fitting = np.flatnonzero(free >= per_task)
        if len(fitting) < width:
            fitting, per_task = np.flatnonzero(free >= 1), 1
        places = {int(machine): per_task for machine in rng.choice(fitting, min(width, len(fitting)), replace=False)}
        for machine in places:
            free[machine] -= per_task
        jobs.append(places)
    return jobs


def machines_with(jobs: list[Places]) -> list[MachineOnLoan]:
    here: list[list[AttemptOnMachine]] = [[] for _ in range(MACHINES)]
    for number, places in enumerate(jobs):
        key, in_all = AttemptKey(WorkloadId(f"w{number:06d}"), AttemptNumber(1)), sum(places.values())
        for machine, gpus in places.items():
            here[machine].append(AttemptOnMachine(key, gpus, len(places), gpus_elsewhere=in_all - gpus))
    return [MachineOnLoan(MachineId(f"m{number:03d}"), tuple(attempts)) for number, attempts in enumerate(here)]


def measure(name: str, make: Callable[[np.random.Generator], list[Places]], worlds: int, *, optimal: bool) -> None:
    policies: list[ReclaimingPolicy] = [
        FewestEvictions(),
        LeastPreemptionCost(),
        FewestWorkloadsFirst(),
        RandomMachines(),
    ]
    if optimal:
        policies.append(OptimalEvictions())
    made = [make(np.random.default_rng(seed)) for seed in range(worlds)]
    on_loan = [machines_with(jobs) for jobs in made]
    policies[0].choose(on_loan[0], 1, np.random.default_rng(0))
    for count in COUNTS:
        evictions: dict[str, int] = {}
        for policy in policies:
            seconds: list[float] = []
            evictions[policy.name] = 0
            for seed, machines in enumerate(on_loan):
                began = time.process_time()
                choice = policy.choose(machines, count, np.random.default_rng(seed))
                seconds.append(time.process_time() - began)
                check_reclaim(policy.name, choice, machines, count)
                evictions[policy.name] += len(choice.reclaim.victims)
            work = {
                "policy": policy.name,
                "machines": MACHINES,
                "to_return": count,
                "attempts": sum(map(len, made)) // worlds,
            }
            report(f"reclaim_{name}", work, seconds, BUDGET, {"evictions": evictions[policy.name], "worlds": worlds})
        if optimal:
            print({one: round(evicted / max(1, evictions["optimal"]), 3) for one, evicted in evictions.items()})


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the choice of machines that go back.")
    parser.add_argument("--worlds", type=int, default=10, help="worlds of each kind")
    parser.add_argument("--optimal", action="store_true", help="compare with the fewest evictions that are possible")
    options = parser.parse_args()
    measure("packed", packed, options.worlds, optimal=options.optimal)
    measure("scattered", scattered, options.worlds, optimal=options.optimal)


if __name__ == "__main__":
    main()
