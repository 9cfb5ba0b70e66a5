"""topmast trace: what it prints, what it writes, and that it writes whole files or none."""

from __future__ import annotations

import gzip
import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from formats.fleet_file import dump_fleet
from formats.trace import TraceRow, read_trace, write_trace
from services.command_line.main import app
from simulator.inputs.fleets import FleetSource, fleet_from
from simulator.inputs.importers.registry import importer_names
from tests.simulator.inputs.rows import random_rows
from tests.simulator.inputs.samples import HELIOS, PAI_JOBS, PAI_TASKS, PHILLY_JOBS


def trace(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["trace", *(str(argument) for argument in arguments)])


def good(*arguments: object) -> Result:
    result = trace(*arguments)
    assert result.exit_code == 0, result.output
    return result


def rows_of(path: Path) -> list[TraceRow]:
    return list(read_trace(path, strict=True))


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.csv.gz"
    write_trace(path, random_rows(200))
    return path


@pytest.fixture
def helios(tmp_path: Path) -> Path:
    path = tmp_path / "cluster_log.csv"
    path.write_text(HELIOS)
    return path


def test_inspect_shows_figures_a_chart_and_bad_rows(helios: Path) -> None:
    result = good("inspect", helios)
    assert "format                      helios" in result.stdout
    assert "workloads                        2" in result.stdout
    assert "GPUs wanted if all ran at once" in result.stdout
    assert "█" in result.stdout
    assert "left out: 1 use no GPU" in result.stderr
    assert "bad: 2 rows, left out" in result.stderr
    assert "  line 6, column gpu_num: must be a whole number" in result.stderr


def test_inspect_as_json_has_everything(helios: Path) -> None:
    (line,) = good("inspect", helios, "--json").stdout.splitlines()
    printed = json.loads(line)
    assert (printed["format"], printed["workloads"], printed["bad_rows"]) == ("helios", 2, 2)
    assert [bad["line"] for bad in printed["shown_bad_rows"]] == [6, 7]
    assert printed["left_out"] == {"use no GPU": 1, "never started": 1}
    assert printed["gpus"]["max"] == 12
    assert printed["clock_zero_s"] == 1591660800
    assert sum(printed["load"]["submitted"]) == 2


def test_a_strict_inspection_stops_with_line_and_column(helios: Path) -> None:
    result = trace("inspect", helios, "--strict")
    assert result.exit_code == 4
    assert f"topmast: {helios}: line 6, column gpu_num: must be a whole number" in result.stderr


@pytest.mark.parametrize("suffix", ["svg", "png", "html"])
def test_inspect_draws_a_picture(suffix: str, jobs: Path, tmp_path: Path) -> None:
    pictures = [tmp_path / f"{name}.{suffix}" for name in ("first", "second")]
    for picture in pictures:
        assert f"drawn into {picture}" in good("inspect", jobs, "--picture", picture).stderr
    content = pictures[0].read_bytes()
    if suffix == "svg":
        assert ET.fromstring(content).tag.endswith("svg")  # noqa: S314 -- our own file
        assert b"GPU-hours of the largest tenants" in content
        assert content == pictures[1].read_bytes()
    elif suffix == "png":
        assert content.startswith(b"\x89PNG")
    else:
        assert b"Plotly.newPlot" in content
        assert b'<script src="http' not in content
    assert not list(tmp_path.glob(".part-*"))


def test_a_picture_of_no_known_kind_is_refused(jobs: Path, tmp_path: Path) -> None:
    assert trace("inspect", jobs, "--picture", tmp_path / "x.pdf").exit_code == 2


def test_formats_are_listed() -> None:
    assert {line.split()[0] for line in good("formats").stdout.splitlines()[1:]} == set(importer_names())
    assert [one["format"] for one in json.loads(good("formats", "--json").stdout)] == list(importer_names())


def test_slice_writes_the_part_that_is_asked_for(jobs: Path, tmp_path: Path) -> None:
    output = tmp_path / "part.csv.gz"
    all_rows = rows_of(jobs)
    result = good("slice", jobs, "-o", output, "--from", "1h", "--until", "4h", "--tenant", "t1", "--tenant", "t2")
    wanted = [row for row in all_rows if 3600 <= row.submit_s < 14400 and row.tenant in ("t1", "t2")]
    assert rows_of(output) == wanted
    assert wanted
    assert f"{len(wanted)} of 200 workloads of {jobs}, written to {output}" in result.stderr
    assert gzip.decompress(output.read_bytes()).startswith(b"workload_id,tenant,")
    good("slice", jobs, "-o", output, "--share", "0.25", "--seed", "7", "--rebase")
    assert (len(rows_of(output)), rows_of(output)[0].submit_s) == (50, 0)


def test_a_slice_without_conditions_converts(helios: Path) -> None:
    lines = good("slice", helios, "-o", "-").stdout.splitlines()
    assert [line.split(",")[0] for line in lines] == ["workload_id", "11", "13"]


def test_an_empty_slice_writes_nothing_and_keeps_what_was_there(jobs: Path, tmp_path: Path) -> None:
    output = tmp_path / "part.csv"
    output.write_text("kept")
    result = trace("slice", jobs, "-o", output, "--tenant", "nobody")
    assert result.exit_code == 4
    assert "would have no workload" in result.stderr
    assert output.read_text() == "kept"


def test_a_file_that_cannot_be_written_leaves_nothing_behind(jobs: Path, tmp_path: Path) -> None:
    assert trace("slice", jobs, "-o", tmp_path / "none" / "part.csv").exit_code == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["jobs.csv.gz"]


def test_scale_reaches_a_load(jobs: Path, tmp_path: Path) -> None:
    output = tmp_path / "scaled.csv"
    good("scale", jobs, "-o", output, "--copies", "2", "--jitter", "10m", "--load", "1.3", "--for-gpus", "100")
    rows = rows_of(output)
    offered = sum(row.gpus * row.duration_s for row in rows) / (rows[-1].submit_s - rows[0].submit_s)
    assert len(rows) == 400
    assert offered == pytest.approx(130, rel=1e-3)
    good("scale", jobs, "-o", output, "--gpus", "0.5", "--gpus-at-most", "8", "--durations", "2")
    assert max(row.gpus for row in rows_of(output)) == 8


@pytest.mark.parametrize(
    "options",
    [
        ("--load", "1.0"),
        ("--arrivals", "0"),
        ("--load", "1", "--for-gpus", "8", "--load-by", "luck"),
        ("--jitter", "soon"),
    ],
    ids=["no GPUs", "zero", "unknown", "no time"],
)
def test_scales_that_make_no_sense_are_wrong_usage(options: tuple[str, ...], jobs: Path, tmp_path: Path) -> None:
    output = tmp_path / "scaled.csv"
    assert trace("scale", jobs, "-o", output, *options).exit_code == 2
    assert not output.exists()


def test_generate_makes_the_same_trace_from_the_same_seed(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(dump_fleet(fleet_from(FleetSource(gpus=64, regions=2, gpu_model="A100", cpu_machines=4))))
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    for output in (first, second):
        good("generate", "-o", output, "-n", 300, "--span", "2d", "--fleet", fleet, "--load", "0.9", "--for-gpus", 64)
    assert first.read_bytes() == second.read_bytes()
    rows = rows_of(first)
    assert len(rows) == 300
    assert max(row.gpus for row in rows) <= 32
    assert sum(row.gpus * row.duration_s for row in rows) == pytest.approx(0.9 * 64 * 2 * 86400, rel=0.05)
    good("generate", "-o", second, "-n", 300, "--profile", "hived", "--seed", 2)
    assert {row.tenant for row in rows_of(second)} >= {"prod-e", "res-b"}
    assert trace("generate", "-o", second, "-n", 3, "--profile", "own").exit_code == 2


def test_alibabas_two_tables_are_read_together(tmp_path: Path) -> None:
    tasks, table = tmp_path / "pai_task_table.csv", tmp_path / "pai_job_table.csv"
    tasks.write_text(PAI_TASKS)
    table.write_text(PAI_JOBS)
    printed = json.loads(good("inspect", tasks, "--jobs", table, "--json").stdout)
    assert {group["name"] for group in printed["by_tenant"]} == {"58540f191766", "0eaa11bb"}
    assert trace("inspect", table).exit_code == 4


def test_a_file_that_is_not_there_is_wrong_usage(tmp_path: Path) -> None:
    assert trace("inspect", tmp_path / "none.csv").exit_code == 2


def test_a_format_can_be_named(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(PHILLY_JOBS)
    assert '"format":"topmast"' in good("inspect", path, "--format", "topmast", "--json").stdout
    assert trace("inspect", path, "--format", "swf").exit_code == 4
    result = trace("inspect", path, "--format", "phily-jobs")
    assert result.exit_code == 4
    assert "did you mean philly-jobs" in result.stderr
