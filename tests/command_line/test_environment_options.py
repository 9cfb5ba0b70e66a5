"""What tasks run in, and dry runs, as options."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.client.loopback_server import LoopbackServer
from tests.command_line.conftest import Topmast
from tests.command_line.test_command_changing import FLEET, TENANTS, WORKLOAD
from topmast.v1 import workload_pb2

RUN = ("run", "--tenant", "vision", "--gpus", "1")


def sent_job(server: LoopbackServer) -> workload_pb2.JobSpecification:
    (job,) = server.topmast.workloads["w1"].specification.jobs
    return job


def test_variables_come_from_files_and_options_win(server: LoopbackServer, topmast: Topmast, tmp_path: Path) -> None:
    (tmp_path / "a.env").write_text("# ours\nexport A='one # two'\n\nB=2 # said\nNO_COLOR\n")
    (tmp_path / "b.env").write_text('B="3"\nC=$A\n')
    files = ("--env-file", str(tmp_path / "a.env"), "--env-file", str(tmp_path / "b.env"))
    ran = topmast(*RUN, *files, "--env", "C=own", "--", "train")
    assert ran.exit_code == 0, ran.stderr
    assert dict(sent_job(server).environment) == {"A": "one # two", "B": "3", "C": "own", "NO_COLOR": "1"}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("A=1\n\n=2\n", "line 3: '=2' does not read NAME=VALUE"),
        ('A=1\nB="open\n', "line 2: 'B=\"open' does not read NAME=VALUE"),
        ("A=1\n\nNOT_SET_ANYWHERE\n", "line 3: NOT_SET_ANYWHERE has no value, and is not set here"),
    ],
)
def test_a_bad_line_of_a_file_is_named(topmast: Topmast, tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "bad.env"
    file.write_text(text)
    refused = topmast(*RUN, "--env-file", str(file), "--", "train")
    assert refused.exit_code == 2
    assert f"{file} {sentence}" in refused.stderr.replace("\n", " ")


def test_the_content_of_files_travels(server: LoopbackServer, topmast: Topmast, tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("kumquat==1.0\n")
    (tmp_path / "environment.yaml").write_text("name: x\n")
    requirements = ("--requirements", str(tmp_path / "requirements.txt"))
    topmast(*RUN, *requirements, "--python", "/opt/py/bin/python", "--", "train")
    topmast(*RUN, "--conda", str(tmp_path / "environment.yaml"), "--", "train")
    topmast(*RUN, "--conda", "mine", "--", "train")
    topmast(*RUN, "--image", "python:3.11", "--", "train")
    sent = [server.topmast.workloads[f"w{number}"].specification.jobs[0].runtime for number in (1, 2, 3, 4)]
    assert sent == [
        workload_pb2.RuntimeEnvironment(python="/opt/py/bin/python", requirements="kumquat==1.0\n"),
        workload_pb2.RuntimeEnvironment(conda_file="name: x\n"),
        workload_pb2.RuntimeEnvironment(conda="mine"),
        workload_pb2.RuntimeEnvironment(image="python:3.11"),
    ]
    topmast(*RUN, "--", "train")
    assert not server.topmast.workloads["w5"].specification.jobs[0].HasField("runtime")


def test_a_function_given_as_python_is_told_apart(topmast: Topmast, tmp_path: Path) -> None:
    refused = topmast(*RUN, "--python", "jobs:train")
    assert refused.exit_code == 2
    assert "'jobs:train' looks like a function; that is --function jobs:train." in refused.stderr
    unknown = topmast(*RUN, "--python", "no-such-python", "--", "train")
    assert (unknown.exit_code, "there is no program no-such-python" in unknown.stderr) == (2, True)
    missing = topmast(*RUN, "--requirements", str(tmp_path / "nowhere.txt"), "--", "train")
    assert missing.exit_code == 2
    assert "nowhere.txt" in missing.stderr


def test_files_that_a_workload_file_names_are_looked_for_beside_it(
    server: LoopbackServer, topmast: Topmast, tmp_path: Path
) -> None:
    job = "    environment_file: job.env\n    environment: {B: own}\n    runtime: {requirements_file: needs.txt}\n"
    (tmp_path / "workload.yaml").write_text(WORKLOAD + job)
    (tmp_path / "job.env").write_text("A=1\nB=2\n")
    missing = topmast("submit", "-f", str(tmp_path / "workload.yaml"))
    assert missing.exit_code == 4
    assert "jobs[0].runtime.requirements_file" in missing.stderr
    (tmp_path / "needs.txt").write_text("kumquat\n")
    submitted = topmast("submit", "-f", str(tmp_path / "workload.yaml"))
    assert submitted.exit_code == 0, submitted.stderr
    assert dict(sent_job(server).environment) == {"A": "1", "B": "own"}
    assert sent_job(server).runtime.requirements == "kumquat\n"


def test_a_dry_run_prints_where_a_workload_could_run(server: LoopbackServer, topmast: Topmast, tmp_path: Path) -> None:
    (tmp_path / "workload.yaml").write_text(WORKLOAD)
    for arguments, name in (
        (("submit", "-f", str(tmp_path / "workload.yaml")), "click-model"),
        ((*RUN, "--", "python", "train.py"), "train"),
    ):
        command, *rest = arguments
        checked = topmast(command, "--dry-run", *rest)
        assert checked.exit_code == 0, checked.stderr
        assert checked.stdout == f"{name} would be accepted\n  could run in region eu, in eu-1 or eu-2\n"
        said = json.loads(topmast(command, "--dry-run", "--json", *rest).stdout)
        assert said == {"hosts": [{"region": "eu", "clusters": ["eu-1", "eu-2"]}], "workload": ""}
    assert server.topmast.workloads == {}


def test_a_dry_run_prints_what_applying_would_do(server: LoopbackServer, topmast: Topmast, tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").write_text(FLEET)
    (tmp_path / "tenants.yaml").write_text(TENANTS)
    fleet = ("apply", "--dry-run", "-f", str(tmp_path / "fleet.yaml"))
    assert topmast(*fleet).stdout == "nothing would change\n"
    server.topmast.changes.kinds.add(kind="machine", added=["m2"], added_count=1, removed=["m0", "m1"], removed_count=2)
    server.topmast.changes.refused = "work is running on machines"
    server.topmast.changes.drain_first.add(machine="m0", attempt="w1#1")
    for arguments in (fleet, ("apply", "--dry-run", "-f", str(tmp_path / "tenants.yaml"))):
        would = topmast(*arguments)
        assert would.exit_code == 4
        assert would.stdout.splitlines() == [
            "1 machine would be added: m2",
            "2 machines would be removed: m0, m1",
            "to be drained first: machine m0, where w1#1 is running",
        ]
        assert "it would be refused: work is running on machines" in would.stderr
    assert not server.topmast.fleet.fleet.regions
    assert not server.topmast.tenants.tenants
