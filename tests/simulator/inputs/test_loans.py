"""Loan schedules: read strictly, written back, and made from how busy an inference fleet is."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.fleet import Cluster, Fleet, Rack, Region
from domain.identifiers import ClusterId, RackId, RegionId
from formats.problems import FormatError
from simulator.inputs.loans import (
    LoanSchedule,
    LoanStep,
    UtilisationPoint,
    check_loans,
    loans_of_utilisation,
    read_loans,
    read_utilisation,
    write_loans,
)
from tests.simulator.engine.checked_run import machine

SERVING, CHAT = ClusterId("serving"), ClusterId("chat")


def cluster(name: str, count: int) -> Cluster:
    members = tuple(machine(f"{name}{number}", 1) for number in range(count))
    return Cluster(ClusterId(name), (Rack(RackId(name), members),))


FLEET = Fleet((Region(RegionId("r"), (cluster("training", 9), cluster("serving", 4), cluster("chat", 2))),))


def problems(tmp_path: Path, text: str) -> list[str]:
    file = tmp_path / "loans.csv"
    file.write_text(text)
    with pytest.raises(FormatError) as caught:
        read_loans(file, FLEET)
    assert caught.value.source == str(file)
    return [str(problem) for problem in caught.value.problems]


def test_a_schedule_is_read_and_written(tmp_path: Path) -> None:
    file = tmp_path / "loans.csv.gz"
    text = "cluster,t_s,note,machines\nserving,0,at night,4\n\nchat, 0 ,,1\nserving,1e3,,0\nchat,90000000.125,,2\n"
    file.write_bytes(gzip.compress(text.encode()))
    schedule = read_loans(file, FLEET)
    assert schedule.steps == (
        LoanStep(0.0, SERVING, 4),
        LoanStep(0.0, CHAT, 1),
        LoanStep(1000.0, SERVING, 0),
        LoanStep(90000000.125, CHAT, 2),
    )
    assert schedule.clusters() == (CHAT, SERVING)
    again = tmp_path / "again.csv"
    write_loans(again, schedule)
    assert read_loans(again, FLEET) == schedule


def test_everything_that_is_wrong_is_named_with_line_and_remedy(tmp_path: Path) -> None:
    text = "t_s,cluster,machines\n10,servin,1\n20,serving,5\n30,chat,1\n25,chat,0\n40,chat,1\n40,chat,2\n-1,chat,1\n50,chat,x\n"
    assert problems(tmp_path, text) == [
        "line 8, column t_s: must be a number from 0 to 1e+12, not '-1'",
        "line 9, column machines: must be a whole number from 0 to 1000000, not 'x'",
        "line 2, column cluster: servin is not in the fleet; did you mean serving?",
        "line 3, column machines: lends 5, but cluster serving has 4",
        "line 5, column t_s: falls from 30 to 25; sort the lines by time",
        "line 7, column t_s: is the second line of cluster chat at 40; leave one out",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "lists no loan"),
        ("t_s,cluster,machines\n", "lists no loan"),
        ("t_s,cluster\n0,chat\n", "line 1: has no column machines"),
        ("t_s,cluster,machines\n0,chat\n", "line 2: has 2 cells, but there are 3 columns"),
        ('t_s,cluster,machines\n0,"chat,1\n', "is not CSV"),
    ],
)
def test_never_passes_over_a_file_that_is_no_schedule(tmp_path: Path, text: str, expected: str) -> None:
    (only,) = problems(tmp_path, text)
    assert expected in only


def test_a_schedule_of_another_fleet_is_refused() -> None:
    with pytest.raises(FormatError, match="step 2, column machines: lends 3, but cluster chat has 2"):
        check_loans(LoanSchedule((LoanStep(0, SERVING, 4), LoanStep(0, CHAT, 3))), FLEET, "loans")


def test_what_is_idle_beyond_the_headroom_is_lent() -> None:
    curve = [UtilisationPoint(0, 0.5), UtilisationPoint(300, 0.501), UtilisationPoint(600, 0.985)]
    # Of 100: 50 busy and 2 for bursts; 50.1 are 51 machines; 98.5 are 99, and beyond that not even the headroom is left.
    assert loans_of_utilisation(curve, SERVING, 100).steps == (
        LoanStep(0, SERVING, 48),
        LoanStep(300, SERVING, 47),
        LoanStep(600, SERVING, 0, 1),
    )
    # Of 4, two percent is one machine: none is ever lent in parts.
    assert [step.machines for step in loans_of_utilisation(curve[:1], SERVING, 4).steps] == [1]
    assert [step.machines for step in loans_of_utilisation(curve[:1], SERVING, 4, headroom=0).steps] == [2]


def test_until_the_next_look_the_busiest_time_counts() -> None:
    curve = [
        UtilisationPoint(0, 0.1),
        UtilisationPoint(100, 0.4),
        UtilisationPoint(200, 0.2),
        UtilisationPoint(600, 0.3),
    ]
    schedule = loans_of_utilisation(curve, SERVING, 10, headroom=0)
    # 0 to 300: 0.4; 300 to 600: 0.2 still; 600 to 1000, as long as the point before it: 0.3.
    assert schedule.steps == (LoanStep(0, SERVING, 6), LoanStep(300, SERVING, 8), LoanStep(600, SERVING, 7))


def test_a_day_is_repeated() -> None:
    curve = [UtilisationPoint(50, 0.1), UtilisationPoint(350, 0.9)]
    schedule = loans_of_utilisation(curve, SERVING, 10, headroom=0, until_s=1300)
    assert schedule.steps == tuple(LoanStep(50 + 300 * n, SERVING, (9, 1)[n % 2]) for n in range(5))


@given(
    st.lists(st.integers(0, 100), min_size=1, max_size=20),
    st.integers(1, 500),
    st.sampled_from((100.0, 300.0, 450.0)),
)
def test_never_lends_what_is_busy_or_headroom(busy: list[int], machines: int, look_every_s: float) -> None:
    curve = [UtilisationPoint(300.0 * n, percent / 100) for n, percent in enumerate(busy)]
    schedule = loans_of_utilisation(curve, SERVING, machines, look_every_s=look_every_s)
    times = [step.t_s for step in schedule.steps]
    assert times == sorted(set(times))
    for point, percent in zip(curve, busy, strict=True):
        lent = [step.machines for step in schedule.steps if step.t_s <= point.t_s][-1]
        assert lent == 0 or 100 * lent <= (100 - percent - 2) * machines
    assert all(
        (before.machines, before.short) != (after.machines, after.short)
        for before, after in zip(schedule.steps, schedule.steps[1:], strict=False)
    )


def test_a_public_day_of_a_serving_fleet(traces: Path) -> None:
    curve = read_utilisation(traces / "inference_gpu_utilisation.csv")
    assert len(curve) == 288
    schedule = loans_of_utilisation(curve, SERVING, 500)
    # The quietest five minutes have no busy pod, the busiest 97 %: 10 are never lent.
    lent = [step.machines for step in schedule.steps]
    assert (max(lent), min(lent)) == (490, 500 - 487 - 10)
    assert {step.t_s % 300 for step in schedule.steps} == {0}
    assert 100 < len(lent) <= 288
    week = loans_of_utilisation(curve, SERVING, 500, until_s=7 * 86_400.0)
    assert [step for step in week.steps if step.t_s < 86_400] == list(schedule.steps)
    assert week.steps[-1].t_s > 6.9 * 86_400


def test_a_curve_must_be_one(tmp_path: Path) -> None:
    file = tmp_path / "curve.csv"
    file.write_text("t_s,pods,busy_pod_fraction\n0,9,0.5\n300,9,1.5\n300,9,0.25\n")
    with pytest.raises(FormatError) as caught:
        read_utilisation(file)
    assert [str(problem) for problem in caught.value.problems] == [
        "line 3, column busy_pod_fraction: must be at most 1, not 1.5",
        "line 4, column t_s: must be later than the line before it (300), not 300",
    ]
    file.write_text("t_s,pods,busy_pod_fraction\n0,9,0.5\n300,9,1\n")
    assert read_utilisation(file) == (UtilisationPoint(0, 0.5), UtilisationPoint(300, 1))
    with pytest.raises(ValueError, match="at least one point"):
        loans_of_utilisation((), SERVING, 1)


def test_the_page_is_taken_at_its_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[3] / "docs" / "formats.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```csv\n(t_s,.*?)```", page, flags=re.DOTALL)
    file = tmp_path / "example.csv"
    file.write_text(example)
    place = Fleet((Region(RegionId("r"), (cluster("inference", 12),)),))
    assert [step.machines for step in read_loans(file, place).steps] == [0, 12, 5]
    (code,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    (tmp_path / "inference_gpu_utilisation.csv").write_text("t_s,busy_pod_fraction\n0,0.1\n43200,0.9\n")
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "docs/formats.md", "exec"), {})  # noqa: S102 -- our own example
    made = read_loans(tmp_path / "loans.csv", Fleet((Region(RegionId("r"), (cluster("inference", 520),)),)))
    assert [step.machines for step in made.steps] == [520 - 52 - 11, 520 - 468 - 11] * 14
