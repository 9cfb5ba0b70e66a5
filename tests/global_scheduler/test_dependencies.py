"""What becomes of workloads that wait for others, beside a twin that goes through all of them again and again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.dependencies import ENDS_OF_CONDITIONS, Dependency, dependency_of, is_met, waiting_sentence
from domain.identifiers import WorkloadId
from domain.life_cycle import ENDED, State
from global_scheduler.dependencies import Settlement, settle

Waits = Mapping[WorkloadId, Sequence[Dependency]]


def by_going_round(
    waits: Waits, states: Mapping[str, State]
) -> tuple[set[WorkloadId], set[WorkloadId], dict[str, State]]:
    """Who is released, who is cancelled, and all ends: until nothing changes any more."""
    ends = {name: state for name, state in states.items() if state in ENDED}
    cancelled: set[WorkloadId] = set()
    changed = True
    while changed:
        changed = False
        for workload, after in waits.items():
            if workload not in cancelled and any(is_met(one, ends.get(one.workload)) is False for one in after):
                cancelled.add(workload)
                ends[workload] = State.CANCELLED
                changed = True
    released = {
        workload
        for workload, after in waits.items()
        if workload not in cancelled and all(is_met(one, ends.get(one.workload)) for one in after)
    }
    return released, cancelled, ends


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Waits, dict[str, State]]:
    """Some that are over or under way, and others that wait for these and for each other."""
    others = {f"e{number}": draw(st.sampled_from(State)) for number in range(draw(st.integers(1, 5)))}
    waits: dict[WorkloadId, list[Dependency]] = {}
    for number in range(draw(st.integers(1, 7))):
        earlier = [*others, *waits]
        named = draw(st.lists(st.sampled_from(earlier), min_size=1, max_size=4, unique=True))
        conditions = [draw(st.sampled_from(sorted(ENDS_OF_CONDITIONS))) for _ in named]
        waits[WorkloadId(f"w{number}")] = [Dependency(*one) for one in zip(conditions, named, strict=True)]
    return waits, others


@given(graphs())
def test_settles_as_who_goes_round_until_nothing_changes(world: tuple[Waits, dict[str, State]]) -> None:
    waits, states = world
    settled = settle(waits, states)
    released, cancelled, ends = by_going_round(waits, states)
    assert set(settled.released) == released
    assert {workload for workload, _ in settled.impossible} == cancelled
    expected = {
        (workload, one)
        for workload, after in waits.items()
        if workload not in released | cancelled
        for one in after
        if is_met(one, ends.get(one.workload))
    }
    assert set(settled.met) == expected


@given(graphs(), st.data())
def test_the_order_in_which_ends_are_told_never_matters(
    world: tuple[Waits, dict[str, State]], data: st.DataObject
) -> None:
    waits, states = world
    shuffled = data.draw(st.permutations(sorted(states)))
    again = settle(dict(reversed(list(waits.items()))), {name: states[name] for name in shuffled})
    assert again == settle(waits, states)


@given(graphs())
def test_nobody_is_released_and_cancelled_and_each_is_cancelled_behind_its_cause(
    world: tuple[Waits, dict[str, State]],
) -> None:
    waits, states = world
    settled = settle(waits, states)
    over = {name for name, state in states.items() if state in ENDED}
    for workload, reason in settled.impossible:
        cause = dependency_of(reason.split(" ")[0])
        assert cause in waits[workload]
        assert cause.workload in over
        over.add(workload)
    assert not set(settled.released) & {workload for workload, _ in settled.impossible}


def test_a_chain_of_a_thousand_is_settled_at_once() -> None:
    chain = {
        WorkloadId(f"w{number:04}"): [Dependency("ok", f"w{number - 1:04}" if number else "head")]
        for number in range(1_000)
    }
    failed = settle(chain, {"head": State.FAILED})
    assert [workload for workload, _ in failed.impossible] == sorted(chain)
    assert failed.impossible[0][1] == "ok:head can never be: it failed"
    assert failed.impossible[1][1] == "ok:w0000 can never be: it was cancelled"
    assert settle(chain, {"head": State.COMPLETED}) == Settlement(released=(WorkloadId("w0000"),))
    assert settle(chain, {"head": State.RUNNING}) == Settlement()


@pytest.mark.parametrize(
    ("waits_for", "sentence"),
    [
        (["ok:a"], "waits for ok:a (running)"),
        (["ok:a", "any:b"], "waits for ok:a (running) and any:b (running)"),
        (
            ["ok:a", "ok:b", "ok:c", "ok:d", "ok:e"],
            "waits for ok:a (running), ok:b (running), ok:c (running) and 2 more",
        ),
    ],
)
def test_says_for_what_it_waits(waits_for: list[str], sentence: str) -> None:
    assert waiting_sentence([(dependency_of(one), State.RUNNING) for one in waits_for]) == sentence
