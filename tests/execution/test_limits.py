"""Limits of what a task uses: on real processes by affinity, and what is written for control groups."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from services.execution.control_group import FOLDER_VARIABLE, ControlGroup, control_group
from services.execution.cpu_affinity import chosen_cpus, limit_cpus

CPUS = sorted(os.sched_getaffinity(0))


@pytest.fixture
def task() -> Iterator[subprocess.Popen[str]]:
    program = [sys.executable, str(Path(__file__).parent / "process_tree.py")]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        family = psutil.Process(process.pid)
        try:
            yield process
        finally:
            for member in [*family.children(recursive=True), family]:
                member.kill()


def affinities(process_ids: list[int]) -> list[list[int]]:
    """Of all threads of these processes."""
    return [
        sorted(os.sched_getaffinity(int(thread.name)))
        for process_id in process_ids
        for thread in Path(f"/proc/{process_id}/task").iterdir()
    ]


@pytest.mark.skipif(len(CPUS) < 2, reason="with one CPU there is nothing to take away")
def test_every_thread_of_every_process_of_a_task_has_its_cpus_and_so_have_later_ones(
    task: subprocess.Popen[str],
) -> None:
    assert task.stdout is not None
    assert task.stdin is not None
    processes = [task.pid, *map(int, task.stdout.readline().split())]
    limit_cpus(task.pid, 1000, "task")
    one = chosen_cpus(CPUS, 1000, "task")
    assert len(one) == 1
    found = affinities(processes)
    assert len(found) >= 4
    assert all(each == one for each in found)
    task.stdin.write("\n")
    task.stdin.flush()
    later = int(task.stdout.readline())
    assert affinities([later]) == [one], "it inherits it"
    limit_cpus(task.pid, 1000 * len(CPUS), "task")
    assert all(each == CPUS for each in affinities([*processes, later]))


def offered(folder: Path, controllers: str = "cpu io memory") -> Path:
    """A folder that looks like one of cgroup v2: what is written there can be read again."""
    folder.mkdir(exist_ok=True)
    (folder / "cgroup.controllers").write_text(controllers)
    return folder


def test_a_control_group_gets_the_limits_and_the_processes(tmp_path: Path) -> None:
    delegated = offered(tmp_path / "delegated")
    group = control_group("w1%2F1", {FOLDER_VARIABLE: str(delegated)})
    assert group == ControlGroup(delegated / "w1%2F1")
    assert (delegated / "cgroup.subtree_control").read_text() == "+cpu +memory"
    group.limit(2_500, 2**30)
    group.add(77)
    assert {file.name: file.read_text() for file in group.folder.iterdir()} == {
        "cpu.max": "250000 100000",
        "memory.max": str(2**30),
        "cgroup.procs": "77",
    }
    group.limit(500, None)
    assert (group.folder / "cpu.max").read_text() == "50000 100000"
    assert (group.folder / "memory.max").read_text() == "max"
    assert group.kernel_kills() == 0
    (group.folder / "memory.events").write_text("low 0\nhigh 0\nmax 7\noom 2\noom_kill 1\noom_group_kill 0\n")
    assert group.kernel_kills() == 1


def test_below_the_root_there_is_a_folder_of_our_own(tmp_path: Path) -> None:
    offered(tmp_path)
    offered(tmp_path / "topmast")
    group = control_group("task", {}, tmp_path)
    assert group == ControlGroup(tmp_path / "topmast" / "task")


@pytest.mark.parametrize("controllers", ["", "cpu", "memory io"])
def test_where_the_kernel_offers_no_limits_a_group_holds_processes_together(tmp_path: Path, controllers: str) -> None:
    group = control_group("task", {FOLDER_VARIABLE: str(offered(tmp_path, controllers))})
    assert group == ControlGroup(tmp_path / "task", limited=False)
    group.limit(1000, 2**30)
    group.add(77)
    assert [file.name for file in group.folder.iterdir()] == ["cgroup.procs"]
    assert control_group("task", {}, tmp_path / "nowhere", tmp_path / "none") is None


def test_groups_are_made_below_the_second_root_or_the_own_group_where_the_root_has_none(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("4:memory:/elsewhere\n0::/user.slice/shell\n")
    offered(tmp_path, "")
    for name in ("user.slice", "user.slice/shell", "user.slice/shell/topmast"):
        offered(tmp_path / name, "")
    (tmp_path / "topmast").write_text("as if it could not be made")
    assert control_group("task", {}, tmp_path, own) == ControlGroup(
        tmp_path / "user.slice/shell/topmast/task", limited=False
    )
    for name in ("unified", "unified/topmast"):
        offered(tmp_path / name, "")
    assert control_group("task", {}, tmp_path, own) == ControlGroup(tmp_path / "unified/topmast/task", limited=False)
