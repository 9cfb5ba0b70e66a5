"""What would be ideal if machines were one, and which jobs are alike: the fast ways beside plain ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given

from cluster_manager.tuning.balance import place_balanced
from cluster_manager.tuning.demand import CPU, MEMORY
from cluster_manager.tuning.mechanism import MachineRoom, RunnableJob
from cluster_manager.tuning.relocations import kinds_of
from cluster_manager.tuning.round_arrays import RoundArrays, arrays_of, descending_demand, runnable
from tests.cluster_manager.tuning.worlds import rounds

PRICES = np.array([1 / 24_000, 0.3 / (500 * 1024)])


def plain_step(jobs: Sequence[RunnableJob], job: int, option: int) -> tuple[float, int]:
    """The gain per price of the best step to a faster option, and which; 0 where there is none."""
    demand, best = jobs[job].demand, (0.0, -1)
    for faster in range(option + 1, len(demand.speeds)):
        gain = float(demand.speeds[faster] - demand.speeds[option])
        more = demand.options[faster] - demand.options[option]
        cost = jobs[job].gpus * float(PRICES[CPU] * more[CPU] + PRICES[MEMORY] * more[MEMORY])
        rate = gain / max(cost, 1e-12)
        if gain > 0.0 and rate > best[0]:
            best = rate, faster
    return best


def plain_ideal(jobs: Sequence[RunnableJob], order: Sequence[int], machines: Sequence[MachineRoom]) -> dict[int, int]:
    """Looks at all jobs before each step."""
    left = [sum(machine.millicpus for machine in machines), sum(machine.mebibytes for machine in machines)]
    ideal = dict.fromkeys(order, 0)
    for job in order:
        for resource in (CPU, MEMORY):
            left[resource] -= jobs[job].gpus * int(jobs[job].demand.options[0, resource])
    ahead = {job: plain_step(jobs, job, 0) for job in order}
    while any(rate > 0.0 for rate, _ in ahead.values()):
        job = max(order, key=lambda job: ahead[job][0])
        demand, option = jobs[job].demand, ahead[job][1]
        more = [jobs[job].gpus * int(demand.options[option, r] - demand.options[ideal[job], r]) for r in (CPU, MEMORY)]
        if any(asked > there for asked, there in zip(more, left, strict=True)):
            ahead[job] = 0.0, -1
            continue
        left = [there - asked for asked, there in zip(more, left, strict=True)]
        ideal[job] = option
        ahead[job] = plain_step(jobs, job, option)
    return ideal


@given(rounds(most_machines=4, most_jobs=20))
def test_what_is_ideal_is_what_a_look_at_all_jobs_before_each_step_finds(
    given_round: tuple[list[RunnableJob], list[MachineRoom]],
) -> None:
    jobs, machines = given_round
    arrays = arrays_of(jobs, machines)
    order = descending_demand(arrays, runnable(jobs, machines))
    targets = np.zeros(len(jobs), np.int64)
    place_balanced(arrays, order, targets, PRICES)
    assert {job: int(targets[job]) for job in order.tolist()} == plain_ideal(jobs, order.tolist(), machines)


def plain_kinds(arrays: RoundArrays) -> list[int]:
    """Compares every job with every earlier one."""

    def asks(job: int) -> tuple[int, object, object]:
        rows = slice(arrays.first[job], arrays.first[job] + arrays.option_count[job])
        return int(arrays.gpus[job]), arrays.options[rows].tolist(), arrays.speeds[rows].tolist()

    return [next(other for other in range(job + 1) if asks(other) == asks(job)) for job in range(len(arrays.gpus))]


@given(rounds(most_machines=4, most_jobs=20))
def test_jobs_are_of_one_kind_when_they_ask_for_the_same(
    given_round: tuple[list[RunnableJob], list[MachineRoom]],
) -> None:
    arrays = arrays_of(*given_round)
    assert kinds_of(arrays).tolist() == plain_kinds(arrays)
