from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.identifiers import TenantId
from domain.scaling import ScalingPoint
from formats.problems import FormatError
from formats.trace import COLUMNS, TraceReader, TraceRow, read_trace, write_trace, write_trace_rows
from tests.formats.format_values import trace_rows

PHILLY = """\
job_id,virtual_cluster,gpus,submit_s,duration_s,source
p000000,6214e9,1,84420,3613015,G
p000001,ee9e8c,16,350984,3879832.5,PG
"""
ITP = "job_id,cluster,gpus,submit_s,duration_s\nitp08-00000,itp08,1,3793,1183\n"


def read(text: str, *, strict: bool = False, default_tenant: str | None = None) -> tuple[list[TraceRow], TraceReader]:
    tenant = TenantId(default_tenant) if default_tenant else None
    reader = TraceReader(io.StringIO(text), "t.csv", strict=strict, default_tenant=tenant)
    return list(reader), reader


def test_reads_every_column() -> None:
    (row,), reader = read(
        f"{','.join(COLUMNS)}\nw1,ads,10,3600.5,16,A100,2,64,512,3,resnet50,1,4,clicks;images,true,600,east,0.25,1:1;2:1.9,false,7200,high\n"
    )
    assert row == TraceRow(
        "w1", "ads", 10.0, 3600.5, 16, "A100", 2, 64.0, 512.0, 3, "resnet50", 1, 4,  # type: ignore[arg-type]  # plain names
        ("clicks", "images"), True, 600.0, "east", 0.25, (ScalingPoint(1, 1.0), ScalingPoint(2, 1.9)), False, 7_200.0, "high",  # type: ignore[arg-type]  # plain names
    )  # fmt: skip
    assert (reader.rows, reader.bad_rows, reader.ignored_columns) == (1, 0, ())


def test_reads_the_columns_of_public_traces() -> None:
    rows, reader = read(PHILLY)
    assert [(row.workload_id, row.tenant, row.gpus, row.submit_s, row.duration_s) for row in rows] == [
        ("p000000", "6214e9", 1, 84420.0, 3613015.0),
        ("p000001", "ee9e8c", 16, 350984.0, 3879832.5),
    ]
    assert reader.ignored_columns == ("source",)
    (row,), _ = read(ITP)
    assert (row.workload_id, row.tenant, row.region) == ("itp08-00000", "itp08", None)
    (row,), _ = read("task_id,gpus,submit_s,duration_s\na1,8,5,60\n", default_tenant="pai")
    assert (row.workload_id, row.tenant) == ("a1", "pai")


@given(st.lists(trace_rows(), max_size=5, unique_by=lambda row: row.workload_id))
def test_rows_survive_being_written_and_read(rows: list[TraceRow]) -> None:
    stream = io.StringIO()
    assert write_trace_rows(stream, rows) == len(rows)
    assert read(stream.getvalue(), strict=True)[0] == rows


def test_reads_packed_files_by_their_content_and_writes_the_same_bytes_twice(tmp_path: Path) -> None:
    plain, packed, misnamed = tmp_path / "t.csv", tmp_path / "t.csv.gz", tmp_path / "x.csv"
    rows, _ = read(PHILLY)
    assert write_trace(plain, rows) == write_trace(packed, rows) == 2
    misnamed.write_bytes(packed.read_bytes())
    assert list(read_trace(plain)) == list(read_trace(packed)) == list(read_trace(misnamed)) == rows
    first = packed.read_bytes()
    write_trace(packed, rows)
    assert packed.read_bytes() == first


def test_a_skew_is_from_0_to_1() -> None:
    text = "workload_id,tenant,submit_s,duration_s,gpus,skew\na,t,0,5,1,1.5\nb,t,0,5,1,1\nc,t,0,5,1,-0.1\nd,t,0,5,1,\n"
    rows, reader = read(text)
    assert [(row.workload_id, row.skew) for row in rows] == [("b", 1.0), ("d", None)]
    assert "must be a number from 0 to 1, not '1.5'" in str(reader.shown_bad_rows[0])


BAD_CELLS = {
    "not a number": ("w,t,x,5,1,,", "submit_s"),
    "negative": ("w,t,-1,5,1,,", "submit_s"),
    "no number": ("w,t,,5,1,,", "submit_s"),
    "infinite": ("w,t,inf,5,1,,", "submit_s"),
    "underscore": ("w,t,1_0,5,1,,", "submit_s"),
    "no duration": ("w,t,1,0,1,,", "duration_s"),
    "half a GPU": ("w,t,1,5,0.5,,", "gpus"),
    "too many GPUs": ("w,t,1,5,99999999,,", "gpus"),
    "no CPUs": ("w,t,1,5,0,,", "cpus"),
    "no id": (",t,1,5,1,,", "workload_id"),
    "no tenant": ("w,,1,5,1,,", "tenant"),
    "odd tenant": ("w,a b,1,5,1,,", "tenant"),
    "NUL": ("w\0,t,1,5,1,,", "workload_id"),
    "uneven tasks": ("w,t,1,5,4,3,", "tasks"),
    "no tasks": ("w,t,1,5,4,0,", "tasks"),
    "too few cells": ("w,t,1,5", "the row"),
    "too many cells": ("w,t,1,5,1,,,,", "the row"),
    "quotes": ('"w"x,t,1,5,1,,', "the row"),
}


@pytest.mark.parametrize(("line", "column"), BAD_CELLS.values(), ids=BAD_CELLS)
def test_leaves_out_a_bad_row_and_shows_its_place(line: str, column: str) -> None:
    header = "workload_id,tenant,submit_s,duration_s,gpus,tasks,cpus"
    text = f"{header}\nfirst,t,1,5,1,,\n{line}\nlast,t,1,5,1,,\n"
    rows, reader = read(text)
    assert [row.workload_id for row in rows] == ["first", "last"]
    assert reader.bad_rows == 1
    (bad,) = reader.shown_bad_rows
    assert (bad.line, bad.column) == (3, column)
    with pytest.raises(FormatError, match=rf"^t\.csv: line 3, column {column}: "):
        read(text, strict=True)


def test_an_elastic_row_names_what_it_asks_for() -> None:
    header = "workload_id,tenant,submit_s,duration_s,gpus,tasks,min_tasks,max_tasks"
    _, reader = read(f"{header}\na,t,1,5,4,,1,\nb,t,1,5,4,2,3,\nc,t,1,5,4,2,1,1\nd,t,1,5,4,2,1,4\n")
    assert [(bad.line, bad.column) for bad in reader.shown_bad_rows] == [
        (2, "tasks"),
        (3, "min_tasks"),
        (4, "max_tasks"),
    ]
    assert reader.rows == 1


def test_a_row_that_may_be_split_over_clusters_is_not_elastic() -> None:
    header = "workload_id,tenant,submit_s,duration_s,gpus,tasks,max_tasks,across_clusters"
    rows, reader = read(f"{header}\na,t,1,5,4,2,,true\nb,t,1,5,4,2,4,yes\nc,t,1,5,4,2,4,no\nd,t,1,5,4,2,,\n")
    assert [(row.workload_id, row.across_clusters) for row in rows] == [("a", True), ("c", False), ("d", None)]
    assert [(bad.line, bad.column) for bad in reader.shown_bad_rows] == [(3, "across_clusters")]


def test_leaves_out_a_row_whose_id_was_there() -> None:
    rows, reader = read(ITP + "itp08-00000,itp08,1,3793,1183\n\nitp08-00001,itp08,1,3793,1183\n")
    assert (len(rows), reader.bad_rows) == (2, 1)
    assert "ids are unique" in str(reader.shown_bad_rows[0])


def test_counts_all_bad_rows_but_shows_the_first_twenty() -> None:
    _, reader = read(ITP + "".join(f"j{n},itp08,x,1,1\n" for n in range(50)))
    assert (reader.bad_rows, len(reader.shown_bad_rows)) == (50, 20)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: is empty; a header is expected: workload_id,tenant,submit_s,duration_s,gpus,..."),
        ("a,b\n", "line 1: has no column workload_id (or job_id, task_id); add it. Its columns: a, b"),
        (
            "job_id,gpus,submit_s,duration_s\n",
            "line 1: has no column tenant (or virtual_cluster, vc, cluster, job_class)",
        ),
        ("gpus,gpus\n", "line 1: has the column gpus twice; rename one"),
        ('"gpus\n', "line 1: is not CSV"),
    ],
    ids=["empty", "other columns", "no tenant", "twice", "no CSV"],
)
def test_refuses_a_header_that_cannot_be_used(text: str, message: str) -> None:
    with pytest.raises(FormatError) as caught:
        read(text)
    assert str(caught.value).startswith(f"t.csv: {message}")


def test_reports_a_damaged_file(tmp_path: Path) -> None:
    path = tmp_path / "t.csv.gz"
    packed = gzip.compress(PHILLY.encode() * 2000)
    path.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(FormatError, match="is damaged or cut short"):
        list(read_trace(path))


@given(st.text(max_size=200))
def test_never_fails_in_another_way(text: str) -> None:
    try:
        rows, reader = read(ITP + text)
    except FormatError:
        return
    assert len(rows) == reader.rows
