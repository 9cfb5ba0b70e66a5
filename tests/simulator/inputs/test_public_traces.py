"""The real files, where they are: the counts that their README states, and figures of `sizing.csv`."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from simulator.inputs.fleets import FleetSource, fleet_from, gpus_of_fleet
from simulator.inputs.regions import region_gpus_for_load, regions_of_trace
from simulator.inputs.slicing import Slice, slice_rows
from simulator.inputs.summary import summarise
from simulator.inputs.trace_files import TraceOptions, read_trace_file

COUNTS = {
    "philly_jobs.csv.gz": ("philly-jobs", 77_375, 14, 64, 1_840_841),
    "itp_jobs.csv.gz": ("itp-jobs", 42_507, 7, 64, 1_061_477),
    "venus_jobs.csv.gz": ("venus-jobs", 78_304, 1, 160, 1_581_807),
    "pai_v2020_tasks.csv.gz": ("pai-tasks", 43_308, 1, 400, 498_721),
    "kalos_jobs.csv": ("kalos-jobs", 319, 2, 1024, 456_843),
    "gavel_philly_vc.csv.gz": ("gavel-philly", 14_205, None, 64, None),
    "tiresias_60_jobs.csv": ("tiresias", 60, 1, None, None),
    "peers/chronus_philly5k.csv.gz": ("chronus", 5_000, None, None, None),
    "peers/chronus_philly_all.csv.gz": ("chronus", 30_756, None, None, None),
    "peers/synergy_jobs_s20-70-10_l9_seed42_single.csv.gz": ("synergy", 12_000, 1, 1, None),
    "peers/synergy_jobs_s20-70-10_l6.0_seed42_multi.csv.gz": ("synergy", 12_000, 1, None, None),
}
"""Format, workloads, tenants, most GPUs, GPU-hours; None: not stated."""


@pytest.mark.parametrize("name", COUNTS)
def test_a_file_has_what_its_readme_states(name: str, traces: Path) -> None:
    file_format, workloads, tenants, most_gpus, gpu_hours = COUNTS[name]
    if not (traces / name).is_file():
        pytest.skip(f"there is no {name}")
    trace = read_trace_file(traces / name, TraceOptions(strict=True))
    summary = summarise(trace.rows)
    assert (trace.format, summary.workloads, trace.row_report.bad_rows) == (file_format, workloads, 0)
    if tenants is not None:
        assert summary.tenants == tenants
    if most_gpus is not None:
        assert summary.gpus.max == most_gpus
    if gpu_hours is not None:
        assert round(summary.gpu_hours) == pytest.approx(gpu_hours, abs=1)


def test_the_load_of_philly_is_that_of_the_sizes(traces: Path) -> None:
    rows = read_trace_file(traces / "philly_jobs.csv.gz").rows
    window = slice_rows(rows, Slice(from_s=49 * 86400.0, until_s=77 * 86400.0), np.random.default_rng(1))
    assert len(window) == 49_271
    offered = sum(row.gpus * row.duration_s for row in window) / (28 * 86400)
    assert offered == pytest.approx(1344.0, abs=0.1)
    summary = summarise(rows)
    assert summary.wanted_gpus_max == 2271
    assert (summary.duration_s.p50, round(summary.duration_s.p90, -1)) == (1443, 23_100)


def test_itps_regions_have_the_sizes_for_each_load(traces: Path) -> None:
    rows = read_trace_file(traces / "itp_jobs.csv.gz").rows
    with (traces / "sizing.csv").open() as lines:
        sizes = [row for row in csv.DictReader(lines) if row["trace"] == "itp" and row["partition"].startswith("itp")]
    assert len(sizes) == len(regions_of_trace(rows)) == 7
    for load in ("0.7", "1.0", "1.3"):
        wanted = tuple((row["partition"], int(row[f"gpus_for_load_{load}"])) for row in sizes)
        assert region_gpus_for_load(rows, float(load)) == wanted
        fleet = fleet_from(FleetSource(region_gpus=wanted))
        assert gpus_of_fleet(fleet) == sum(gpus for _, gpus in wanted)


@pytest.mark.parametrize(
    ("name", "nodes", "gpus", "t4"),
    [("gpu_nodes_alibaba_v2020.csv", 1_814, 6_742, 994), ("gpu_nodes_alibaba_v2023.csv", 1_213, 6_212, 842)],
    ids=["v2020", "v2023"],
)
def test_a_list_of_nodes_becomes_a_fleet(name: str, nodes: int, gpus: int, t4: int, traces: Path) -> None:
    fleet = fleet_from(FleetSource(file=traces / name, regions=3, clusters_per_region=2))
    machines = [machine for region in fleet.regions for machine in region.machines()]
    assert (len(machines), gpus_of_fleet(fleet)) == (nodes, gpus)
    assert sum(machine.gpus for machine in machines if machine.gpu_model == "T4") == t4
    assert len(fleet.regions) == 3
    assert all("T4" in {machine.gpu_model for machine in region.machines()} for region in fleet.regions)
