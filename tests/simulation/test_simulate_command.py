"""topmast simulate: what it prints and writes, and that what it writes is a valid log."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from formats.fleet_file import read_fleet
from formats.tenants_file import read_tenants
from formats.trace import write_trace
from services.command_line.exit_code import ExitCode
from simulator.inputs.fleets import FleetSource, fleet_from
from tests.simulation.conftest import FLEET, MEASURED, good, topmast
from tests.simulator.inputs.rows import random_rows
from tests.simulator.results.test_results_page import documented_keys


def figures(*arguments: object) -> dict[str, Any]:
    (line,) = good("simulate", *arguments, "--json").stdout.splitlines()
    printed = json.loads(line)
    assert isinstance(printed, dict)
    return printed


def unmeasured(printed: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in printed.items() if key not in MEASURED}


def test_figures_are_shown_as_a_table(trace: Path) -> None:
    result = good("simulate", "--trace", trace, *FLEET)
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["FIGURE", "MAST"]
    assert ["completed", "300", "of", "300"] in [line.split() for line in lines]
    assert "mast: 100% of 300 workloads ended, day 3, " in result.stderr


def test_json_has_the_documented_keys_and_no_other(trace: Path) -> None:
    printed = figures("--trace", trace, *FLEET, "--policy", "fifo", "--seed", "7", "--set", "costs.restore_s=0")
    assert set(printed) == documented_keys("## Of a run") | documented_keys("## Of a command")
    assert (printed["excess_wait_s"], printed["against_private"]) == (None, None)
    assert (printed["policy"], printed["seed"], printed["trace"], printed["gpus"]) == ("fifo", 7, "jobs.csv", 128)
    assert (printed["completed"], printed["violated_laws"], printed["validation"]) == (300, [], None)
    inputs = printed["inputs"]
    assert set(inputs) == documented_keys("### Inputs")
    assert inputs["region_gpus"] == {"region-1": 128}
    assert inputs["settings"]["costs"]["restore_s"] == 0
    assert inputs["settings"]["trace_regions_bind"] is False


def test_machines_of_inference_clusters_are_lent(trace: Path, tmp_path: Path) -> None:
    loans = tmp_path / "loans.csv"
    machines = ("--gpus", "128", "--clusters-per-region", "2")
    lender = fleet_from(FleetSource(gpus=128, clusters_per_region=2)).regions[0].clusters[1].cluster
    loans.write_text(f"t_s,cluster,machines\n0,{lender},8\n10000,{lender},1\n20000,{lender},8\n")
    log = tmp_path / "run.jsonl"
    printed = figures("--trace", trace, *machines, "--loans", loans, "--events", log, "--validate")
    assert printed["validation"]["valid"]
    assert printed["validation"]["events_by_kind"]["loaned"] == 8 + 7
    assert printed["evictions"]["reclaimed"] > 0
    assert printed["inputs"]["loans"] == str(loans)
    lent = printed["loans"]
    assert set(lent) == documented_keys("### Of loans")
    assert (lent["inference_gpus"], lent["reclaims"], lent["reclaimed_machines"]) == (64, 1, 7)
    assert lent["evicted"] == printed["evictions"]["reclaimed"]
    assert lent["preemption_ratio"] == pytest.approx(lent["evicted"] / 300)
    assert 0 < lent["loaned_allocation_rate"] <= 1
    assert 0 < lent["training_allocation_rate"] <= 1
    fleet_file = tmp_path / "run.fleet.yaml"
    report = good("report", log, "--fleet", fleet_file, "--out", tmp_path / "r.html", "--json").stdout
    read = json.loads(report)["runs"][0]["loans"]
    for key in ("inference_gpus", "evicted", "preemption_ratio", "loaned_allocation_rate"):
        assert read[key] == pytest.approx(lent[key], rel=1e-6), key
    assert (read["reclaims"], read["collateral_damage"]) == (None, None)
    loans.write_text(f"t_s,cluster,machines\n0,{lender},9\n")
    result = topmast("simulate", "--trace", trace, *machines, "--loans", loans)
    assert result.exit_code == ExitCode.REFUSED
    assert f"line 2, column machines: lends 9, but cluster {lender} has 8" in result.stderr
    loans.write_text("t_s,cluster,machines\n0,elsewhere,8\n")
    result = topmast("simulate", "--trace", trace, *machines, "--loans", loans)
    assert result.exit_code == ExitCode.REFUSED
    assert "line 2, column cluster: elsewhere is not in the fleet; known: " in result.stderr


def test_a_series_of_inference_lends_what_it_does_not_need(trace: Path, tmp_path: Path) -> None:
    machines = ("--gpus", "128", "--clusters-per-region", "2")
    lender = fleet_from(FleetSource(gpus=128, clusters_per_region=2)).regions[0].clusters[1].cluster
    series, log = tmp_path / "load.csv", tmp_path / "run.jsonl"
    series.write_text("t_s,busy_pod_fraction\n0,0.1\n9000,0.9\n12000,1\n15000,0.1\n18000,0.1\n")
    for forecast in ("", ":known", ":seasonal_naive"):
        said = f"{lender}={series}{forecast}"
        printed = figures("--trace", trace, *machines, "--inference", said, "--events", log, "--validate")
        assert printed["validation"]["valid"]
        assert printed["inputs"]["inference"] == [said]
        lent = printed["loans"]
        assert lent["reclaims"] >= 1
        # At its peak it needs all machines and the headroom, which it does not have.
        assert lent["short_machines"] > 0
        assert printed["validation"]["events_by_kind"]["loan_short"] > 0
    shown = good("simulate", "--trace", trace, *machines, "--inference", f"{lender}={series}").stdout
    for row in ("machines reclaimed, of them without evictions", "machines that inference lacked", "lent / training"):
        assert row in shown
    assert "reclaimed" not in good("simulate", "--trace", trace, *machines).stdout.replace("drains, reclaims", "")
    assert figures("--trace", trace, *machines)["loans"] is None


@pytest.mark.parametrize(
    ("content", "said", "message"),
    [
        (None, "{lender}={series}", "there is no file {series}; name one with its load"),
        (None, "{lender}={series}:known", "there is no file {series}; name one with its load"),
        (None, "{series}", "must be CLUSTER=SERIES or CLUSTER=SERIES:FORECAST"),
        (None, "{lender}=", "must be CLUSTER=SERIES or CLUSTER=SERIES:FORECAST"),
        ("t_s,busy_pod_fraction\n0,nan\n", "{lender}={series}", "line 2, column busy_pod_fraction"),
        ("t_s,busy_pod_fraction\n0,-0.5\n", "{lender}={series}", "line 2, column busy_pod_fraction"),
        ("t_s,busy_pod_fraction\n0,1.5\n", "{lender}={series}", "must be at most 1, not 1.5"),
        ("t_s,busy_pod_fraction\n5,0.5\n5,0.5\n", "{lender}={series}", "must be later than the line before it"),
        ("t_s,busy_pod_fraction\n", "{lender}={series}", "has no point of a curve"),
        ("t_s,load\n0,0.5\n", "{lender}={series}", "has none of the columns"),
        ("t_s,busy_pod_fraction\n0,0.5\n", "elsewhere={series}", "elsewhere: is not in the fleet"),
        ("t_s,busy_pod_fraction\n0,0.5\n", "{lender}={series}:oracle", "oracle: is no forecast"),
    ],
)
def test_a_series_that_cannot_be_followed_is_refused(
    trace: Path, tmp_path: Path, content: str | None, said: str, message: str
) -> None:
    lender = fleet_from(FleetSource(gpus=128, clusters_per_region=2)).regions[0].clusters[1].cluster
    series = tmp_path / "load.csv"
    if content is not None:
        series.write_text(content)
    inference = said.format(lender=lender, series=series)
    result = topmast(
        "simulate", "--trace", trace, "--gpus", "128", "--clusters-per-region", "2", "--inference", inference
    )
    assert result.exit_code == ExitCode.REFUSED, result.output
    assert message.format(series=series) in " ".join(result.stderr.split())


def test_two_series_of_one_cluster_are_refused_with_the_option(trace: Path, tmp_path: Path) -> None:
    series = tmp_path / "load.csv"
    series.write_text("t_s,busy_pod_fraction\n0,0.5\n")
    lender = fleet_from(FleetSource(gpus=128, clusters_per_region=2)).regions[0].clusters[1].cluster
    twice = ("--inference", f"{lender}={series}", "--inference", f"{lender}={series}:known")
    result = topmast("simulate", "--trace", trace, "--gpus", "128", "--clusters-per-region", "2", *twice)
    assert result.exit_code == ExitCode.REFUSED, result.output
    assert f"--inference: {lender}: is given twice" in " ".join(result.stderr.split())


@pytest.mark.parametrize("policy", ["mast", "fifo"])
@pytest.mark.parametrize("packed", ["", ".gz"])
def test_the_files_that_are_written_are_a_valid_run(trace: Path, tmp_path: Path, policy: str, packed: str) -> None:
    log = tmp_path / f"run.jsonl{packed}"
    result = good("simulate", "--trace", trace, *FLEET, "--policy", policy, "--events", log, "--validate")
    assert "valid: " in result.stdout
    files = [tmp_path / "run.fleet.yaml", tmp_path / "run.tenants.yaml"]
    assert " ".join(map(str, (f"topmast validate {log} --fleet", files[0], "--tenants", files[1]))) in result.stderr
    again = good("validate", log, "--fleet", files[0], "--tenants", files[1], "--complete")
    assert "300 workloads" in again.stdout
    assert len(list(read_fleet(files[0]).regions[0].machines())) == 16
    limits = {(tenant.priority, tenant.quota.gpus[0][1] > 128) for tenant in read_tenants(files[1])}
    assert limits == ({(0, True)} if policy == "fifo" else {(3, False)})
    assert (gzip.decompress(log.read_bytes()) if packed else log.read_bytes()).startswith(b'{"t":')
    assert not list(tmp_path.glob(".part-*"))


def test_a_log_shows_the_same_run_as_the_figures(trace: Path, tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    printed = figures("--trace", trace, *FLEET, "--policy", "srtf", "--events", log)
    read = json.loads(
        good("report", log, "--fleet", tmp_path / "run.fleet.yaml", "--out", tmp_path / "r.html", "--json").stdout
    )["runs"][0]
    for key in ("completed", "jct_s", "queueing_s", "makespan_s", "preemptions", "gpu_allocation_rate"):
        assert read[key] == pytest.approx(printed[key], rel=1e-6), key
    assert [*read["by_gpus"]] == [*printed["by_gpus"]]


def test_the_same_command_prints_the_same(trace: Path, tmp_path: Path) -> None:
    arguments = ("--trace", trace, *FLEET, "--synthesize-tables", "--regions", "2", "--no-cache")
    assert unmeasured(figures(*arguments)) == unmeasured(figures(*arguments))
    logs = [tmp_path / f"{name}.jsonl" for name in ("one", "two")]
    for log in logs:
        good("simulate", *arguments, "--events", log)
    assert logs[0].read_bytes() == logs[1].read_bytes()
    assert b'"tables":[{"table":"table-' in logs[0].read_bytes()


def test_a_run_that_was_made_before_comes_from_the_cache(trace: Path, cache_folder: Path, tmp_path: Path) -> None:
    arguments = ("simulate", "--trace", trace, *FLEET, "--policy", "fifo", "--json")
    first, second = good(*arguments), good(*arguments)
    assert "cache" not in first.stderr
    assert "fifo: this run was made before and comes from the cache" in second.stderr
    assert first.stdout == second.stdout
    (kept,) = cache_folder.iterdir()
    for other in (("--no-cache",), ("--seed", "2"), ("--set", "scan_period_s=1"), ("--events", tmp_path / "e.jsonl")):
        assert "cache" not in good(*arguments, *other).stderr, other
    kept.write_bytes(kept.read_bytes()[:1000])
    assert "cache" not in good(*arguments).stderr
    trace.write_bytes(trace.read_bytes().replace(b"w000000", b"another"))
    assert "cache" not in good(*arguments).stderr
    count = len(list(cache_folder.iterdir()))
    assert count > 3
    assert f"removed {count} runs from {cache_folder}" in good("simulate", "--clear-cache").stderr
    assert not list(cache_folder.iterdir())


def test_a_cache_that_cannot_be_written_loses_no_run(trace: Path, cache_folder: Path) -> None:
    cache_folder.parent.mkdir(parents=True)
    cache_folder.write_text("not a folder")
    result = good("simulate", "--trace", trace, *FLEET, "--policy", "fifo")
    assert "300 of 300" in result.stdout
    assert f"fifo: this run could not be kept in the cache ({cache_folder}: " in result.stderr


def test_workloads_run_anywhere_unless_the_regions_of_the_trace_count(trace: Path) -> None:
    fleet = ("--trace", trace, "--region-gpus", "east=64,west=128", "--policy", "fifo")

    def in_west(*options: str) -> int:
        return int(figures(*fleet, *options)["by_region"]["west"]["workloads"])

    assert len({in_west(), in_west("--regions-of-trace"), in_west("--regions-of-trace", "--assign-regions")}) == 3
    assert in_west("--regions-of-trace") == in_west("--set", "trace_regions_bind=true")


def test_a_part_of_the_trace_is_run(trace: Path) -> None:
    submitted = [row.submit_s for row in random_rows(300)]
    wanted = sum(3600 <= submit_s < 7200 for submit_s in submitted)
    printed = figures("--trace", trace, *FLEET, "--from", "1h", "--until", "2h")
    assert printed["workloads"] == wanted > 0


def test_a_page_is_written(trace: Path, tmp_path: Path) -> None:
    page = tmp_path / "run.html"
    assert f"the page is in {page}" in good("simulate", "--trace", trace, *FLEET, "--report", page).stderr
    assert "mast on jobs.csv" in page.read_text()


def test_what_cannot_be_hosted_is_reported(trace: Path) -> None:
    result = good("simulate", "--trace", trace, "--gpus", "32", "--policy", "fifo")
    refused = sum(row.gpus > 32 for row in random_rows(300))
    assert f"fifo: {refused} workloads of 300 refused: no region could ever host them" in result.stderr


def test_a_run_that_is_stopped_by_its_settings_says_so(trace: Path) -> None:
    result = good("simulate", "--trace", trace, *FLEET, "--set", "stop_after_s=3600")
    assert "mast was broken off 1 h after its beginning" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["--gpus", "8", "--policy", "fiffo"], 4, "--policy: fiffo: is no policy; did you mean fifo"),
        ([], 2, "say one of --fleet, --nodes, --gpus, --region-gpus: none is given"),
        (["--gpus", "8", "--region-gpus", "a=8"], 2, "--gpus and --region-gpus are given"),
        (["--gpus", "8", "--set", "costs.restor_s=1"], 4, "did you mean restore_s"),
        (["--gpus", "8", "--until", "0"], 4, "none of its 300 workloads is submitted in the window"),
        (["--gpus", "8", "--events", "run.csv"], 2, "an event log is called something.jsonl"),
        (["--gpus", "8", "--events", "none/run.jsonl"], 2, "there is no folder none"),
        (["--gpus", "8", "--report", "none/run.html"], 2, "there is no folder none"),
        (["--region-gpus", "east=8,north=8", "--regions-of-trace"], 4, "region: west: the trace binds workloads there"),
        (["--gpus", "8", "--tenants", "tenants.yaml"], 4, "t1, t2, t3, t4: not in tenants.yaml; add them there"),
    ],
    ids=["policy", "no-fleet", "fleets", "setting", "window", "log", "folder", "report", "region", "tenants"],
)
def test_what_makes_no_sense_is_refused(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tenants.yaml").write_text("tenants: [{tenant: t0, priority: 1, quota: {gpus: 8}}]")
    before = sorted(tmp_path.iterdir())
    result = topmast("simulate", "--trace", trace, *arguments)
    assert result.exit_code == code, result.output
    assert sentence in " ".join(result.stderr.replace("│", " ").split())
    assert sorted(tmp_path.iterdir()) == before


def test_tenants_of_a_file_count_for_policies_that_scan(trace: Path, tmp_path: Path) -> None:
    named = ", ".join(f"{{tenant: t{number}, priority: {number}, quota: {{gpus: 64}}}}" for number in range(5))
    (tmp_path / "tenants.yaml").write_text(f"tenants: [{named}]")

    def priorities(policy: str) -> set[str]:
        printed = figures("--trace", trace, *FLEET, "--tenants", tmp_path / "tenants.yaml", "--policy", policy)
        return set(printed["by_priority"])

    assert priorities("mast") >= {"0", "1", "2", "3", "4"}
    assert priorities("fifo") == {"0"}


def test_an_interrupted_run_reports_what_was_done(tmp_path: Path) -> None:
    trace, log = tmp_path / "long.csv", tmp_path / "run.jsonl"
    write_trace(trace, random_rows(20_000))
    main = (sys.executable, "-c", "from services.command_line.main import main; main()")
    command: list[str | Path] = [*main, "simulate", "--trace", trace, *FLEET, "--events", log, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        assert any("of 20,000 workloads ended" in line for line in running.stderr)
        running.send_signal(signal.SIGINT)
        stdout, stderr = running.communicate()
    assert running.returncode == 130, stderr
    assert "interrupted: this is what was done so far" in stderr
    assert "of 20,000 workloads had been submitted" in stderr
    printed = json.loads(stdout)
    assert printed["broken_off"] is True
    assert 0 < printed["workloads"] < 20_000
    files = ("--fleet", tmp_path / "run.fleet.yaml", "--tenants", tmp_path / "run.tenants.yaml")
    assert "valid: " in good("validate", log, *files).stdout


def test_policies_are_listed_with_what_they_do() -> None:
    lines = good("policies").stdout.splitlines()
    assert any(line.startswith("yarn_cs ") and "Tiresias" in line for line in lines)
    printed = json.loads(good("policies", "--json").stdout)
    assert {"policy": "mast", "scans": True} in [{"policy": one["policy"], "scans": one["scans"]} for one in printed]
    assert len(printed) == len(lines) - 1


def test_samples_of_service_and_parameters_of_levels(trace: Path, tmp_path: Path) -> None:
    samples = tmp_path / "samples.csv"
    samples.write_text("gpu_time_s\n100\n100\n5000\n")
    run = ("--trace", trace, *FLEET, "--policy", "tiresias_gittins")
    changes = ("--set", "levels.thresholds_gpu_s=[500, 5000]", "--set", "levels.promote_knob=0.5")
    printed = figures(*run, "--distribution", samples, *changes, "--set", "distribution=tenant")
    assert printed["inputs"]["distribution"] == str(samples)
    assert printed["inputs"]["settings"]["levels"] == {"thresholds_gpu_s": [500.0, 5000.0], "promote_knob": 0.5}
    assert printed["demotions"] > 0
    assert set(printed["levels"]) <= {"0", "1", "2"}
    samples.write_text("gpu_time_s\n")
    result = topmast("simulate", *run, "--distribution", samples)
    assert result.exit_code == ExitCode.REFUSED
    assert f"{samples}: has no samples; give at least one" in result.stderr
    result = topmast("simulate", *run, "--set", "levels.thresholds_gpu_s=[5, 1]")
    assert result.exit_code == ExitCode.REFUSED
    assert (
        "levels.thresholds_gpu_s: thresholds_gpu_s must be one or more numbers greater than 0 that ascend"
        in result.stderr
    )
