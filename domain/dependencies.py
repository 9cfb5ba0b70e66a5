"""A workload may wait for others: `ok:w-1` until that one has completed, `failed:w-1` until it has failed, `any:w-1` until it has ended.

An array has ended when all its elements have: it failed if one did, else it was cancelled if one was, and else it completed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from domain.life_cycle import ENDED, State
from domain.workload_array import name_of_written

OK, FAILED, ANY = "ok", "failed", "any"

ENDS_OF_CONDITIONS: Final[Mapping[str, frozenset[State]]] = MappingProxyType(
    {OK: frozenset({State.COMPLETED}), FAILED: frozenset({State.FAILED}), ANY: ENDED}
)
"""With which ends each condition is met."""

_SHOWN = 3
_ENDED_AS: Final[Mapping[State, str]] = MappingProxyType(
    {State.COMPLETED: "it completed", State.FAILED: "it failed", State.CANCELLED: "it was cancelled"}
)


@dataclass(frozen=True, slots=True, order=True)
class Dependency:
    """What has to become of another workload. A condition that there is not is found by the checks."""

    condition: str
    workload: str
    """Its id; in a submission of several also the name of another one of them."""

    def __str__(self) -> str:
        return f"{self.condition}:{self.workload}" if self.condition else self.workload


def dependency_of(text: str) -> Dependency:
    """Of `ok:w-1`, or `ok:w-1[7]` for an element of an array; without a colon it has no condition."""
    condition, separator, workload = text.partition(":")
    return Dependency(condition, name_of_written(workload)) if separator else Dependency("", text)


def is_met(dependency: Dependency, state: State | None) -> bool | None:
    """Whether it is, with the other one in this state (None: not known); None: that is not decided before it ends."""
    return state in ENDS_OF_CONDITIONS[dependency.condition] if state in ENDED else None


def never_met(dependency: Dependency, state: State) -> str:
    """Why it can never be, with the other one ended like that."""
    return f"{dependency} can never be: {_ENDED_AS[state]}"


def waiting_sentence(waits_for: Sequence[tuple[Dependency, State | None]]) -> str:
    """For what a workload waits, and what those are at present; only the first are named."""
    named = [f"{one} ({state.lower()})" if state is not None else str(one) for one, state in waits_for[:_SHOWN]]
    more = [f"{len(waits_for) - _SHOWN} more"] if len(waits_for) > _SHOWN else []
    *others, last = [*named, *more]
    return f"waits for {', '.join(others)} and {last}" if others else f"waits for {last}"
