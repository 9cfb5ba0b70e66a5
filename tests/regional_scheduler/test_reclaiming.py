"""Reclaiming policies: what they answer, what an answer must be, and how many attempts it costs beside the fewest."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.identifiers import AttemptNumber, MachineId, WorkloadId
from domain.placement import AttemptKey
from domain.plan import Reclaim
from regional_scheduler.reclaiming.fewest_workloads import FewestWorkloadsFirst
from regional_scheduler.reclaiming.policy import (
    AttemptOnMachine,
    BadReclaim,
    MachineOnLoan,
    ReclaimingPolicy,
    check_reclaim,
    reclaim_of,
)
from regional_scheduler.reclaiming.random_machines import RandomMachines

M0, M1, M2 = MachineId("m0"), MachineId("m1"), MachineId("m2")


def key(name: str) -> AttemptKey:
    return AttemptKey(WorkloadId(name), AttemptNumber(1))


def machines(*hosted: str, leaving: str = "") -> list[MachineOnLoan]:
    """Machines m0, m1, ... that host attempts of these names, with one GPU each."""
    spread = {name: sum(name in names.split() for names in hosted) for names in hosted for name in names.split()}
    return [
        MachineOnLoan(
            MachineId(f"m{number}"),
            tuple(AttemptOnMachine(key(name), 1, spread[name]) for name in sorted(names.split())),
            tuple(key(name) for name in leaving.split()),
        )
        for number, names in enumerate(hosted)
    ]


def chosen(policy: ReclaimingPolicy, on_loan: Sequence[MachineOnLoan], count: int, seed: int = 0) -> Reclaim:
    reclaim = policy.choose(on_loan, count, np.random.default_rng(seed))
    check_reclaim(policy.name, reclaim, on_loan, count)
    return reclaim


def fewest_victims(on_loan: Sequence[MachineOnLoan], count: int) -> int:
    """By trying every choice."""
    return min(len(reclaim_of(choice).victims) for choice in itertools.combinations(on_loan, count))


@st.composite
def occupied_machines(draw: st.DrawFn, most_machines_of_an_attempt: int = 3) -> list[MachineOnLoan]:
    count = draw(st.integers(1, 7))
    hosted: list[list[str]] = [[] for _ in range(count)]
    for number in range(draw(st.integers(0, 9))):
        width = draw(st.integers(1, min(most_machines_of_an_attempt, count)))
        for place in draw(st.permutations(range(count)))[:width]:
            hosted[place].append(f"a{number}")
    return machines(*(" ".join(names) for names in hosted))


def test_fewest_workloads_then_fewest_gpus_then_the_order_of_the_fleet() -> None:
    policy = FewestWorkloadsFirst()
    on_loan = machines("a b", "c", "", "d")
    assert chosen(policy, on_loan, 1) == Reclaim((MachineId("m2"),), ())
    assert chosen(policy, on_loan, 2) == Reclaim((M1, M2), (key("c"),))
    assert chosen(policy, on_loan, 4).victims == (key("a"), key("b"), key("c"), key("d"))
    busier = [MachineOnLoan(M0, (AttemptOnMachine(key("a"), 8, 1),)), *machines("", "b")[1:]]
    assert chosen(policy, busier, 1).machines == (M1,)


def test_an_example_of_lyra() -> None:
    """§4, Table 1: "Servers 1 and 2 are obviously the optimal choice with one preemption"."""
    figure_5 = machines("a", "a", "b", "c", "c d", "d")
    assert [len(machine.attempts) for machine in figure_5] == [1, 1, 1, 1, 2, 1]
    assert fewest_victims(figure_5, 2) == 1
    assert len(chosen(FewestWorkloadsFirst(), figure_5, 2).victims) == 1
    # By that count 3 and 4 cost as little as 1 and 2: "which lead to more preemptions". Only the order chose well.
    assert len(chosen(FewestWorkloadsFirst(), figure_5[::-1], 2).victims) == 2


@given(occupied_machines(most_machines_of_an_attempt=1), st.data())
def test_never_evicts_more_than_it_must_where_each_attempt_is_on_one_machine(
    on_loan: list[MachineOnLoan], data: st.DataObject
) -> None:
    count = data.draw(st.integers(0, len(on_loan)))
    assert len(chosen(FewestWorkloadsFirst(), on_loan, count).victims) == fewest_victims(on_loan, count)


@given(occupied_machines())
def test_never_evicts_more_than_it_must_for_one_machine(on_loan: list[MachineOnLoan]) -> None:
    assert len(chosen(FewestWorkloadsFirst(), on_loan, 1).victims) == fewest_victims(on_loan, 1)


@pytest.mark.parametrize("policy", [FewestWorkloadsFirst(), RandomMachines()], ids=str)
@given(on_loan=occupied_machines(), data=st.data())
def test_never_answers_anything_but_a_choice(
    policy: ReclaimingPolicy, on_loan: list[MachineOnLoan], data: st.DataObject
) -> None:
    count, seed = data.draw(st.integers(0, len(on_loan))), data.draw(st.integers(0, 9))
    reclaim = chosen(policy, on_loan, count, seed)
    assert reclaim == chosen(policy, on_loan, count, seed)
    assert fewest_victims(on_loan, count) <= len(reclaim.victims)
    order = [machine.machine for machine in on_loan]
    assert [order.index(machine) for machine in reclaim.machines] == sorted(map(order.index, reclaim.machines))


def test_at_random_every_machine_goes_now_and_then() -> None:
    on_loan = machines("a", "b c", "")
    seen = {chosen(RandomMachines(), on_loan, 1, seed).machines for seed in range(30)}
    assert seen == {(M0,), (M1,), (M2,)}


def test_an_answer_must_evict_what_is_there_and_nothing_else() -> None:
    on_loan = machines("a", "b", "", leaving="z")
    with pytest.raises(
        BadReclaim, match="x gives back m0: for that it must evict attempt 1 of a, but it evicts nothing"
    ):
        check_reclaim("x", Reclaim((M0,), ()), on_loan, 1)
    with pytest.raises(BadReclaim, match="must evict nothing, but it evicts attempt 1 of b"):
        check_reclaim("x", Reclaim((M2,), (key("b"),)), on_loan, 1)
    with pytest.raises(BadReclaim, match="x is asked for 1 of the machines m0, m1, m2 and chooses m0, m1"):
        check_reclaim("x", Reclaim((M0, M1), (key("a"), key("b"))), on_loan, 1)
