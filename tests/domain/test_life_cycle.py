"""The table of a workload's life: what is in it, what causes it, and that the drawing of it shows the same."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from domain.identifiers import WorkloadId
from domain.life_cycle import (
    ENDED,
    LIVE,
    QUEUED,
    TRANSITIONS,
    Happening,
    State,
    TransitionRefused,
    next_state,
    state_after,
    state_changes,
    states_before,
)

W = WorkloadId("w1")
ROOT = Path(__file__).parents[2]
PACKAGES = ("cluster_manager", "global_scheduler", "regional_scheduler", "services", "simulator")
PAIRS = list(itertools.product(State, Happening))


@pytest.mark.parametrize(("state", "happening"), PAIRS, ids=[f"{state}-{happening}" for state, happening in PAIRS])
def test_every_pair_is_listed_or_refused_with_the_history(state: State, happening: Happening) -> None:
    if (state, happening) in TRANSITIONS:
        assert next_state(W, state, happening) is TRANSITIONS[state, happening]
    else:
        with pytest.raises(TransitionRefused, match=rf"workload w1 is {state}: '{happening}'.*history: seen once"):
            next_state(W, state, happening, ("seen once",))


def test_every_state_is_reached_and_from_every_other_the_end() -> None:
    reached = {State.PENDING}
    for _ in State:
        reached |= {after for before, after in state_changes(reached)}
    assert reached == set(State)
    for state in set(State) - ENDED:
        onward = {state}
        for _ in State:
            onward |= {after for before, after in state_changes(onward)}
        assert onward >= ENDED


def test_every_state_is_of_one_kind_and_what_has_ended_stays_so() -> None:
    assert sorted([*QUEUED, *LIVE, *ENDED]) == sorted(State)
    assert not state_changes(ENDED)


def test_guards_are_the_rows_of_the_table() -> None:
    assert states_before(Happening.STARTED) == (State.DISPATCHED,)
    assert set(states_before(Happening.DISPATCHED)) == QUEUED
    assert state_after(Happening.EVICTION_BEGAN) is State.PREEMPTING
    assert (State.PREEMPTING, State.PENDING) in state_changes(LIVE)
    assert (State.PENDING, State.RUNNING) not in state_changes(QUEUED)


@pytest.mark.parametrize("happening", Happening)
def test_everything_in_the_table_is_caused_by_something(happening: Happening) -> None:
    name = f"Happening.{happening.name}"
    assert any(re.search(rf"{re.escape(name)}\b", source) for source in _sources()), f"nothing causes {name}"


def _sources() -> Iterator[str]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield path.read_text(encoding="utf-8")


def test_no_module_writes_a_state_past_the_table() -> None:
    """States in SQL come from the table, and nothing sets the state of a workload to a word of its own."""
    words = "|".join(state.value for state in State)
    literal = re.compile(rf"'({words})'|\.state = State\.")
    found = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if "migrations" not in path.parts
        for match in literal.finditer(path.read_text(encoding="utf-8"))
    ]
    assert not found


def test_the_drawing_shows_the_table() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    drawn = text.partition("```mermaid\nstateDiagram-v2\n    [*] --> PENDING\n")[2].partition("```")[0]
    assert drawn == drawing(), "docs/architecture.md draws another life of a workload than domain/life_cycle.py"


def drawing() -> str:
    """One line for each change of state, with what causes it; what changes nothing is left out."""
    causes: dict[tuple[State, State], list[str]] = {}
    for (before, happening), after in TRANSITIONS.items():
        if before is not after:
            causes.setdefault((before, after), []).append(happening.value.replace("_", " "))
    return "".join(f"    {before} --> {after}: {', '.join(why)}\n" for (before, after), why in causes.items())
