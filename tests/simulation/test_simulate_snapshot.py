"""topmast simulate --snapshot: where a run begins, what it says of it, and what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from domain.fleet import Fleet
from domain.identifiers import JobName, TenantId, WorkloadId
from domain.resources import TaskResources
from domain.snapshot import Snapshot
from domain.workload import Command, Emulated, JobSpecification, Workload, WorkloadSpecification
from formats.snapshot_file import packed_snapshot
from simulator.baselines.mast import MAST
from simulator.engine.settings import SimulationSettings
from simulator.engine.simulation import Simulation
from simulator.engine.simulation_input import SimulationInput
from tests.simulation.conftest import good, topmast
from tests.simulator.engine.checked_run import V100, machine, region, row, unlimited


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    """Two workloads on a machine for one: the first runs, the second, which is a program, waits."""
    job = JobSpecification(JobName("main"), 1, TaskResources(gpus=4, gpu_model=V100), Emulated(5000.0))
    workloads = [
        Workload(WorkloadId(name), WorkloadSpecification(name, TenantId("t"), (job,)), float(number))
        for number, name in enumerate(("first", "second"))
    ]
    given = SimulationInput(
        "made", (), Fleet((region("r", [machine("m0", 4)]),)), unlimited([row("x", 0.0, 1.0)]), workloads=workloads
    )
    simulation = Simulation(given, MAST, SimulationSettings(stop_after_s=1000.0), 1)
    simulation.run()
    file = tmp_path / "now.json.gz"
    file.write_bytes(packed_snapshot(_with_a_program(simulation.snapshot())))
    return file


def _with_a_program(taken: Snapshot) -> Snapshot:
    (waiting,) = taken.queue
    specification = waiting.workload.specification
    jobs = tuple(replace(job, entry_point=Command(("python", "train.py"))) for job in specification.jobs)
    return replace(
        taken,
        queue=(replace(waiting, workload=replace(waiting.workload, specification=replace(specification, jobs=jobs))),),
    )


def test_the_run_goes_on_and_says_what_is_a_guess(snapshot: Path) -> None:
    printed = good("simulate", "--snapshot", snapshot, "--default-duration", "10m", "--json", "--validate")
    figures = json.loads(printed.stdout)
    assert (figures["completed"], figures["validation"]["violations"]) == (2, 0)
    assert (figures["inputs"]["snapshot"], figures["inputs"]["default_duration_s"]) == (str(snapshot), 600.0)
    assert "the run goes on from 1970-01-01 00:16:40 UTC: 1 queued workload, 1 running attempt" in printed.stderr
    assert "estimated: 1 workload of 2 are not emulated; each is taken to work for 600 s more" in printed.stderr


def test_the_same_snapshot_comes_from_the_cache_and_another_does_not(snapshot: Path) -> None:
    asked = ("simulate", "--snapshot", snapshot, "--default-duration", "10m")
    good(*asked)
    assert "comes from the cache" in good(*asked).stderr
    assert "comes from the cache" not in good(*asked[:-1], "20m").stderr


def test_a_trace_begins_with_the_snapshot(snapshot: Path, tmp_path: Path) -> None:
    trace = tmp_path / "more.csv"
    trace.write_text("workload_id,tenant,submit_s,duration_s,gpus\nx1,t,1500000000,100,4\nx2,t,1500000060,100,4\n")
    events = tmp_path / "run.jsonl"
    good("simulate", "--snapshot", snapshot, "--trace", trace, "--default-duration", "60", "--events", events)
    submitted = [json.loads(line) for line in events.read_text().splitlines() if '"submitted"' in line]
    assert [(event["workload"], event["t"]) for event in submitted] == [
        ("first", 0.0), ("second", 1.0), ("x1", 1000.0), ("x2", 1060.0),
    ]  # fmt: skip


def test_what_if_there_were_more_machines(snapshot: Path, tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").write_text(
        "regions: [{region: r, clusters: [{cluster: r-c, racks: [{rack: k, machines: ["
        "{machine: m0, gpu_model: V100, gpus: 4, cpus: 48, memory_gib: 256},"
        "{machine: m1, gpu_model: V100, gpus: 4, cpus: 48, memory_gib: 256}]}]}]}]\n"
    )
    asked = ("simulate", "--snapshot", snapshot, "--default-duration", "60", "--json")
    alone = json.loads(good(*asked).stdout)
    wider = json.loads(good(*asked, "--fleet", tmp_path / "fleet.yaml").stdout)
    assert wider["makespan_s"] < alone["makespan_s"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--gpus", "8"), "--trace, --snapshot or both"),
        (("--trace", "{snapshot}", "--gpus", "8", "--default-duration", "1h"), "say --snapshot too"),
        (("--snapshot", "{snapshot}"), "1 of 2 workloads are not emulated"),
        (("--snapshot", "{snapshot}", "--synthesize-tables"), "--synthesize-tables does not go with --snapshot"),
        (
            ("--snapshot", "{snapshot}", "--gpus", "4", "--default-duration", "1h"),
            "there is no machine m0 in the fleet",
        ),
    ],
)
def test_what_cannot_be_is_refused(snapshot: Path, arguments: tuple[str, ...], sentence: str) -> None:
    printed = topmast("simulate", *(argument.format(snapshot=snapshot) for argument in arguments))
    assert printed.exit_code in (2, 4)
    assert sentence in " ".join(printed.stderr.replace("│", " ").split())
