"""Numbers as they stand on the page."""

from __future__ import annotations

import pytest

from simulator.report.ranking import largest_and_others
from simulator.report.wording import count_of, duration, gpu_hours, moment, number, percent, time_unit


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.0, "0 s"), (-0.0, "0 s"), (0.0437, "0.0437 s"), (59.9, "59.9 s"), (90.0, "1.5 min"), (3600.0, "1 h"),
        (-86_400.0 * 2.5, "-2.5 d"), (86_400.0 * 20_200, "20,200 d"), (None, "–"), (float("nan"), "–"),
    ],
    ids=str,
)  # fmt: skip
def test_durations(seconds: float | None, shown: str) -> None:
    assert duration(seconds) == shown


def test_other_numbers() -> None:
    assert (percent(0.98765), percent(None), percent(float("nan"))) == ("98.8 %", "–", "–")
    assert (number(77_375), number(0.5), number(1234.5), number(None)) == ("77,375", "0.5", "1,234", "–")
    assert (gpu_hours(3600.0 * 2.5), gpu_hours(3600.0 * 12_345.6)) == ("2.5", "12,346")
    assert (moment(1_790_000_000.0), moment(84_420.0)) == ("2026-09-21 14:13 UTC", "84,420 s on the trace's clock")
    assert (count_of(1, "seed"), count_of(3, "seed")) == ("1 seed", "3 seeds")


@pytest.mark.parametrize(
    ("span_s", "unit"), [(10.0, "seconds"), (3_000.0, "minutes"), (50_000.0, "hours"), (1e6, "days")], ids=str
)
def test_axes_have_the_unit_that_reads_best(span_s: float, unit: str) -> None:
    assert time_unit(span_s)[0] == unit


def test_the_largest_come_first_and_the_others_last() -> None:
    names, place_of = largest_and_others([*"ccc", *"aa", *"bb", "d", "e"], most=4)
    assert names == ("c", "a", "b", "others")
    assert [place_of(name) for name in "abcde"] == [1, 2, 0, 3, 3]
    few, place_of = largest_and_others("ab", most=4)
    assert (few, place_of("b")) == (("a", "b"), 1)
