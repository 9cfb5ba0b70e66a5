"""How many tasks elastic jobs get: bounds that hold for every rule, and what each rule is about."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_manager.elastic.allocation import MostReduction, greatest_marginal_throughput, opportunistic_growth
from cluster_manager.elastic.demand import ElasticDemand
from domain.identifiers import AttemptNumber, WorkloadId
from domain.placement import AttemptKey
from domain.scaling import LINEAR_SCALING, LinearScaling


def key(name: str) -> AttemptKey:
    return AttemptKey(WorkloadId(name), AttemptNumber(1))


def demand(name: str, base: int, most: int, remaining_s: float, gpus: int = 1) -> ElasticDemand:
    return ElasticDemand(key(name), gpus, base, most, base, remaining_s)


@st.composite
def demands(draw: st.DrawFn) -> list[ElasticDemand]:
    found = []
    for number in range(draw(st.integers(0, 4))):
        base = draw(st.integers(1, 3))
        most = base + draw(st.integers(0, 4))
        found.append(
            ElasticDemand(
                key(f"w{number}"),
                draw(st.integers(1, 4)),
                base,
                most,
                draw(st.integers(base, most)),
                float(draw(st.integers(0, 500))),
                draw(st.sampled_from((LINEAR_SCALING, LinearScaling(0.2)))),
                float(draw(st.integers(0, 9))),
            )
        )
    return found


def flexible(given_demands: Sequence[ElasticDemand], tasks: Mapping[AttemptKey, int]) -> int:
    return sum(one.gpus(tasks[one.key]) for one in given_demands)


def most_reduction(given_demands: Sequence[ElasticDemand], gpus: int) -> Mapping[AttemptKey, int]:
    return MostReduction()(given_demands, gpus)


@pytest.mark.parametrize("rule", [most_reduction, greatest_marginal_throughput])
@given(demands(), st.integers(0, 20))
def test_never_beyond_the_bounds_or_what_there_is(
    rule: Callable[[Sequence[ElasticDemand], int], Mapping[AttemptKey, int]],
    given_demands: list[ElasticDemand],
    gpus: int,
) -> None:
    tasks = rule(given_demands, gpus)
    assert tasks.keys() == {one.key for one in given_demands}
    assert all(one.base_tasks <= tasks[one.key] <= one.most_tasks for one in given_demands)
    assert flexible(given_demands, tasks) <= gpus
    assert rule(given_demands[::-1], gpus).keys() == tasks.keys()


@given(demands(), st.integers(0, 20))
def test_never_grows_beyond_idle_gpus_or_shrinks_when_it_only_takes_opportunities(
    given_demands: list[ElasticDemand], gpus: int
) -> None:
    tasks = opportunistic_growth(given_demands, gpus)
    assert all(one.tasks <= tasks[one.key] <= one.most_tasks for one in given_demands)
    now = {one.key: one.tasks for one in given_demands}
    assert flexible(given_demands, tasks) - flexible(given_demands, now) <= gpus


@given(demands(), st.integers(0, 12))
def test_never_less_reduction_than_any_other_distribution(given_demands: list[ElasticDemand], gpus: int) -> None:
    def reduction_s(tasks: Mapping[AttemptKey, int]) -> float:
        return sum(one.reduction_s(tasks[one.key]) for one in given_demands)

    numbers = [range(one.base_tasks, one.most_tasks + 1) for one in given_demands]
    keys = [one.key for one in given_demands]
    others = [dict(zip(keys, choice, strict=True)) for choice in itertools.product(*numbers)]
    best = max(reduction_s(tasks) for tasks in others if flexible(given_demands, tasks) <= gpus)
    assert reduction_s(MostReduction()(given_demands, gpus)) == pytest.approx(best)


@given(demands(), st.integers(0, 12))
def test_never_leaves_idle_what_anybody_gains_by(given_demands: list[ElasticDemand], gpus: int) -> None:
    tasks = MostReduction()(given_demands, gpus)
    left = gpus - flexible(given_demands, tasks)
    for one in given_demands:
        if one.remaining_s > 0 and tasks[one.key] < one.most_tasks:
            assert one.gpus_per_task > left


def test_nobody_is_resized_for_less_than_the_pause_costs() -> None:
    held = replace(demand("held", 2, 3, 99.0), tasks=3)
    other = demand("other", 2, 3, 102.0)
    # With one flexible GPU other completes 34 s earlier, held 33 s: for one second they are not exchanged.
    assert MostReduction()([held, other], 1) == {key("held"): 2, key("other"): 3}
    assert MostReduction(resize_pause_s=1.0)([held, other], 1) == {key("held"): 3, key("other"): 2}


def test_marginal_throughput_counts_for_each_gpu() -> None:
    wide, narrow, finished = (
        demand("wide", 2, 4, 500.0, gpus=4),
        demand("narrow", 2, 4, 10.0),
        demand("done", 1, 1, 5.0),
    )
    assert greatest_marginal_throughput([wide, narrow, finished], 6) == {
        key("wide"): 3,
        key("narrow"): 4,
        key("done"): 1,
    }
    # A job whose next task does not fit does not keep others from theirs.
    fast = demand("fast", 1, 3, 10.0, gpus=3)
    assert greatest_marginal_throughput([fast, demand("slow", 8, 9, 10.0)], 1) == {key("fast"): 1, key("slow"): 9}


def test_equal_gains_go_to_the_least_work() -> None:
    assert greatest_marginal_throughput([demand("a", 1, 3, 20.0), demand("b", 1, 3, 10.0)], 2)[key("b")] == 3


def test_opportunities_go_to_those_that_run_longest() -> None:
    late = replace(demand("late", 1, 4, 10.0), started_s=5.0)
    early = replace(demand("early", 1, 3, 10.0), tasks=2, started_s=2.0)
    assert opportunistic_growth([late, early], 3) == {key("early"): 3, key("late"): 3}


@given(demands(), st.integers(0, 8), st.sampled_from([0.0, 5.0, 60.0]), st.sampled_from([1.0, 2.0]))
def test_is_the_best_by_all_choices_with_what_a_resize_costs(
    given_demands: list[ElasticDemand], idle: int, pause_s: float, loss_weight: float
) -> None:
    gpus = idle + sum(one.gpus(one.tasks) for one in given_demands)

    def worth_s(choice: Sequence[int]) -> float:
        total_s = 0.0
        for one, tasks in zip(given_demands, choice, strict=True):
            change_s = one.reduction_s(tasks) - one.reduction_s(one.tasks)
            total_s += change_s * (loss_weight if tasks < one.tasks else 1.0) - (pause_s if tasks != one.tasks else 0.0)
        return total_s

    choices = itertools.product(*(range(one.base_tasks, one.most_tasks + 1) for one in given_demands))
    best_s = max(
        worth_s(choice)
        for choice in choices
        if sum(one.gpus(tasks) for one, tasks in zip(given_demands, choice, strict=True)) <= gpus
    )
    tasks = MostReduction(pause_s, loss_weight)(given_demands, gpus)
    assert worth_s([tasks[one.key] for one in given_demands]) == pytest.approx(best_s, abs=1e-6)


@given(demands(), st.integers(0, 8), st.lists(st.floats(0.0, 1.0), min_size=1, max_size=30))
def test_never_do_resizes_cost_more_than_the_work_that_is_left(
    given_demands: list[ElasticDemand], idle: int, shares_left: list[float]
) -> None:
    """Nothing arrives and nothing ends, but work is done, as unevenly as may be: decision 046 has the proof."""
    pause_s = 5.0
    gpus = idle + sum(one.gpus(one.tasks) for one in given_demands)
    work_s, resizes, present = sum(one.remaining_s for one in given_demands), 0, given_demands
    for number, share in enumerate(shares_left):
        tasks = MostReduction(pause_s, 2.0)(present, gpus)
        resizes += sum(tasks[one.key] != one.tasks for one in present)
        present = [
            replace(
                one,
                tasks=tasks[one.key],
                remaining_s=one.remaining_s * (share if place == number % len(present) else 1.0),
            )
            for place, one in enumerate(present)
        ]
    assert resizes * pause_s <= work_s


@given(st.floats(100.0, 1e5), st.floats(0.5, 1.0), st.integers(1, 8), st.floats(10.0, 600.0))
def test_never_do_two_alike_jobs_exchange_a_task_more_often_than_the_work_halves(
    longest_s: float, share: float, base: int, round_s: float
) -> None:
    pause_s = 30.0
    left_s, tasks, resizes = [longest_s, longest_s * share], [base, base], 0
    while min(left_s) > 0.0:
        two = [ElasticDemand(key(f"w{n}"), 1, base, base + 1, tasks[n], left_s[n]) for n in range(2)]
        chosen = MostReduction(pause_s, 2.0)(two, 1)
        resizes += sum(chosen[one.key] != one.tasks for one in two)
        tasks = [chosen[one.key] for one in two]
        left_s = [left_s[n] - round_s * tasks[n] / base for n in range(2)]
    assert resizes <= 1 + 2 * (1 + math.log2(max(1.0, longest_s / pause_s)))


@given(demands(), st.integers(0, 20), st.data())
def test_never_another_answer_when_a_job_comes_to_be_granted_fewer_tasks(
    given_demands: list[ElasticDemand], gpus: int, data: st.DataObject
) -> None:
    asked = MostReduction(10.0, 2.0)
    asked(given_demands, gpus)
    fewer = [one.up_to(data.draw(st.integers(one.tasks, one.most_tasks))) for one in given_demands]
    assert asked(fewer, gpus) == MostReduction(10.0, 2.0)(fewer, gpus)


def test_a_job_that_comes_to_be_granted_more_tasks_is_of_another_round() -> None:
    asked = MostReduction()
    asked([demand("a", 1, 2, 10.0)], 1)
    with pytest.raises(ValueError, match="fewer tasks when it was first asked about"):
        asked([demand("a", 1, 3, 10.0)], 1)
