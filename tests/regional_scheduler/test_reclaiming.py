"""Reclaiming policies: what they answer, what an answer must be, and how many attempts it costs beside the fewest."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.identifiers import AttemptNumber, JobName, MachineId, WorkloadId
from domain.placement import AttemptKey
from domain.plan import Reclaim, ScaleIn, TaskName
from regional_scheduler.reclaiming.fewest_evictions import FewestEvictions, hosted_attempts, vacated_by
from regional_scheduler.reclaiming.fewest_workloads import FewestWorkloadsFirst
from regional_scheduler.reclaiming.least_preemption_cost import LeastPreemptionCost, preemption_cost
from regional_scheduler.reclaiming.optimal import OptimalEvictions
from regional_scheduler.reclaiming.policy import (
    AttemptOnMachine,
    BadReclaim,
    MachineOnLoan,
    ReclaimChoice,
    ReclaimingPolicy,
    check_reclaim,
    reclaim_of,
)
from regional_scheduler.reclaiming.random_machines import RandomMachines

ALL = (FewestWorkloadsFirst(), RandomMachines(), LeastPreemptionCost(), FewestEvictions(), OptimalEvictions())
M0, M1, M2 = MachineId("m0"), MachineId("m1"), MachineId("m2")


def key(name: str) -> AttemptKey:
    return AttemptKey(WorkloadId(name), AttemptNumber(1))


def flexible_task(machine: int) -> TaskName:
    """Every attempt has one job, and its tasks are numbered by the machines that they are on."""
    return TaskName(JobName("train"), machine)


def machines(*hosted: str, leaving: str = "") -> list[MachineOnLoan]:
    """Machines m0, m1, ... that host a task of one GPU of attempts of these names; `a+` is a flexible task of a."""
    names = [names.split() for names in hosted]
    spread = Counter(name for here in names for name in here if not name.endswith("+"))
    tasks = Counter(name.rstrip("+") for here in names for name in here)
    return [
        MachineOnLoan(
            MachineId(f"m{number}"),
            tuple(
                AttemptOnMachine(
                    key(name.rstrip("+")),
                    1,
                    max(spread[name.rstrip("+")], 1),
                    (flexible_task(number),) if name.endswith("+") else (),
                    not name.endswith("+"),
                    tasks[name.rstrip("+")] - 1,
                )
                for name in sorted(here)
            ),
            tuple(key(name) for name in leaving.split()),
        )
        for number, here in enumerate(names)
    ]


def chosen_with(policy: ReclaimingPolicy, on_loan: Sequence[MachineOnLoan], count: int, seed: int = 0) -> ReclaimChoice:
    choice = policy.choose(on_loan, count, np.random.default_rng(seed))
    check_reclaim(policy.name, choice, on_loan, count)
    return choice


def chosen(policy: ReclaimingPolicy, on_loan: Sequence[MachineOnLoan], count: int, seed: int = 0) -> Reclaim:
    return chosen_with(policy, on_loan, count, seed).reclaim


def fewest_victims(on_loan: Sequence[MachineOnLoan], count: int) -> int:
    """By trying every choice."""
    return min(len(reclaim_of(choice).reclaim.victims) for choice in itertools.combinations(on_loan, count))


@st.composite
def occupied_machines(
    draw: st.DrawFn, most_machines_of_an_attempt: int = 3, *, elastic: bool = False
) -> list[MachineOnLoan]:
    count = draw(st.integers(1, 7))
    hosted: list[list[str]] = [[] for _ in range(count)]
    for number in range(draw(st.integers(0, 9))):
        width = draw(st.integers(1, min(most_machines_of_an_attempt, count)))
        base = draw(st.integers(1, width)) if elastic else width
        for task, place in enumerate(draw(st.permutations(range(count)))[:width]):
            hosted[place].append(f"a{number}" if task < base else f"a{number}+")
    return machines(*(" ".join(names) for names in hosted))


def test_fewest_workloads_then_fewest_gpus_then_the_order_of_the_fleet() -> None:
    policy = FewestWorkloadsFirst()
    on_loan = machines("a b", "c", "", "d")
    assert chosen(policy, on_loan, 1) == Reclaim((MachineId("m2"),), ())
    assert chosen(policy, on_loan, 2) == Reclaim((M1, M2), (key("c"),))
    assert chosen(policy, on_loan, 4).victims == (key("a"), key("b"), key("c"), key("d"))
    busier = [MachineOnLoan(M0, (AttemptOnMachine(key("a"), 8, 1),)), *machines("", "b")[1:]]
    assert chosen(policy, busier, 1).machines == (M1,)


@given(occupied_machines(most_machines_of_an_attempt=1), st.data())
def test_never_evicts_more_than_it_must_where_each_attempt_is_on_one_machine(
    on_loan: list[MachineOnLoan], data: st.DataObject
) -> None:
    count = data.draw(st.integers(0, len(on_loan)))
    assert len(chosen(FewestWorkloadsFirst(), on_loan, count).victims) == fewest_victims(on_loan, count)


@given(occupied_machines())
def test_never_evicts_more_than_it_must_for_one_machine(on_loan: list[MachineOnLoan]) -> None:
    assert len(chosen(FewestWorkloadsFirst(), on_loan, 1).victims) == fewest_victims(on_loan, 1)


@pytest.mark.parametrize("policy", ALL, ids=lambda policy: policy.name)
@given(on_loan=occupied_machines(elastic=True), data=st.data())
def test_never_answers_anything_but_a_choice(
    policy: ReclaimingPolicy, on_loan: list[MachineOnLoan], data: st.DataObject
) -> None:
    count, seed = data.draw(st.integers(0, len(on_loan))), data.draw(st.integers(0, 9))
    reclaim = chosen(policy, on_loan, count, seed)
    assert reclaim == chosen(policy, on_loan, count, seed)
    assert fewest_victims(on_loan, count) <= len(reclaim.victims)
    order = [machine.machine for machine in on_loan]
    assert [order.index(machine) for machine in reclaim.machines] == sorted(map(order.index, reclaim.machines))


@pytest.mark.parametrize("policy", [LeastPreemptionCost(), FewestEvictions(), OptimalEvictions()], ids=str)
@given(on_loan=occupied_machines(elastic=True), data=st.data())
def test_never_preempts_while_flexible_tasks_suffice(
    policy: ReclaimingPolicy, on_loan: list[MachineOnLoan], data: st.DataObject
) -> None:
    """Lyra §5.3: "release the server group for flexible demands first without any preemption to see if this alone is
    sufficient"."""
    without_base = sum(not machine.evicted for machine in on_loan)
    count = data.draw(st.integers(0, without_base))
    assert chosen(policy, on_loan, count).victims == ()


@given(occupied_machines(elastic=True), st.data())
def test_never_evicts_more_than_the_solver_must(on_loan: list[MachineOnLoan], data: st.DataObject) -> None:
    count = data.draw(st.integers(0, len(on_loan)))
    assert len(chosen(OptimalEvictions(), on_loan, count).victims) == fewest_victims(on_loan, count)


@given(occupied_machines(elastic=True), st.data())
def test_never_has_a_needless_victim(on_loan: list[MachineOnLoan], data: st.DataObject) -> None:
    count = data.draw(st.integers(0, len(on_loan)))
    victims = set(chosen(FewestEvictions(), on_loan, count).victims)
    for spared in victims:
        assert len(vacated_by(victims - {spared}, on_loan, count).reclaim.machines) < count


@given(occupied_machines(elastic=True), st.data())
def test_never_another_choice_than_the_plain_twin(on_loan: list[MachineOnLoan], data: st.DataObject) -> None:
    count = data.draw(st.integers(0, len(on_loan)))
    assert chosen_with(FewestEvictions(), on_loan, count) == vacated_by(
        fewest_evictions(on_loan, count), on_loan, count
    )


def fewest_evictions(on_loan: Sequence[MachineOnLoan], count: int) -> set[AttemptKey]:
    """What the kernel of `FewestEvictions` decides, with sets and exact shares."""
    keys, _ = hosted_attempts(on_loan)
    hosts = [{attempt.key for attempt in machine.evicted} for machine in on_loan]
    gpus = {attempt.key: attempt.gpus + attempt.gpus_elsewhere for machine in on_loan for attempt in machine.evicted}
    courses = [_greedily(keys, hosts, gpus, count, Fraction(tenths, 10)) for tenths in (0, 1, 3, 6)]
    return min(courses, key=lambda evicted: (len(evicted), sum(gpus[one] for one in evicted)))


def _greedily(
    keys: Sequence[AttemptKey],
    hosts: Sequence[set[AttemptKey]],
    gpus: Mapping[AttemptKey, int],
    count: int,
    partial_weight: Fraction,
) -> set[AttemptKey]:
    evicted: set[AttemptKey] = set()

    def vacated(gone: set[AttemptKey]) -> int:
        return sum(here <= gone for here in hosts)

    while (wanted := count - vacated(evicted)) > 0:
        steps: list[tuple[Fraction, int, int]] = []
        for place, here in enumerate(hosts):
            if step := here - evicted:
                useful = min(vacated(evicted | step) - vacated(evicted), wanted)
                left = [other - evicted for other in hosts]
                in_part = sum((Fraction(len(step & one), len(one)) for one in left if not one <= step), Fraction(0))
                worth = useful + partial_weight * min(in_part, Fraction(wanted - useful))
                steps.append((len(step) / worth, sum(gpus[one] for one in step), place))
        evicted |= hosts[min(steps)[2]]
    while spared := [
        (vacated(evicted) - vacated(evicted - {one}), -gpus[one], keys.index(one), one)
        for one in evicted
        if vacated(evicted - {one}) >= count
    ]:
        if vacated(evicted) == count:
            break
        evicted.discard(min(spared)[3])
    return evicted


def test_at_random_every_machine_goes_now_and_then() -> None:
    on_loan = machines("a", "b c", "")
    seen = {chosen(RandomMachines(), on_loan, 1, seed).machines for seed in range(30)}
    assert seen == {(M0,), (M1,), (M2,)}


def test_what_has_flexible_tasks_only_goes_on_without_them() -> None:
    on_loan = machines("a b+", "b", "b+ c+", "c")
    b, c = key("b"), key("c")
    choice = chosen_with(FewestEvictions(), on_loan, 1)
    assert choice.actions == (
        ScaleIn(b, (flexible_task(2),)),
        ScaleIn(c, (flexible_task(2),)),
        Reclaim((MachineId("m2"),), ()),
    )
    # Of whom base tasks have to leave, nothing goes on.
    assert reclaim_of(on_loan[1:3]).actions == (ScaleIn(c, (flexible_task(2),)), Reclaim((M1, M2), (b,)))


def test_the_fewest_flexible_gpus_are_lost() -> None:
    for policy in (LeastPreemptionCost(), FewestEvictions()):
        assert chosen(policy, machines("a+ b+", "a+", "a", "b"), 1).machines == (M1,)
        assert chosen(policy, machines("a+", "", "a"), 1).machines == (M1,)


def test_a_machine_costs_its_share_of_what_would_be_preempted() -> None:
    first, second, third = machines("a b c+", "a c", "a c+")
    assert [preemption_cost(machine.attempts) for machine in (first, second, third)] == pytest.approx(
        [4 / 3, 4 / 3, 1 / 3]
    )


def test_beyond_the_least_cost_a_gang_is_vacated_as_a_whole() -> None:
    """Each of the small ones costs no more than a share of the gang with its neighbour; four of them are four evictions."""
    on_loan = machines("g x", "g x", "g x", "g x", "a", "b", "c", "d")
    assert len(chosen(FewestEvictions(), on_loan, 4).victims) == fewest_victims(on_loan, 4) == 2
    # Two halves cost as much as one alone, but vacate two machines with the second one.
    halves = machines("a", "p q", "p q")
    assert len(chosen(FewestEvictions(), halves, 2).victims) == fewest_victims(halves, 2) == 2


def test_an_answer_must_evict_what_is_there_and_nothing_else() -> None:
    on_loan = machines("a", "b", "", leaving="z")
    with pytest.raises(
        BadReclaim, match="x gives back m0: for that it must evict attempt 1 of a, but it evicts nothing"
    ):
        check_reclaim("x", ReclaimChoice((), Reclaim((M0,), ())), on_loan, 1)
    with pytest.raises(BadReclaim, match="must evict nothing, but it evicts attempt 1 of b"):
        check_reclaim("x", ReclaimChoice((), Reclaim((M2,), (key("b"),))), on_loan, 1)
    with pytest.raises(BadReclaim, match="x is asked for 1 of the machines m0, m1, m2 and chooses m0, m1"):
        check_reclaim("x", ReclaimChoice((), Reclaim((M0, M1), (key("a"), key("b")))), on_loan, 1)
    elastic = machines("a", "a+")
    with pytest.raises(
        BadReclaim, match="must scale in attempt 1 of a by task 1 of job train, but it scales in nothing"
    ):
        check_reclaim("x", ReclaimChoice((), Reclaim((M1,), ())), elastic, 1)
