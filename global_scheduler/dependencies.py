"""What becomes of workloads that wait for others, when others end.

Rule: a workload enters the queue when all that it waits for is so; it is cancelled as soon as one of these can never be, which is
an end like any other for those that wait for it. What is said of each depends on the ends alone, not on their order (decision 092).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from domain.dependencies import Dependency, is_met, never_met
from domain.identifiers import WorkloadId
from domain.life_cycle import ENDED, State


@dataclass(frozen=True, slots=True)
class Settlement:
    """What is decided now. All that is in none of these goes on waiting."""

    released: tuple[WorkloadId, ...] = ()
    """All that they waited for is so."""
    impossible: tuple[tuple[WorkloadId, str], ...] = ()
    """They are cancelled, and why; each behind the one for which it is."""
    met: tuple[tuple[WorkloadId, Dependency], ...] = ()
    """What is so of workloads that go on waiting for something else."""


def settle(waits: Mapping[WorkloadId, Sequence[Dependency]], states: Mapping[str, State]) -> Settlement:
    """`waits`: what each waits for, one at least; `states`: of what they wait for, as far as it has ended."""
    open_: dict[WorkloadId, int] = {workload: len(waits[workload]) for workload in sorted(waits)}
    waiting_for: dict[str, list[tuple[WorkloadId, Dependency]]] = {}
    for workload in open_:
        for dependency in waits[workload]:
            waiting_for.setdefault(dependency.workload, []).append((workload, dependency))
    ended = {name: state for name, state in states.items() if state in ENDED}
    told = deque(sorted(name for name in ended if name in waiting_for))
    impossible: dict[WorkloadId, str] = {}
    met: list[tuple[WorkloadId, Dependency]] = []
    while told:
        name = told.popleft()
        for workload, dependency in waiting_for[name]:
            if workload in impossible:
                continue
            if is_met(dependency, ended[name]):
                met.append((workload, dependency))
                open_[workload] -= 1
            else:
                impossible[workload] = never_met(dependency, ended[name])
                ended[workload] = State.CANCELLED
                if workload in waiting_for:
                    told.append(workload)
    released = tuple(workload for workload, left in open_.items() if not left)
    decided = {*released, *impossible}
    return Settlement(
        released, tuple(impossible.items()), tuple((each, one) for each, one in met if each not in decided)
    )
