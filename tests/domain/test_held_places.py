"""What placements come to together, and which attempt follows which."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from domain.identifiers import AttemptNumber, ClusterId, JobName, MachineId, WorkloadId
from domain.placement import AttemptKey, HeldAmounts, TaskPlacement, amounts_of, machines_of, order_of_holding


def task(number: int, machine: str, gpus: tuple[int, ...], millicpus: int) -> TaskPlacement:
    return TaskPlacement(JobName("train"), number, ClusterId("c"), MachineId(machine), gpus, millicpus, 1_024)


def key(name: str, attempt: int = 1) -> AttemptKey:
    return AttemptKey(WorkloadId(name), AttemptNumber(attempt))


def test_amounts_and_machines_are_those_of_all_tasks() -> None:
    placements = (task(0, "m2", (0, 1), 1_500), task(1, "m1", (), 250), task(2, "m2", (2,), 0))
    assert amounts_of(placements) == HeldAmounts(gpus=3, cpus=1.75)
    assert machines_of(placements) == ("m2", "m1")
    assert (amounts_of(()), machines_of(())) == (HeldAmounts(0, 0.0), ())


@given(st.integers(1, 1_000))
def test_never_another_attempt_than_this_between_the_one_before_and_the_one_after(number: int) -> None:
    assert key("w", number).successor == key("w", number + 1)
    assert key("w", number).successor.predecessor == key("w", number)


def test_what_leaves_holds_its_place_before_what_was_dispatched_there() -> None:
    newcomer, victim, other = (key("n"), 9.0, False), (key("v"), 5.0, True), (key("o"), 1.0, False)
    order = sorted([newcomer, victim, other], key=lambda one: order_of_holding(*one))
    assert order == [victim, other, newcomer]
