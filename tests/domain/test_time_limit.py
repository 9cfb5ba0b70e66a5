"""Time limits: when they are reached, and how they are spelled."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.identifiers import JobName, TenantId
from domain.resources import TaskResources
from domain.time_limit import exact_duration, limit_reached_s, longest_attempt_s, time_limit_sentence
from domain.workload import Command, JobSpecification, WorkloadSpecification
from services.command_line.durations import parse_duration


def test_an_attempt_reaches_its_limit_so_long_after_its_start() -> None:
    assert limit_reached_s(100.0, 50.0) == 150.0
    assert limit_reached_s(None, 50.0) == math.inf
    assert limit_reached_s(100.0, None) == math.inf


def test_it_lasts_for_its_limit_and_its_grace_at_most() -> None:
    job = JobSpecification(JobName("main"), 1, TaskResources(cpus=1.0, memory_gib=1.0), Command(("true",)))
    assert longest_attempt_s(WorkloadSpecification("w", TenantId("t"), (job,))) == math.inf
    limited = WorkloadSpecification("w", TenantId("t"), (job,), stop_grace_s=20.0, max_time_s=100.0)
    assert longest_attempt_s(limited) == 120.0


@pytest.mark.parametrize(
    ("seconds", "spelled"),
    [(7_200.0, "2h"), (5_400.0, "1h 30m"), (86_420.0, "1d 20s"), (0.5, "0.5s"), (61.25, "1m 1.25s"), (0.0, "0s")],
)
def test_durations_are_spelled_exactly(seconds: float, spelled: str) -> None:
    assert exact_duration(seconds) == spelled


def test_the_sentence_names_the_limit() -> None:
    assert time_limit_sentence(7_200.0) == "time limit of 2h reached"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90.0),
        ("30m", 1_800.0),
        ("2h", 7_200.0),
        ("1.5h", 5_400.0),
        ("1h30m", 5_400.0),
        (" 2D 12h ", 216_000.0),
        ("1:30:00", 5_400.0),
        ("2-12:00:00", 216_000.0),
    ],
)
def test_durations_are_read_as_people_write_them(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "90", "1:30", "h", "2x", "30m 2h", "1h 1h", "2h and more", "-5s"])
def test_what_is_no_duration_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no length of time; write 90s, 30m, 2h"):
        parse_duration(text)


@given(st.integers(1, 10**9))
def test_what_is_spelled_is_read_again(seconds: int) -> None:
    assert parse_duration(exact_duration(float(seconds))) == seconds
