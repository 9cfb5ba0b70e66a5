"""Whole control planes on simulated time: killed, halted, cut off, without a database; all that was acknowledged ends once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import pytest

from services.cluster_manager.fence import Fence
from services.database.commit_marks import CommitMarks, Slot
from services.database.connection import AnyConnection
from services.regional_scheduler.order_sender import OrderSender
from tests.deterministic.control_plane import Course, run_course
from tests.deterministic.simulation import Moment
from tests.house.determinism import assert_same_output

_COURSES, _COURSES_BY_NIGHT, _COURSES_FOR_A_MISTAKE = 4, 400, 100
_KINDS_OF_TROUBLE = 12
_ORDERS = frozenset({"ExecutePlan", "StopAttempt", "ForgetAttempts"})

Run: TypeAlias = Callable[[int], Course]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, database_url: str, tmp_path: Path) -> Run:
    """Runs the course of a seed, and checks what must be true at its end."""

    return lambda seed: run_course(seed, database_url, tmp_path, monkeypatch)


@dataclass
class _Seen:
    """How often there was what, in all courses of a test."""

    troubles: Counter[str] = field(default_factory=Counter)
    interrupted: Counter[Moment] = field(default_factory=Counter)
    lost_in_commits: int = 0
    tried_again: int = 0
    hung: int = 0
    came_late: Counter[str] = field(default_factory=Counter)


def _never_is_anything_lost(run: Run, first: int, courses: int) -> _Seen:
    seen = _Seen()
    for seed in range(first, first + courses):
        course = run(seed)
        seen.troubles += course.troubles
        seen.interrupted += course.plane.interrupted
        seen.lost_in_commits += course.postgres.lost_in_commit
        seen.tried_again += sum((stored.event.attempt or 0) > 1 for stored in course.events)
        seen.hung += course.postgres.hung
        seen.came_late += course.network.came_late
    return seen


def test_never_is_anything_lost_or_done_twice(run: Run, request: pytest.FixtureRequest) -> None:
    _never_is_anything_lost(run, int(request.config.getoption("seed")) * 1_000_000, _COURSES)


@pytest.mark.nightly
@pytest.mark.timeout(7200)
def test_never_is_anything_lost_or_done_twice_in_a_night(run: Run, request: pytest.FixtureRequest) -> None:
    first = int(request.config.getoption("seed")) * 1_000_000 + 1_000
    seen = _never_is_anything_lost(run, first, _COURSES_BY_NIGHT)
    assert len(seen.troubles) == _KINDS_OF_TROUBLE
    assert set(seen.interrupted) == set(Moment)
    assert min(seen.lost_in_commits, seen.tried_again) > _COURSES_BY_NIGHT / 4
    assert seen.hung > 0
    assert _ORDERS | {"SubmitWorkload", "CancelWorkload"} <= set(seen.came_late)


@pytest.mark.nightly
def test_orders_that_are_not_given_again_are_found_out(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake that is planted: what was ordered on a connection that broke is taken for ordered."""
    monkeypatch.setattr(OrderSender, "_forget_what_was_asked", lambda _self, _cluster: None)
    with pytest.raises(AssertionError, match="not over"):
        _never_is_anything_lost(run, 1, _COURSES_FOR_A_MISTAKE)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_orders_of_former_leaders_that_are_taken_are_found_out(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake that is planted: cluster managers do what anybody orders, also who has lost the region's lease."""

    async def take(_self: Fence, _token: int, _secret: str) -> None:
        """From everybody."""

    monkeypatch.setattr(Fence, "check", take)
    with pytest.raises(AssertionError, match=r"not over|beside|ends"):
        _never_is_anything_lost(run, 1, _COURSES_FOR_A_MISTAKE)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_commits_that_are_taken_for_others_are_found_out(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mistake that was found here first: a transaction got its number with its mark, and until then had that of another one."""
    mark = CommitMarks.mark

    async def numbered_late(self: CommitMarks, connection: AnyConnection, slot: Slot) -> None:
        slot.number += 1
        await mark(self, connection, slot)

    monkeypatch.setattr(CommitMarks, "begin_commit", lambda _self, _slot: None)
    monkeypatch.setattr(CommitMarks, "mark", numbered_late)
    with pytest.raises(AssertionError, match=r"not over|one lease|acknowledged|keys|ends"):
        _never_is_anything_lost(run, 1, _COURSES_FOR_A_MISTAKE)


_PRINT_COURSE = """
import sys
from pathlib import Path

import pytest
import structlog

from tests.deterministic.control_plane import run_course


def drop(*_line):
    raise structlog.DropEvent


structlog.configure(processors=[drop])
course = run_course(5, sys.argv[1], Path(sys.argv[2]), pytest.MonkeyPatch())
print(course.world.turns)
for stored in course.events:
    print(stored.sequence, stored.event)
"""


def test_a_seed_makes_one_course_in_every_process(database_url: str, tmp_path: Path) -> None:
    printed = assert_same_output(_PRINT_COURSE, [database_url, str(tmp_path)])
    assert printed.count("EventKind.SUBMITTED") == 14
