"""Nothing of a task outlives what watches over it, whichever of that is killed: on real processes, without Ray."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from domain.placement import AttemptKey
from services.execution.control_group import ControlGroup, control_group, control_groups
from services.execution.left_behind import end_left_behind
from services.execution.task_mark import TaskMark, mark_of_environment, mark_of_group
from services.execution.task_paths import TaskPaths
from tests.execution.live import processes_with, wait_until, wait_until_gone
from tests.execution.orders import key, placement
from topmast_server.processes import module_command

DETACHED = Path(__file__).with_name("detached.py")


@dataclass
class Standing:
    """A task under its reaper, with one process of it that has detached itself, which has the mark."""

    runner: subprocess.Popen[str]
    guard: psutil.Process
    reaper: psutil.Process
    main: psutil.Process
    mark: str

    def kill(self, *names: str) -> None:
        """All of them at once: none sees the end of another one."""
        chosen = {"runner": self.runner.pid, "guard": self.guard.pid, "reaper": self.reaper.pid}
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for name in names:
                os.kill(chosen[name], number)
        if "reaper" in names:
            # Its first process dies with it, a moment later; the detached one is what a test is about.
            wait_until(lambda: not runs(self.main))


class Tasks:
    """Starts tasks in a home."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.started: list[Standing] = []

    def start(
        self, of: AttemptKey, *, environment: str = "cleared", group: ControlGroup | None = None, runs_s: float = 600
    ) -> Standing:
        mark = f"detached-{uuid.uuid4().hex}"
        variables = TaskMark.of(of, placement()).variables(TaskPaths(self.home))
        launch = {
            "arguments": [sys.executable, str(DETACHED), environment, mark, str(runs_s)],
            "environment": {"PATH": os.environ["PATH"], **variables},
            "directory": "/",
            "log": os.devnull,
        }
        arguments = [] if group is None else [str(group.folder)]
        runner = subprocess.Popen(
            module_command("tests.execution.standing_runner", *arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert runner.stdin is not None
        assert runner.stdout is not None
        runner.stdin.write(json.dumps(launch) + "\n")
        runner.stdin.flush()
        guard = psutil.Process(int(runner.stdout.readline()))
        main = psutil.Process(int(json.loads(runner.stdout.readline())["process_id"]))
        reaper = main.parent()
        assert reaper is not None
        standing = Standing(runner, guard, reaper, main, mark)
        self.started.append(standing)
        wait_until(lambda: [process.ppid() for process in processes_with(f"time.sleep(600) {mark}")] == [reaper.pid])
        return standing


def runs(process: psutil.Process) -> bool:
    """A zombie does not, whose parent has not looked."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def tasks(tmp_path: Path) -> Iterator[Tasks]:
    made = Tasks(tmp_path)
    try:
        yield made
    finally:
        for task in made.started:
            task.runner.kill()
            task.runner.communicate()
            for process in processes_with(task.mark):
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        for group in control_groups():
            if mark_of_group(group.folder.name, tmp_path):
                wait_until(group.kill)
                group.remove()


@pytest.mark.parametrize(
    "killed", [("runner",), ("reaper",), ("guard",), ("runner", "reaper"), ("runner", "guard")], ids="+".join
)
def test_a_detached_process_without_environment_does_not_outlive_what_watches_over_it(
    tasks: Tasks, killed: tuple[str, ...]
) -> None:
    task = tasks.start(key())
    task.kill(*killed)
    wait_until_gone(task.mark)
    wait_until(lambda: not any(runs(process) for process in (task.guard, task.reaper, task.main)))


def test_what_outlived_all_that_watched_over_it_is_found_by_its_environment(tasks: Tasks) -> None:
    """Of older attempts of that workload alone: not what is another workload's, nor what is another home's."""
    old, other = tasks.start(key(), environment="kept"), tasks.start(key("v"), environment="kept")
    old.kill("runner", "guard", "reaper")
    elsewhere = tasks.home / "another"
    assert end_left_behind(elsewhere, lambda mark: True) == 0
    assert end_left_behind(tasks.home, lambda mark: mark.key.workload == "w" and mark.key.attempt < 1) == 0
    assert processes_with(old.mark)
    assert end_left_behind(tasks.home, lambda mark: mark.key.workload == "w" and mark.key.attempt < 2) == 1
    assert not processes_with(old.mark)
    assert len(processes_with(other.mark)) == 2


def test_what_also_cleared_its_environment_is_found_by_its_control_group(tasks: Tasks) -> None:
    group = control_group(TaskMark.of(key(), placement()).group_name(tasks.home))
    if group is None:
        pytest.skip("no control group may be made on this machine")
    task = tasks.start(key(), group=group)
    task.kill("runner", "guard", "reaper")
    assert end_left_behind(tasks.home, lambda mark: mark == TaskMark.of(key("v"), placement())) == 0
    assert end_left_behind(tasks.home, lambda mark: mark == TaskMark.of(key(), placement())) == 1
    assert not processes_with(task.mark)
    assert not group.folder.exists()


@pytest.mark.parametrize("workload", ["w", "a/b%2F c", "-", "ü=1"])
def test_a_mark_says_whose_a_process_is_and_others_are_nobodys(tmp_path: Path, workload: str) -> None:
    mark = TaskMark.of(key(workload, 7), placement("träin/1", 3))
    variables = mark.variables(TaskPaths(tmp_path))
    environment = "\0".join(f"{name}={text}" for name, text in variables.items()).encode() + b"\0"
    assert mark_of_environment(environment, tmp_path) == mark
    assert mark_of_group(mark.group_name(tmp_path), tmp_path) == mark
    assert "/" not in mark.group_name(tmp_path)
    assert mark_of_environment(environment, tmp_path / "another") is None
    assert mark_of_group(mark.group_name(tmp_path), tmp_path / "another") is None
    for nobodys in (b"", b"\0\xff\0=", b"TOPMAST_WORKLOAD=w\0", environment.replace(b"TEMPT=7", b"TEMPT=seven")):
        assert mark_of_environment(nobodys, tmp_path) is None
    for name in ("topmast", "w%2F1", ""):
        assert mark_of_group(name, tmp_path) is None
