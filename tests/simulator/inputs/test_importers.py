"""Every format of jobs: recognised, read, and its bad rows told with line and column."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.identifiers import TenantId
from formats.problems import FormatError
from formats.row_report import RowReport
from formats.trace import TraceRow
from simulator.inputs.importers.importer import FileHead, Importer
from simulator.inputs.importers.registry import BUILT_IN, importer_for, importer_named, importer_names
from simulator.inputs.trace_files import READ_ALL, Trace, TraceOptions, TraceStream, read_trace_file
from tests.simulator.inputs.samples import (
    HELIOS,
    KALOS,
    KALOS_JOBS,
    OPENB,
    PAI_JOBS,
    PAI_TASKS,
    PHILLY_JOBS,
    PHILLY_LOG,
    SACCT,
    SAMPLE_IDS,
    SAMPLES,
    Sample,
)


def read(folder: Path, text: str, options: TraceOptions = READ_ALL) -> Trace:
    path = folder / "jobs"
    path.write_text(text)
    return read_trace_file(path, options)


def one(trace: Trace, workload: str) -> TraceRow:
    (row,) = (row for row in trace.rows if row.workload_id == workload)
    return row


@pytest.mark.parametrize("sample", SAMPLES, ids=SAMPLE_IDS)
def test_a_file_is_recognised_and_read(sample: Sample, tmp_path: Path) -> None:
    path = tmp_path / "jobs"
    path.write_text(sample.text)
    stream = TraceStream(path)
    rows = list(stream)
    assert stream.importer.name == sample.format
    found = tuple((str(r.workload_id), str(r.tenant), r.submit_s, r.duration_s, r.gpus, r.tasks) for r in rows)
    assert found == sample.rows
    assert tuple((bad.line, bad.column) for bad in stream.row_report.shown_bad_rows) == sample.bad
    assert stream.row_report.bad_rows == len(sample.bad)
    assert dict(stream.row_report.left_out) == sample.left_out
    assert stream.row_report.rows == len(rows)


@pytest.mark.parametrize("sample", [s for s in SAMPLES if s.bad], ids=[s.format for s in SAMPLES if s.bad])
def test_a_strict_reader_stops_at_the_first_bad_row(sample: Sample, tmp_path: Path) -> None:
    line, column = sample.bad[0]
    with pytest.raises(FormatError) as caught:
        read(tmp_path, sample.text, TraceOptions(strict=True))
    assert f": line {line}, column {column}: " in str(caught.value)


@pytest.mark.parametrize("sample", SAMPLES, ids=SAMPLE_IDS)
def test_the_format_may_be_named_and_the_file_packed(sample: Sample, tmp_path: Path) -> None:
    path = tmp_path / "packed"
    path.write_bytes(gzip.compress(sample.text.encode()))
    trace = read_trace_file(path, TraceOptions(format=sample.format))
    assert {str(row.workload_id) for row in trace.rows} == {row[0] for row in sample.rows}


def test_every_format_has_a_sample_and_a_name_of_its_own() -> None:
    assert {sample.format for sample in SAMPLES} == set(importer_names()) - {"alibaba-v2020-jobs"}
    assert len(set(importer_names())) == len(BUILT_IN)


@pytest.mark.parametrize("importer", BUILT_IN, ids=importer_names())
def test_an_importer_refuses_what_it_cannot_read_at_all(importer: Importer, tmp_path: Path) -> None:
    path = tmp_path / "poem"
    path.write_text("The curfew tolls\nthe knell of parting day\n")
    with pytest.raises(FormatError, match="poem"):
        read_trace_file(path, TraceOptions(format=importer.name))


def test_an_unknown_format_is_reported_with_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="is of no format that is known here: 'The curfew'"):
        read(tmp_path, "The curfew\n")
    with pytest.raises(FormatError, match="there is no format helio; did you mean helios"):
        importer_named("helio")
    with pytest.raises(FormatError, match="is empty"):
        read(tmp_path, "")


def test_a_trace_without_any_work_is_refused_with_the_reasons(tmp_path: Path) -> None:
    first, second = HELIOS.splitlines()[0], HELIOS.splitlines()[2]
    with pytest.raises(FormatError, match=r"has no workload to run \(1 use no GPU\)"):
        read(tmp_path, f"{first}\n{second}\n")
    with pytest.raises(FormatError, match="1 rows are bad, the first one: line 2, column gpus"):
        read(tmp_path, "job_id,virtual_cluster,gpus,submit_s,duration_s\np,a,x,1,1\n")


def test_dates_become_a_clock_that_begins_at_midnight(tmp_path: Path) -> None:
    trace = read(tmp_path, HELIOS)
    assert trace.clock_zero_s == 1591660800.0
    assert [row.submit_s for row in trace.rows] == [67261.0, 67263.0]
    assert read(tmp_path, PHILLY_JOBS).clock_zero_s == 0.0


def test_rows_are_in_the_order_of_submission(tmp_path: Path) -> None:
    text = "job_id,cluster,gpus,submit_s,duration_s\nb,c,1,5,1\na,c,1,5,1\nz,c,1,1,1\n"
    assert [str(row.workload_id) for row in read(tmp_path, text).rows] == ["z", "a", "b"]


def test_itps_clusters_are_regions(tmp_path: Path) -> None:
    (row,) = read(tmp_path, "job_id,cluster,gpus,submit_s,duration_s\nx,itp08,1,1,1\n").rows
    assert (row.tenant, row.region) == ("itp08", "itp08")


def test_cpus_and_memory_are_those_of_all_tasks(tmp_path: Path) -> None:
    for text, workload, cpus, memory_gib in (
        (KALOS, "dlcA", 960.0, 8000.0),
        (KALOS_JOBS, "k0", 960.0, 8000.0),
        (HELIOS, "11", 32.0, None),
        (PAI_TASKS, "j2/worker", 48.0, 128.0),
        (OPENB, "pod-1", 88.0, 320.0),
        (SACCT, "100", 64.0, 512.0),
        (SACCT, "101_7", 4.0, 15.625),
    ):
        row = one(read(tmp_path, text), workload)
        assert (row.cpus, row.memory_gib) == (cpus, memory_gib), workload


def test_all_but_gpus_can_be_forgotten(tmp_path: Path) -> None:
    trace = read(tmp_path, SACCT, TraceOptions(gpus_only=True))
    asked = one(trace, "100")
    assert (asked.cpus, asked.memory_gib, asked.tasks) == (None, None, None)
    assert (one(trace, "104").cpus, one(trace, "104").memory_gib) == (4.0, 16.0)


def test_what_could_not_be_kept_exactly_is_reported(tmp_path: Path) -> None:
    shares = "ask for a share of a GPU, and get a whole one"
    assert dict(read(tmp_path, OPENB).row_report.adjusted) == {
        shares: 1,
        "would take some GPU models, and take any": 1,
    }
    assert dict(read(tmp_path, PAI_TASKS).row_report.adjusted) == {shares: 1}
    (uneven,) = read(tmp_path, HELIOS).row_report.adjusted
    assert "do not divide evenly" in uneven
    (pieces,) = read(tmp_path, PHILLY_LOG).row_report.adjusted
    assert "without a start or an end" in pieces


def test_models_of_gpus(tmp_path: Path) -> None:
    assert one(read(tmp_path, SACCT), "100").gpu_model == "a100"
    assert one(read(tmp_path, SACCT), "101_7").gpu_model == "any"
    assert one(read(tmp_path, OPENB), "pod-3").gpu_model == "any"
    assert one(read(tmp_path, OPENB.replace("V100M16|V100M32", "T4")), "pod-3").gpu_model == "T4"


def test_alibabas_job_table_shows_whose_a_task_is(tmp_path: Path) -> None:
    jobs = tmp_path / "pai_job_table.csv"
    jobs.write_text(PAI_JOBS)
    trace = read(tmp_path, PAI_TASKS, TraceOptions(job_table=jobs))
    assert (one(trace, "j1/tensorflow").tenant, one(trace, "j1/tensorflow").submit_s) == ("58540f191766", 1739100.0)
    assert (one(trace, "j2/worker").tenant, one(trace, "j2/worker").submit_s) == ("0eaa11bb", 1739300.0)
    with pytest.raises(FormatError, match="goes with pai_task_table"):
        read(tmp_path, HELIOS, TraceOptions(job_table=jobs))
    with pytest.raises(FormatError, match="does not say how many GPUs a job has"):
        read_trace_file(jobs)
    header = "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type\n"
    assert len(read(tmp_path, header + PAI_TASKS).rows) == 2


@pytest.mark.parametrize(
    ("columns", "cells", "gpus", "model", "duration_s"),
    [
        ("AllocGRES|Elapsed", "gpu:4|01:02:03", 4, "any", 3723.0),
        ("ReqGRES|Elapsed", "gpu:v100:2(IDX:0-1)|2-00:00:01", 2, "v100", 172801.0),
        ("ReqTRES|End", "cpu=1,gres/gpu:a100=1,gres/gpu:h100=2|2026-01-01T00:01:00", 3, "any", 60.0),
        ("ReqTRES|End|", "gres/gpu=2|2026-01-01T00:01:00|", 2, "any", 60.0),
    ],
    ids=["old", "old with model", "two models", "parsable"],
)
def test_sacct_of_other_versions(
    columns: str, cells: str, gpus: int, model: str, duration_s: float, tmp_path: Path
) -> None:
    text = f"JobID|Submit|Start|{columns}\n7+1|2026-01-01T00:00:00|2026-01-01T00:00:00|{cells}\n"
    (row,) = read(tmp_path, text, TraceOptions(strict=True)).rows
    assert (row.workload_id, row.gpus, row.gpu_model, row.duration_s) == ("7:1", gpus, model, duration_s)


def test_sacct_says_which_fields_are_missing(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="GPUs are counted from AllocTRES or ReqTRES"):
        read(tmp_path, "JobID|Submit|Elapsed\n7|2026-01-01T00:00:00|00:01:00\n", TraceOptions(strict=True))
    with pytest.raises(FormatError, match="has no column Submit"):
        read(tmp_path, "JobID|AllocTRES\n7|gres/gpu=1\n")


def test_a_philly_log_in_one_line_and_one_that_is_cut_short(tmp_path: Path) -> None:
    job = " ".join(PHILLY_LOG.splitlines()[1:11]).strip().rstrip(",")
    jobs = ",".join(job.replace("application_1_0001", f"job-{number}") for number in range(500))
    assert len(read(tmp_path, f"[{jobs}]").rows) == 500
    with pytest.raises(FormatError, match=r"line 1, column \d+: no JSON value begins here"):
        read(tmp_path, f"[{jobs}"[:-40])
    with pytest.raises(FormatError, match="must be , or ] after a job"):
        read(tmp_path, f"[{job} {job}]")


def test_one_tenant_may_be_named_for_all_rows(tmp_path: Path) -> None:
    options = TraceOptions(default_tenant=TenantId("us"))
    (row,) = read(tmp_path, "id,submit_s,duration_s,gpus\n".replace("id", "job_id") + "j,1,1,1\n", options).rows
    assert row.tenant == "us"


def test_an_id_is_there_only_once(tmp_path: Path) -> None:
    twice = SACCT + SACCT.splitlines()[1] + "\n"
    row_report = read(tmp_path, twice).row_report
    assert (row_report.bad_rows, row_report.shown_bad_rows[-1].line) == (3, 10)
    assert "ids are unique" in row_report.shown_bad_rows[-1].description


@given(
    sample=st.sampled_from(SAMPLES),
    cut=st.integers(0, 2000),
    junk=st.text(st.characters(codec="utf-8"), max_size=30),
)
def test_never_fails_in_another_way_than_with_a_format_error(sample: Sample, cut: int, junk: str) -> None:
    text = sample.text[:cut] + junk + sample.text[cut:]
    row_report = RowReport("jobs")
    try:
        rows = list(importer_named(sample.format).rows(text.splitlines(keepends=True), row_report))
    except FormatError:
        return
    assert row_report.rows == len(rows)
    assert all(row.duration_s > 0 and row.submit_s >= 0 and row.gpus >= 0 for row in rows)
    assert len({row.workload_id for row in rows}) == len(rows)


@given(lines=st.lists(st.text(max_size=60), max_size=4))
def test_never_fails_to_say_whether_it_knows_a_file(lines: list[str]) -> None:
    head = FileHead(tuple(lines))
    for importer in BUILT_IN:
        assert importer.recognises(head) in (True, False)
    if any(importer.recognises(head) for importer in BUILT_IN) or "workload_id" in head.cells():
        assert importer_for(head, "jobs") in BUILT_IN
    else:
        with pytest.raises(FormatError, match="--format"):
            importer_for(head, "jobs")


def test_options_are_values() -> None:
    assert replace(READ_ALL, strict=True) == TraceOptions(strict=True)
