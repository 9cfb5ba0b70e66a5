"""topmast profile: what is imported is shown and exported; what is wrong says so."""

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from formats.profiles_file import read_profiles
from services.command_line.exit_code import ExitCode
from services.command_line.main import app

PROFILES = """model,cpus_per_gpu,memory_gb_per_gpu,relative_speed
vgg,1,20,0.5
vgg,3,20,1
lstm,1,20,0.9
lstm,3,20,1
"""
PROGRAM = Path(__file__).parents[1] / "profiling" / "pinned_training.py"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "profiles.csv"
    path.write_text(PROFILES)
    return path


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["profile", *arguments])
    return result.exit_code, result.output


def test_profiles_come_in_are_shown_and_go_out(database_url: str, file: Path, tmp_path: Path) -> None:
    database = ("--database-url", database_url)
    assert run("show", *database)[0] == ExitCode.NOT_FOUND
    code, output = run("show", "vgg", *database)
    assert (code, output.count("no")) == (ExitCode.NOT_FOUND, 1), "that there are no profiles is said once"
    assert run("import", str(file), *database) == (0, "stored 2 profiles; all profiles are at revision 1\n")
    assert run("import", str(file), *database) == (0, "stored 2 profiles; all profiles are at revision 1\n")
    code, output = run("show", *database)
    assert (code, [line.split()[0] for line in output.splitlines()[1:]]) == (0, ["lstm", "vgg"])
    code, output = run("show", "vgg", *database)
    assert (code, output.splitlines()[1:]) == (0, ["           1   0.500", "           3   1.000"])
    code, output = run("show", "vggg", *database)
    assert code == ExitCode.NOT_FOUND
    assert "did you mean vgg" in output
    exported = tmp_path / "out.csv"
    assert run("export", str(exported), *database)[0] == 0
    assert read_profiles(exported) == read_profiles(file)


def test_a_program_is_measured_once_and_recurring_jobs_use_that(database_url: str, tmp_path: Path) -> None:
    program = ("--env", "STEPS=1000000", "--env", f"SEEN={tmp_path / 'seen'}", "--", sys.executable, str(PROGRAM))
    few = ("--cpus-per-gpu", "1", "--iterations", "2", "--least-s", "0", "--database-url", database_url)
    code, output = run("run", *few, *program)
    assert code == 0, output
    assert "stored the profile of job-" in output
    code, output = run("run", *few, *program, "--seed", "3")
    assert code == 0, output
    assert "has a profile already" in output


def test_what_is_wrong_is_said(database_url: str, file: Path, tmp_path: Path) -> None:
    assert "only one of them" in run("run", "--database-url", database_url)[1]
    file.write_text(PROFILES.replace("vgg,3,20,1", "vgg,3,20,0.1"))
    code, output = run("import", str(file), "--database-url", database_url)
    assert code == ExitCode.REFUSED
    assert "more CPUs or memory never make a job slower" in output
    command = ("--", sys.executable, "-c", "pass")
    code, output = run("run", "--out", str(tmp_path / "p.csv"), "--cpus-per-gpu", "1", *command)
    assert code == ExitCode.REFUSED
    assert "ended before its second iteration" in output
