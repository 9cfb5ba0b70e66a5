"""The program that makes environments, with stand-ins for conda and Docker, which this machine may not have; and its cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from domain.runtime_environment import RuntimeEnvironment
from services.execution import environment_cache
from services.execution.environment_builder import EnvironmentTask
from services.execution.environment_cache import EnvironmentPlace, place_of, trim
from services.execution.prepared_environment import PreparedEnvironment

CONDA = """#!/bin/sh
case "$1" in
  env) if [ "$2" = list ]; then echo '{"envs": ["/opt/conda", "@prefix@"]}'; else mkdir -p "$4"; echo made of $6; fi ;;
  run) shift; prefix=$2; CONDA_PREFIX=$prefix CUDA_HOME=$prefix/cuda PATH=$prefix/bin:$PATH exec env -0 ;;
esac
"""
DOCKER = """#!/bin/sh
[ -e "@prefix@/no-daemon" ] && { echo 'Cannot connect to the daemon' >&2; exit 1; }
[ "$1 $2" = "image inspect" ] && [ "$3" != here:1 ] && exit 1
[ "$1" = pull ] && [ "$2" = nowhere:1 ] && { echo 'manifest unknown' >&2; exit 1; }
[ "$1" = pull ] && echo "pulled $2"
exit 0
"""


def build(tmp_path: Path, programs: dict[str, str], **runtime: str) -> tuple[PreparedEnvironment | None, str]:
    """What is ready then, and what the program printed; only these programs, and those of the system, are there."""
    folder = tmp_path / "programs"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, text in programs.items():
        (folder / name).write_text(text.replace("@prefix@", str(tmp_path)))
        (folder / name).chmod(0o755)
    for name in ("sh", "env", "mkdir"):
        (folder / name).symlink_to(shutil.which(name) or "")
    task = EnvironmentTask(RuntimeEnvironment(**runtime), tmp_path / "environments" / "one")
    ended = subprocess.run(
        [sys.executable, "-m", "services.execution.environment_builder", TypeAdapter(EnvironmentTask).dump_json(task)],
        env={"PATH": str(folder), "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert ended.returncode in (0, 1), ended.stdout
    prepared = EnvironmentPlace(task.folder).prepared()
    assert (ended.returncode == 0) == (prepared is not None)
    return prepared, ended.stdout


def test_a_conda_environment_is_that_of_the_machine(tmp_path: Path) -> None:
    """With the variables with which it is activated."""
    prepared, _ = build(tmp_path, {"conda": CONDA}, conda=tmp_path.name)
    assert prepared == PreparedEnvironment(
        python=f"{tmp_path}/bin/python",
        path=(f"{tmp_path}/bin",),
        variables={"CONDA_PREFIX": str(tmp_path), "CUDA_HOME": f"{tmp_path}/cuda"},
    )


def test_a_conda_environment_is_made_of_a_file(tmp_path: Path) -> None:
    prepared, said = build(tmp_path, {"conda": CONDA}, conda_file="name: x\n")
    made = tmp_path / "environments" / "one"
    assert f"made of {made}/environment.yaml" in said
    assert prepared is not None
    assert prepared.variables["CONDA_PREFIX"] == f"{made}/conda"
    assert (made / "environment.yaml").read_text() == "name: x\n"


@pytest.mark.parametrize("conda", ["unknown", "/nowhere/env"])
def test_what_a_machine_cannot_do_is_said_in_a_sentence(tmp_path: Path, conda: str) -> None:
    assert build(tmp_path, {}, conda="mine") == (
        None,
        "this machine has no conda: none of conda, mamba, micromamba is in PATH\n",
    )
    assert build(tmp_path, {}, image="here:1") == (
        None,
        "this machine has no container runtime: neither docker nor podman is in PATH\n",
    )
    prepared, said = build(tmp_path, {"conda": CONDA}, conda=conda)
    assert prepared is None
    assert said.startswith(f"there is no conda environment {conda} on this machine")
    _, said = build(tmp_path, {}, python="/bin/sh")
    assert said.endswith("/bin/sh is no Python interpreter that runs here\n")


def test_an_image_is_fetched_where_it_is_not_there(tmp_path: Path) -> None:
    ready = PreparedEnvironment(engine=str(tmp_path / "programs" / "docker"), image="here:1")
    assert build(tmp_path, {"docker": DOCKER}, image="here:1") == (ready, "")
    shutil.rmtree(tmp_path / "environments")
    _, said = build(tmp_path, {"docker": DOCKER}, image="else:1")
    assert said.endswith("pulled else:1\n")
    shutil.rmtree(tmp_path / "environments")
    _, said = build(tmp_path, {"docker": DOCKER}, image="nowhere:1")
    assert said.endswith("manifest unknown\nthe image nowhere:1 is not on this machine, and cannot be fetched\n")
    (tmp_path / "no-daemon").touch()
    _, said = build(tmp_path, {"docker": DOCKER}, image="here:1")
    assert "the container runtime of this machine does not answer" in said.splitlines()[-1]


def test_what_is_the_same_is_made_once(tmp_path: Path) -> None:
    """Only what the machine itself has is looked for in each attempt."""
    first = place_of(tmp_path, RuntimeEnvironment(requirements="a\n"), "w/1")
    assert first == place_of(tmp_path, RuntimeEnvironment(requirements="a\n"), "w/2")
    assert first != place_of(tmp_path, RuntimeEnvironment(requirements="b\n"), "w/1")
    assert first != place_of(tmp_path, RuntimeEnvironment(requirements="a\n", python="/usr/bin/python3"), "w/1")
    image = RuntimeEnvironment(image="a:1")
    assert place_of(tmp_path, image, "w/1") == place_of(tmp_path, image, "w/1")
    assert place_of(tmp_path, image, "w/1") != place_of(tmp_path, image, "w/2")


def test_what_is_ready_is_not_waited_for(tmp_path: Path) -> None:
    """Another task that came too late to make it must not wait until those that use it have ended."""
    place = EnvironmentPlace(tmp_path / "environments" / "one")
    with place.making() as to_be_made:
        assert to_be_made
        place.folder.mkdir()
        place.finish(PreparedEnvironment(python="p"))
    in_use = place.use()
    assert in_use is not None
    with place.making() as again:
        assert not again
    assert build(tmp_path, {}, conda="not asked for") == (PreparedEnvironment(python="p"), "")
    os.close(in_use)


def test_what_is_not_used_any_more_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The least used first, and nothing that is in use."""
    places = [EnvironmentPlace(tmp_path / name) for name in ("a", "b", "c", "d")]
    for number, place in enumerate(places):
        with place.making():
            place.folder.mkdir()
            (place.folder / "content").write_bytes(b"x" * 1_000)
            place.finish(PreparedEnvironment(python="p"))
        os.utime(place.lock, (1_000.0 + number, 1_000.0 + number))
    in_use = places[0].use()
    assert in_use is not None
    os.utime(places[0].lock, (1_000.0, 1_000.0))
    assert trim(tmp_path, now_s=2_000.0) == []
    monkeypatch.setattr(environment_cache, "GREATEST_BYTES", 2_500)
    # The one that has just been made would be gone before anybody could use it, again and again.
    assert trim(tmp_path, now_s=2_000.0, keep="b") == ["c", "d"]
    assert [place.is_ready() for place in places] == [True, True, False, False]
    monkeypatch.setattr(environment_cache, "GREATEST_BYTES", 1_500)
    assert trim(tmp_path, now_s=2_000.0, keep="b") == []
    assert trim(tmp_path, now_s=2_000.0) == ["b"]
    assert places[1].use() is None
    os.close(in_use)
    later_s = 1_003.5 + environment_cache.LONGEST_UNUSED_S
    # The lock of what was asked for in vain goes too.
    assert trim(tmp_path, now_s=later_s) == ["a", "b"]
    assert list(tmp_path.iterdir()) == []


NESTING = """#!/bin/sh
[ "$1" = run ] && exec env -0
cd "$4" 2>/dev/null || { mkdir -p "$4"; cd "$4"; }
i=0; while [ $i -lt 1200 ]; do mkdir d; cd d; i=$((i+1)); done
"""


def test_however_deep_an_installer_nests_folders_other_environments_are_built(tmp_path: Path) -> None:
    try:
        build(tmp_path, {"conda": NESTING}, conda_file="dependencies: []\n")
        (tmp_path / "environments" / "one").rename(tmp_path / "environments" / "other")
        (tmp_path / "environments" / "one.lock").rename(tmp_path / "environments" / "other.lock")
        (tmp_path / "environments" / "other" / "environment.json").unlink(missing_ok=True)
        prepared, said = build(tmp_path, {"docker": DOCKER}, image="here:1")
        assert prepared is not None, said
        assert not (tmp_path / "environments" / "other").exists()
    finally:
        subprocess.run(["rm", "-rf", str(tmp_path / "environments")], check=True)
