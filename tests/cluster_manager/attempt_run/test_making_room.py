"""Who waits for whom: worked out by hand."""

from __future__ import annotations

import pytest

from cluster_manager.attempt_run.making_room import is_in_the_way
from domain.identifiers import AttemptNumber, ClusterId, JobName, MachineId, WorkloadId
from domain.placement import AttemptKey, TaskPlacement


def key(name: str) -> AttemptKey:
    return AttemptKey(WorkloadId(name), AttemptNumber(1))


def on(machine: str, *gpus: int) -> TaskPlacement:
    return TaskPlacement(JobName("main"), 0, ClusterId("c"), MachineId(machine), gpus, 1_000, 1_024)


@pytest.mark.parametrize(
    ("leaving", "leaves_for", "waits"),
    [
        ([on("m0", 1)], "newcomer", True),
        ([on("m1", 0)], "newcomer", True),
        ([on("m0", 1)], "other", False),
        ([on("m0", 1)], None, False),
        ([on("m0", 0, 1)], "other", True),
        ([on("m1", 0)], "other", False),
        ([on("m0")], "other", False),
        ([on("m1", 0), on("m0", 0)], None, True),
    ],
)
def test_a_newcomer_waits_for_what_leaves_for_it_and_for_what_is_on_its_gpus(
    leaving: list[TaskPlacement], leaves_for: str | None, waits: bool
) -> None:
    """It was given GPU 0 of machine m0."""
    heir = None if leaves_for is None else key(leaves_for)
    assert is_in_the_way(leaving, heir, key("newcomer"), [on("m0", 0)]) is waits


def test_a_newcomer_in_cells_waits_for_whatever_leaves_its_machines() -> None:
    place = [on("m0", 0), on("m1", 0)]
    assert is_in_the_way([on("m1", 5)], key("other"), key("newcomer"), place, in_cells=True)
    assert is_in_the_way([on("m1")], None, key("newcomer"), place, in_cells=True)
    assert not is_in_the_way([on("m2", 0)], key("other"), key("newcomer"), place, in_cells=True)
