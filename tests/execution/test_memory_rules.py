"""Which limits tasks have, which one ends when a machine has too little memory, and how that is told."""

from __future__ import annotations

from itertools import permutations

import pytest

from domain.resources import TaskResources
from services.execution.memory_rules import (
    TaskMemory,
    above_its_limit,
    asked_limit_bytes,
    chosen_to_end,
    ended_by_kernel,
    ended_for_machine,
    killed_meanwhile,
    promised_bytes,
)
from tests.execution.orders import placement

GIB = 2**30


def task(name: str, used: float, promised: float, started_s: float = 0.0) -> TaskMemory:
    return TaskMemory(name, round(used * GIB), round(promised * GIB), started_s)


@pytest.mark.parametrize(
    ("asked_gib", "placed_mebibytes", "limit_gib", "promised_gib"),
    [
        (3.0, 3072, 3, 3),
        # It was given more.
        (3.0, 4096, 4, 4),
        # It was given less than it has asked for: that was its word.
        (3.0, 1024, 3, 3),
        # Nobody has said how much.
        (None, 2048, None, 2),
    ],
)
def test_a_task_is_kept_to_what_it_asked_for_and_to_what_it_was_given_if_that_is_more(
    asked_gib: float | None, placed_mebibytes: int, limit_gib: int | None, promised_gib: int
) -> None:
    resources = TaskResources(cpus=1.0, memory_gib=asked_gib)
    placed = placement()._replace(mebibytes=placed_mebibytes)
    assert asked_limit_bytes(resources, placed) == (None if limit_gib is None else limit_gib * GIB)
    assert promised_bytes(resources, placed) == promised_gib * GIB


@pytest.mark.parametrize(
    ("tasks", "chosen"),
    [
        # More than it was given comes before more.
        ((task("greedy", 3, 2), task("large", 50, 64)), "greedy"),
        ((task("by-2", 6, 4), task("by-1", 31, 30)), "by-2"),
        # None exceeds what it was given.
        ((task("small", 1, 4), task("large", 3, 4)), "large"),
        # The newest one has the least to lose.
        ((task("old", 2, 4, 10.0), task("new", 2, 4, 20.0)), "new"),
        ((task("a", 2, 4), task("b", 2, 4)), "b"),
    ],
)
def test_who_exceeds_most_what_it_was_given_ends_for_the_machine_else_who_uses_most(
    tasks: tuple[TaskMemory, ...], chosen: str
) -> None:
    for order in permutations(tasks):
        ended = chosen_to_end(order, available_bytes=GIB // 4, reserve_bytes=GIB // 2)
        assert ended is not None
        assert ended.name == chosen


def test_no_task_ends_while_the_reserve_is_there_or_where_their_end_would_not_help() -> None:
    greedy = (task("greedy", 3, 2),)
    assert chosen_to_end(greedy, available_bytes=GIB, reserve_bytes=GIB) is None
    assert chosen_to_end((task("innocent", 0.1, 2),), available_bytes=0, reserve_bytes=GIB) is None
    assert chosen_to_end((), available_bytes=0, reserve_bytes=GIB) is None


def test_the_sentences_say_what_was_used_and_what_the_limit_is() -> None:
    assert (
        above_its_limit(round(3.196 * GIB), 3 * GIB)
        == "out of memory: it used 3.2 GiB, its limit is 3 GiB (--memory-gib)"
    )
    # What is above is never shown as equal.
    assert "it used 3.01 GiB, its limit is 3 GiB" in above_its_limit(3 * GIB + 1, 3 * GIB)
    assert (
        ended_by_kernel(GIB // 2)
        == "out of memory: the kernel killed a process of it at its limit of 0.5 GiB (--memory-gib)"
    )
    left = "out of memory: the machine had 0.25 GiB left, less than its reserve of 0.5 GiB; of its tasks this one"
    assert (
        ended_for_machine(task("t", 6, 4), GIB // 4, GIB // 2)
        == f"{left} exceeded most what it was given: it used 6 GiB and has 4 GiB"
    )
    assert ended_for_machine(task("t", 3, 4), GIB // 4, GIB // 2) == f"{left} used most: 3 GiB of the 4 GiB that it has"
    assert killed_meanwhile(1).startswith("maybe out of memory: since the task began the kernel has killed a process")
    assert "has killed 3 processes of its machine" in killed_meanwhile(3)
