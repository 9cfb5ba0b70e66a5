"""`topmast snapshot save` on a service that is at work, and `topmast simulate --snapshot` on what it saved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from domain.identifiers import JobName
from domain.life_cycle import State
from domain.resources import TaskResources
from domain.workload import Emulated, JobSpecification, WorkloadSpecification
from formats.snapshot_file import read_snapshot
from services.command_line.main import app
from services.runtime.home import HOME_VARIABLE
from services.wire.workloads import specification_to_proto
from tests.live.background import service_in_background
from tests.live.world import A100, RESEARCH
from topmast import Client

pytestmark = pytest.mark.live

LONG_S = 200_000.0
"""Longer than the test lasts on the service's clock."""


def topmast(*arguments: object, **environment: str) -> Result:
    return CliRunner(env=environment).invoke(app, [str(argument) for argument in arguments])


def figures(*arguments: object) -> dict[str, Any]:
    result = topmast("simulate", *arguments, "--json")
    assert result.exit_code == 0, result.stderr
    printed = json.loads(result.stdout)
    assert isinstance(printed, dict)
    return printed


def _workload(number: int) -> WorkloadSpecification:
    job = JobSpecification(JobName("main"), 2, TaskResources(gpus=8, gpu_model=A100), Emulated(LONG_S, 600.0))
    return WorkloadSpecification(f"night-{number}", RESEARCH, (job,))


def test_a_service_at_work_is_saved_and_simulated_on(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "cache"))
    file = tmp_path / "now.json.gz"
    with service_in_background(database_url, tmp_path / "home") as service, Client(service.address) as client:
        submitted = client.submit_many([specification_to_proto(_workload(number)) for number in range(12)])
        next(one for one in client.watch(submitted[0].workload) if one.state.name == "RUNNING")
        printed = topmast("snapshot", "save", file, "--address", service.address, "--json")
        assert printed.exit_code == 0, printed.stderr
        plain = topmast("snapshot", "save", tmp_path / "again.json", "--address", service.address)
        assert plain.exit_code == 0, plain.stderr
        service.raise_if_broken()
    snapshot = read_snapshot(file)
    assert json.loads(printed.stdout) == {
        "file": str(file),
        "taken_s": snapshot.taken_s,
        "queued": len(snapshot.queue),
        "running": len(snapshot.running),
    }
    assert {one.workload for one in submitted} == {str(workload.workload) for workload in snapshot.workloads()}
    assert any(attempt.state is State.RUNNING for attempt in snapshot.running)
    assert snapshot.queue, "more was submitted than there is room for"
    assert read_snapshot(tmp_path / "again.json").taken_s >= snapshot.taken_s

    run = figures("--snapshot", file, "--validate")
    assert (run["completed"], run["validation"]["violations"]) == (12, 0)
    assert run["inputs"]["workloads"] == 12
    assert run["inputs"]["trace"] is None
    rows = tmp_path / "later.csv"
    rows.write_text("workload_id,tenant,submit_s,duration_s,gpus\nx1,research,0,100,8\nx2,vision,60,100,8\n")
    more = figures("--snapshot", file, "--trace", rows, "--policy", "fifo", "--validate")
    assert (more["completed"], more["validation"]["violations"]) == (14, 0)
