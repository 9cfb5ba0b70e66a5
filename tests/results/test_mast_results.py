"""The document about MAST, made from a small generated trace: all its parts are there, twice the same bytes."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from domain.events import Event, EventKind
from domain.fleet import Fleet
from domain.identifiers import ANY_GPU_MODEL, RegionId, TenantId, WorkloadId
from domain.resources import Quota
from domain.tenant import Tenant
from formats.trace import TraceRow
from scripts.results.mast.cases import (
    DEAR,
    MEMORIES,
    WAYS,
    Case,
    all_cases,
    busiest_days,
    too_large_at_home,
    with_priorities,
)
from scripts.results.mast.kept import find, runs_of
from scripts.results.mast.quotas import BACKED, backed_by, gpus_of_quota, larger_than_quota
from scripts.results.mast.results import write_pages, write_results
from scripts.results.mast.runs import rows_of_trace
from scripts.results.mast.standings import QuotaHistory
from tests.simulator.engine.checked_run import machine, region

DAY_S = 86_400.0
CASES = (
    *(Case("anywhere", 1.0, policy) for policy in ("ideal", "mast", "federated", "own_region")),
    *(Case("ways", 1.0, "mast", way=way, quotas=BACKED) for way in ("as published", "all together")),
    Case("tables", 1.0, "mast"),
    *(Case("memory", 1.0, "mast", memory) for memory in MEMORIES),
)


def small_trace(folder: Path, count: int = 240) -> Path:
    """Three regions of different sizes over three days, most of it in bursts, so that there is a queue."""
    rng = np.random.default_rng(4)
    path = folder / "small.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["workload_id", "tenant", "submit_s", "duration_s", "gpus", "region"])
        for number in range(count):
            submit_s = int(rng.integers(0, 9)) * 28_800 + int(rng.integers(0, 600))
            gpus = int(rng.choice([1, 2, 8, 16, 32], p=[0.4, 0.2, 0.2, 0.15, 0.05]))
            name = str(rng.choice(["east", "west", "north"], p=[0.6, 0.3, 0.1]))
            writer.writerow([f"w{number:04}", "anybody", submit_s, int(rng.integers(600, 20_000)), gpus, name])
    return path


def test_everything_is_written_and_the_same_when_written_again(tmp_path: Path) -> None:
    trace = small_trace(tmp_path)
    write_results(trace, tmp_path / "results", CASES, processes=1)
    written = {path.name: path.read_bytes() for path in sorted((tmp_path / "results").rglob("*")) if path.is_file()}
    assert set(written) == {
        "mast.md", "figures.json", "violations.svg", "regional-load.svg", "start-latency.svg", "allocation.svg"
    }  # fmt: skip
    document = written["mast.md"].decode()
    assert all(f"mast/{name}" in document for name in written if name.endswith(".svg"))

    kept = json.loads(written["figures.json"])
    runs = runs_of(kept)
    assert len(runs) == len(CASES)
    assert all(run.number("completed") == run.number("workloads") > 0 for run in runs)
    assert len({run.kept["decisions"] for run in find(runs, "memory", 1.0)}) == 1
    plans = {run.memory: run.number("plans") for run in find(runs, "memory", 1.0)}
    assert plans["kept"] < plans["per_pass"] < plans["none"]

    write_pages(kept, tmp_path / "again")
    again = {path.name: path.read_bytes() for path in sorted((tmp_path / "again").rglob("*")) if path.is_file()}
    assert again == {name: content for name, content in written.items() if name != "figures.json"}


def test_priorities_are_drawn_by_the_published_shares(tmp_path: Path) -> None:
    rows = with_priorities([_row(number) for number in range(20_000)])
    counts = np.bincount([row.priority or 0 for row in rows], minlength=7) / len(rows)
    np.testing.assert_allclose(counts, np.array([3, 20, 16, 54, 0.2, 0.5, 6.02]) / 99.72, atol=0.01)
    assert rows == with_priorities([_row(number) for number in range(20_000)])
    assert {row.tenant for row in rows} == {f"east-p{priority}" for priority in range(7)}
    assert rows_of_trace(small_trace(tmp_path))


def test_quotas_that_capacity_backs_add_up_to_the_fleet_in_the_proportions_of_the_others() -> None:
    drawn = [
        Tenant(TenantId(name), 3, Quota.of({ANY_GPU_MODEL: gpus})) for name, gpus in (("a", 5), ("b", 5), ("c", 10))
    ]
    backed = backed_by(11, drawn)
    assert [(tenant.tenant, gpus_of_quota(tenant)) for tenant in backed] == [("a", 3), ("b", 3), ("c", 5)]
    assert [gpus_of_quota(tenant) for tenant in backed_by(10, drawn)] == [3, 2, 5]
    assert larger_than_quota([_row(0, gpus=4), _row(1, gpus=3)], [replace(backed[0], tenant=_row(0).tenant)]) == 1


def test_each_way_is_run_once_with_each_kind_of_quotas_at_both_loads() -> None:
    cases = [case for case in all_cases() if case.experiment == "ways"]
    same = [Case("anywhere", case.load, case.policy) for case in all_cases() if case.experiment == "anywhere"]
    assert len(set(all_cases())) == len(all_cases())
    for load in (1.0, 1.3):
        for way, of in WAYS.items():
            if way not in DEAR or load == 1.0:
                assert Case("ways", load, of.policy, way=way, quotas=BACKED) in cases
                as_drawn = Case("ways", load, of.policy, way=way) in cases
                assert as_drawn or (
                    Case("anywhere", load, of.policy) in same and way not in ("compaction", "reservations")
                )


def test_the_busiest_days_and_what_does_not_fit() -> None:
    rows = [_row(0, day=0, gpus=8), _row(1, day=3, gpus=16), _row(2, day=4, gpus=2), _row(3, day=9, gpus=9)]
    assert busiest_days(rows, 2) == (3 * DAY_S, 5 * DAY_S)
    fleet = Fleet((region("east", [machine("m0", 8)]),))
    assert too_large_at_home(rows, fleet) == 2


def test_time_within_quota_is_added_up() -> None:
    history = QuotaHistory()
    for at_s, within in ((10.0, False), (40.0, True), (45.0, True), (70.0, False)):
        history(Event(at_s, EventKind.RANKED, WorkloadId("w"), details={"credit": 0.0, "within_quota": within}))
    assert history.within_s("w", 0.0, 100.0) == 10.0 + 30.0
    assert history.within_s("w", 50.0, 60.0) == 10.0
    assert history.within_s("unheard-of", 5.0, 9.0) == 4.0
    assert [history.within_at("w", at_s) for at_s in (5.0, 10.0, 69.0, 80.0)] == [True, False, True, False]


def _row(number: int, day: int = 0, gpus: int = 1) -> TraceRow:
    name = WorkloadId(f"w{number:05}")
    return TraceRow(name, TenantId("t"), day * DAY_S + 60.0, 3600.0, gpus, region=RegionId("east"))
