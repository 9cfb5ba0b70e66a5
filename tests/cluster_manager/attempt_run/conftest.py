"""Whatever a test does to an attempt, its invariants hold at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from cluster_manager.attempt_run.invariants import check
from tests.cluster_manager.attempt_run.runs import CheckedAttempt, attempt


@pytest.fixture
def new_attempt() -> Iterator[Callable[..., CheckedAttempt]]:
    """Makes attempts; when the test is over, each of them is checked and has ended at most once (I8)."""
    made: list[CheckedAttempt] = []

    def make(**facts: object) -> CheckedAttempt:
        made.append(attempt(**facts))  # type: ignore[arg-type]  # named parameters of `attempt`
        return made[-1]

    yield make
    for checked in made:
        check(checked.run)
        assert len(checked.ends) <= 1
