"""Curves of speed over tasks: in workload files, in traces, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from domain.scaling import ScalingPoint
from domain.work_rate import work_rate
from domain.workload import Emulated
from formats.problems import FieldProblem, FormatError
from formats.scaling_curves import check_curve
from formats.trace import TraceReader, write_trace
from formats.trace_workload import workload_of_row
from formats.workload_file import parse_workloads, workload_document, workload_from_document

CURVE = (ScalingPoint(1, 1.0), ScalingPoint(2, 1.9), ScalingPoint(4, 3.4))
HEADER = "workload_id,tenant,submit_s,duration_s,gpus,tasks,min_tasks,max_tasks,scaling"


def workload(scaling: str) -> str:
    return f"""
name: measured
tenant: ads
jobs:
  - name: train
    tasks: 1
    max_tasks: 4
    scaling: {scaling}
    resources: {{gpus: 1}}
    emulated: {{duration_s: 100}}
"""


def test_a_job_says_how_fast_it_is_by_its_tasks() -> None:
    (specification,) = parse_workloads(workload("{1: 1.0, 2: 1.9, 4: 3.4}"))
    assert specification.jobs[0].scaling == CURVE
    document = workload_document(specification)
    assert workload_from_document(document) == specification
    for none in ("linear", "null"):
        assert parse_workloads(workload(none))[0].jobs[0].scaling == ()


@pytest.mark.parametrize(
    ("scaling", "field", "problem"),
    [
        ("{}", "jobs[0].scaling", "is empty; give the speed by tasks"),
        ("fast", "jobs[0].scaling", "is no curve; give the speed by tasks"),
        ("[1, 2]", "jobs[0].scaling", "is no curve"),
        ("{2: 1.0, 4: 2.0}", "jobs[0].scaling[2]", "comes first; .*begin with 1: 1.0"),
        ("{1: 2.0}", "jobs[0].scaling[1]", "begin with 1: 1.0"),
        ("{1: 1.0, 4: 3.0, 2: 1.5}", "jobs[0].scaling[2]", "comes after 4; sort the points"),
        ("{1: 1.0, 2: 0.9}", "jobs[0].scaling[2]", "less than the 1 with 1 tasks; more tasks are never slower"),
        ("{1: 1.0, 2: 2.1}", "jobs[0].scaling[2]", "is 2.1, more than the 2 in proportion to 1 tasks"),
        ("{1: 1.0, 2: 1.0, 4: 4.0}", "jobs[0].scaling[4]", "is 4, more than the 2 in proportion to 2 tasks"),
        ("{1: 1.0, 2: .nan}", "jobs[0].scaling", "number"),
        ("{0: 1.0}", "jobs[0].scaling[0]", "is no number of tasks"),
        ("{one: 1.0}", "jobs[0].scaling", "integer|whole number"),
    ],
)
def test_a_curve_that_cannot_be_is_refused(scaling: str, field: str, problem: str) -> None:
    with pytest.raises(FormatError, match=problem) as refused:
        parse_workloads(workload(scaling))
    assert field in str(refused.value)


@pytest.mark.parametrize("more", ["max_tasks: 1", "max_tasks: 0"])
def test_a_curve_of_a_job_that_never_has_more_tasks_is_refused(more: str) -> None:
    with pytest.raises(FormatError, match=r"jobs\[0\].scaling: says how fast .*; set max_tasks above tasks"):
        parse_workloads(workload("{1: 1.0, 2: 1.9}").replace("max_tasks: 4", more))
    for tasks in ("4,,", "4,4,4"):
        reader = TraceReader([HEADER, f"w1,ads,0,340,4,{tasks},1:1;2:1.9"], "t.csv")
        assert list(reader) == []
        assert "give max_tasks" in str(reader.shown_bad_rows[0])
    assert list(TraceReader([HEADER, "w1,ads,0,340,4,4,1,4,1:1;2:1.9"], "t.csv"))


def test_a_part_of_a_task_is_no_number_of_tasks() -> None:
    with pytest.raises(FormatError, match=r"the key '2.5' must be a whole number, such as 2"):
        parse_workloads(workload("{1: 1.0, 2.5: 1.9}"))


def test_only_a_curve_has_numbers_for_keys() -> None:
    with pytest.raises(FormatError, match="the key '1' must be text"):
        parse_workloads(workload("linear") + "labels: {1: a}\n")


def test_a_row_of_a_trace_takes_longer_with_its_base_tasks_by_its_curve() -> None:
    lines = [HEADER, "w1,ads,0,340,4,4,1,4,1:1;2:1.9;4:3.4", "w2,ads,0,100,4,4,1,4,linear"]
    measured, linear = (workload_of_row(row, {}) for row in TraceReader(lines, "t.csv"))
    # 340 s with four tasks, which are 3.4 times as fast as one.
    assert measured.jobs[0].entry_point == Emulated(1156.0)
    assert linear.jobs[0].entry_point == Emulated(400.0)
    assert work_rate(measured.jobs, ()) == 1.0


@pytest.mark.parametrize("cell", ["1:1;2", "2:1", "1:1;2:3", "1:1;1:1", "fast"])
def test_a_row_with_another_curve_is_left_out(cell: str) -> None:
    reader = TraceReader([HEADER, f"w1,ads,0,340,4,4,1,4,{cell}"], "t.csv")
    assert list(reader) == []
    (bad,) = reader.shown_bad_rows
    assert "scaling" in str(bad)


def test_a_curve_comes_back_from_a_written_trace(tmp_path: Path) -> None:
    (row,) = TraceReader([HEADER, "w1,ads,0,340,4,4,1,4,1:1;2:1.9;4:3.4"], "t.csv")
    assert row.scaling == CURVE
    write_trace(tmp_path / "t.csv", [row])
    assert list(TraceReader((tmp_path / "t.csv").read_text().splitlines(), "t.csv")) == [row]


def test_a_curve_of_a_million_points_is_refused_by_its_number_of_points_alone() -> None:
    points = tuple(ScalingPoint(tasks, float(tasks)) for tasks in range(1, 1_000_001))
    (problem,) = check_curve(points, "jobs[0].scaling")
    assert problem == FieldProblem("jobs[0].scaling", "has 1,000,000 points; keep 1,000 at most")
