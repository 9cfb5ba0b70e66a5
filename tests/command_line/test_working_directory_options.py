"""Which folder tasks start with, by what was typed and where."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.client.loopback_server import LoopbackServer
from tests.command_line.conftest import Topmast

JOB = """\
name: train
tenant: vision
jobs:
  - {name: train, resources: {gpus: 1}, command: [python, train.py]}
"""
RUN = ("run", "--tenant", "vision", "--gpus", "1")
PROGRAM = ("--", "python", "train.py")


@pytest.fixture
def here(topmast: Topmast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which commands are typed; beside it is another one."""
    assert isinstance(topmast, Topmast), "which would change to a folder of its own later"
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"from_{name}.py").write_text(name)
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def files_of(server: LoopbackServer, workload: str) -> set[str]:
    package = server.topmast.workloads[workload].specification.package
    return set(server.packages.files(package)) if package else set()


@pytest.mark.usefixtures("here")
def test_run_packs_the_folder_in_which_it_is_typed(server: LoopbackServer, topmast: Topmast) -> None:
    for arguments in (PROGRAM, ("--workdir", "../there", *PROGRAM), ("--no-workdir", *PROGRAM), ("--emulate-s", "5")):
        assert topmast(*RUN, *arguments).exit_code == 0
    found = [files_of(server, f"w{number}") for number in range(1, 5)]
    assert found == [{"from_here.py"}, {"from_there.py"}, set(), set()]


def test_the_same_files_are_sent_once_and_belong_to_the_content_of_a_key(
    server: LoopbackServer, topmast: Topmast, here: Path
) -> None:
    keyed = (*RUN, "--idempotency-key", "nightly", *PROGRAM)
    assert [topmast(*keyed).stdout for _ in range(3)] == ["w1\n"] * 3
    assert server.packages.uploads == 1
    (here / "from_here.py").write_text("changed")
    refused = topmast(*keyed)
    assert refused.exit_code == 4
    assert "another workload" in refused.stderr


def test_submit_takes_what_was_typed_then_what_the_file_says_then_where_it_is_typed(
    server: LoopbackServer, topmast: Topmast, here: Path
) -> None:
    there = here.parent / "there"
    emulated = JOB.replace("command: [python, train.py]", "emulated: {duration_s: 5}")
    (there / "jobs.yaml").write_text(f"{JOB}working_directory: .\n---\n{JOB}---\n{emulated}")
    file = ("submit", "-f", str(there / "jobs.yaml"))
    submitted = topmast(*file)
    assert submitted.stdout == "w1\nw2\nw3\n", submitted.stderr
    assert topmast(*file, "--workdir", str(here)).exit_code == 0
    assert topmast(*file, "--no-workdir").exit_code == 0
    assert topmast("submit", "-f", "-", standard_input=f"{JOB}working_directory: ../there\n").exit_code == 0
    found = [files_of(server, f"w{number}") for number in range(1, 11)]
    from_file = {"from_there.py", "jobs.yaml"}
    assert found[:3] == [from_file, {"from_here.py"}, set()]
    assert found[3:6] == [{"from_here.py"}] * 3
    assert found[6:9] == [set()] * 3
    assert found[9] == from_file


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--workdir", "nowhere", *PROGRAM), "there is no folder nowhere"),
        (("--workdir", ".", "--no-workdir", *PROGRAM), "not both"),
        (("--workdir", ".", "--emulate-s", "5"), "no use for files"),
    ],
)
@pytest.mark.usefixtures("here")
def test_what_makes_no_sense_is_refused(
    server: LoopbackServer, topmast: Topmast, arguments: tuple[str, ...], sentence: str
) -> None:
    refused = topmast(*RUN, *arguments)
    assert refused.exit_code == 2
    assert sentence in refused.stderr
    assert not server.topmast.workloads


def test_a_folder_that_is_too_large_is_refused_and_nothing_is_submitted(
    server: LoopbackServer, topmast: Topmast, here: Path
) -> None:
    (here / "data.bin").write_bytes(b"x" * 200_000)
    server.packages.limits.greatest_bytes = 100_000
    refused = topmast(*RUN, *PROGRAM)
    assert refused.exit_code == 4
    assert "data.bin (" in refused.stderr
    assert ".topmastignore" in refused.stderr
    assert "--workdir" in refused.stderr
    assert not server.topmast.workloads


@pytest.mark.usefixtures("here")
def test_a_file_names_a_folder_or_a_package(topmast: Topmast) -> None:
    both = f"{JOB}working_directory: .\npackage: {'a' * 64}\n"
    refused = topmast("submit", "-f", "-", standard_input=both)
    assert refused.exit_code == 4
    assert "working_directory" in refused.stderr
