"""topmast validate: exit code 1 on any violation, and its name."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from formats.fleet_file import dump_fleet
from formats.tenants_file import dump_tenants
from services.command_line.main import app
from tests.simulator.log_builder import FLEET, TABLES, TENANTS, LogBuilder, job, task


def validate(folder: Path, log: LogBuilder, *options: str) -> Result:
    """Runs the command on files; it calls no service."""
    events, fleet, tenants = folder / "events.jsonl", folder / "fleet.yaml", folder / "tenants.yaml"
    events.write_text("".join(json.dumps(record) + "\n" for record in log.records))
    fleet.write_text(dump_fleet(FLEET, TABLES))
    tenants.write_text(dump_tenants(TENANTS))
    return CliRunner().invoke(
        app, ["validate", str(events), "--fleet", str(fleet), "--tenants", str(tenants), *options]
    )


@pytest.fixture
def good() -> LogBuilder:
    """w1 runs on two GPUs of e1."""
    return LogBuilder().submit("w1").run("w1", task("e1", [0, 1]))


def test_a_good_log_is_valid(tmp_path: Path, good: LogBuilder) -> None:
    result = validate(tmp_path, good)
    assert result.exit_code == 0, result.stdout
    assert result.stdout.startswith("valid: 3 events, 1 workloads, 1 attempts\n")
    as_json = json.loads(validate(tmp_path, good, "--json").stdout)
    assert (as_json["valid"], as_json["violations"]) == (True, 0)


def test_bounds_of_evictions_come_from_the_configuration_and_from_options(tmp_path: Path) -> None:
    """`low` makes room a minute after its start."""
    config = tmp_path / "scheduler.yaml"
    config.write_text("eviction: {minimum_run_time_s: 61}")
    whole, all_of_e1 = job(1, 4, gpu_model="A100"), task("e1", [0, 1, 2, 3])
    log = LogBuilder().submit("low", whole).run("low", all_of_e1).submit("top", whole, tenant="ads").wait(60.0)
    log.dispatch("top", all_of_e1, evicts={"low": 1}).evict("low", "preempted", by=("top", 1, 0))
    bounds = ["--config", str(config)]
    assert validate(tmp_path, log).exit_code == 0
    assert validate(tmp_path, log, *bounds, "--minimum-run-time", "60").exit_code == 0
    result = validate(tmp_path, log, *bounds)
    assert result.exit_code == 1
    assert "I15: line 6, workload low: attempt 1 of low makes room 60 s after its start" in result.stdout
    assert "the limit is 0" in validate(tmp_path, log, "--evictions-per-hour", "0").stdout


def test_a_broken_log_is_not_and_says_what_is_broken(tmp_path: Path, good: LogBuilder) -> None:
    broken = good.submit("w2").run("w2", task("e1", [1, 2]))
    result = validate(tmp_path, broken)
    assert result.exit_code == 1
    assert "I1: line " in result.stdout
    assert "workload w2" in result.stdout
    assert json.loads(validate(tmp_path, broken, "--json").stdout)["violations_by_invariant"]["I1"] >= 1


def test_a_run_that_should_be_over_must_be(tmp_path: Path, good: LogBuilder) -> None:
    result = validate(tmp_path, good, "--complete")
    assert result.exit_code == 1
    assert "I8: end of log, workload w1" in result.stdout


def test_an_empty_log_shows_nothing(tmp_path: Path) -> None:
    result = validate(tmp_path, LogBuilder())
    assert result.exit_code == 1
    assert "nothing to validate" in result.stdout


def test_a_log_may_come_through_a_pipe(tmp_path: Path, good: LogBuilder) -> None:
    validate(tmp_path, good)
    main = (sys.executable, "-c", "from services.command_line.main import main; main()", "validate", "-")
    with (tmp_path / "events.jsonl").open("rb") as log:
        piped = subprocess.run(
            [*main, "--fleet", tmp_path / "fleet.yaml", "--tenants", tmp_path / "tenants.yaml"],
            stdin=log,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert piped.returncode == 0, piped.stderr
    assert piped.stdout.startswith("valid: 3 events")


def test_files_that_cannot_be_used_are_refused(tmp_path: Path, good: LogBuilder) -> None:
    validate(tmp_path, good)
    arguments = ["validate", str(tmp_path / "events.jsonl"), "--fleet", str(tmp_path / "tenants.yaml")]
    refused = CliRunner().invoke(app, [*arguments, "--tenants", str(tmp_path / "tenants.yaml")])
    assert refused.exit_code == 4
    assert refused.stderr.startswith(f"topmast: {tmp_path / 'tenants.yaml'}: ")
    assert CliRunner().invoke(app, [*arguments, "--tenants", str(tmp_path / "none.yaml")]).exit_code == 2
