"""`--profiles` and `--models-of-trace`: work as fast as its CPUs and memory, in simulations and in the check of their logs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from domain.sensitivity import SensitivityProfile
from formats.profiles_file import write_profiles
from formats.trace import write_trace
from services.command_line.exit_code import ExitCode
from tests.simulation.conftest import good, topmast
from tests.simulator.engine.profiled_run import HUNGRY, LEAN, trained

HUNGRY_ANYWHERE = SensitivityProfile((1.0, 500.0), (1.0,), ((1.0,), (500.0,)))
"""The more CPUs, the faster, however many the machines have."""
MACHINES = ("--gpus", "8", "--gpus-per-machine", "4")


@pytest.fixture
def profiles(tmp_path: Path) -> Path:
    path = tmp_path / "profiles.csv"
    write_profiles(path, {"res18": HUNGRY_ANYWHERE, "lstm": LEAN})
    return path


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.csv"
    write_trace(path, [trained(f"w{number}", 100.0 * number, 4000.0, "res18") for number in range(6)])
    return path


def mean_jct_s(*arguments: object) -> float:
    return float(json.loads(good("simulate", *arguments, *MACHINES, "--json").stdout)["jct_s"]["mean"])


def test_tuned_workloads_complete_sooner_and_their_log_is_valid(jobs: Path, profiles: Path, tmp_path: Path) -> None:
    given = ("--trace", jobs, "--profiles", profiles)
    log = tmp_path / "run.jsonl"
    tuned = mean_jct_s(*given, "--policy", "synergy_tune", "--events", log, "--validate")
    assert tuned < mean_jct_s(*given, "--policy", "synergy_proportional")
    files = ("--fleet", tmp_path / "run.fleet.yaml", "--tenants", tmp_path / "run.tenants.yaml")
    checked = json.loads(good("validate", log, *files, "--profiles", profiles, "--complete", "--json").stdout)
    assert checked["valid"]
    assert checked["checks"]["I7"] >= 6


def test_models_are_drawn_by_the_split(jobs: Path, profiles: Path, tmp_path: Path) -> None:
    nameless = tmp_path / "nameless.csv"
    write_trace(nameless, [trained(f"w{number}", 100.0 * number, 4000.0, "") for number in range(6)])
    given = ("--profiles", profiles, "--policy", "synergy_tune")
    all_images = mean_jct_s("--trace", nameless, *given, "--models-of-trace", "100-0-0")
    assert all_images == mean_jct_s("--trace", jobs, *given)
    assert all_images < mean_jct_s("--trace", nameless, *given, "--models-of-trace", "0-100-0")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--models-of-trace", "20-70-10"), "say --profiles too"),
        (("--policy", "synergy_tune", "--set", "ordering=stf"), "stf is no order; did you mean srtf"),
        (("--policy", "fifo", "--set", "ordering=srtf"), "fifo has an order of its own"),
    ],
)
def test_what_makes_no_sense_is_refused(jobs: Path, arguments: tuple[str, ...], says: str) -> None:
    result = topmast("simulate", "--trace", jobs, *MACHINES, *arguments)
    assert result.exit_code != 0
    assert says in " ".join(result.stderr.replace("│", " ").split())


def test_a_model_without_a_profile_is_refused(jobs: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    write_profiles(other, {"res50": HUNGRY})
    result = topmast("simulate", "--trace", jobs, *MACHINES, "--profiles", other)
    assert result.exit_code == ExitCode.REFUSED
    assert "model of w0: 'res18' has no sensitivity profile; did you mean res50" in result.stderr
