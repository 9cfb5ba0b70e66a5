"""Attempts start with the files of their package, on every machine: real processes, two tiers, two Ray nodes."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import ray
from ray._private.node import Node
from ray._private.parameter import RayParams

from services.execution.executor import AttemptPhase
from services.execution.runner_pool import TASK_SLOTS
from services.execution.working_directory import FOLDER_VARIABLE
from tests.execution.live import become_true, make_executor, running
from tests.execution.orders import key, order, placement, shell
from tests.execution.stored_packages import naming, project, stored

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("ray_address")]

FAR = "far"
"""The machine of the second Ray node."""

SHOW = "pwd; ls; ./run.sh; cat data.txt; echo changed > data.txt"


@pytest.fixture
def other_home(tmp_path: Path) -> Path:
    """TOPMAST_HOME of another tier."""
    return tmp_path / "elsewhere" / "home"


def packed(tmp_path: Path) -> tuple[str, str]:
    """A package and the store that it is in."""
    store = f"file://{tmp_path / 'store'}"
    folder = project(tmp_path / "project", run_sh="#!/bin/sh\necho it runs\n", data_txt="as packed\n")
    return stored(folder, store), store


def working_directories(home: Path) -> list[str]:
    return sorted(path.name for path in (home / "working_directories").glob("*"))


def test_every_attempt_starts_with_a_fresh_copy_whatever_the_home_of_its_tier(
    home: Path, other_home: Path, tmp_path: Path
) -> None:
    """Two tiers, which have the store in common and nothing else."""
    package, store = packed(tmp_path)
    gang = naming(
        order(
            shell(SHOW, tasks=3), placements=tuple(placement(task=task, machine=f"m{task // 2}") for task in range(3))
        ),
        package,
    )
    again = naming(order(shell(SHOW), attempt=2), package)

    async def scenario() -> tuple[list[str], str, str]:
        async with running(make_executor(home, packages=store)) as watched:
            await watched.executor.execute(gang)
            await watched.phase(gang.key, AttemptPhase.COMPLETED)
            logs = [await watched.log(gang.key, task) for task in range(3)]
            assert working_directories(home) == []
        async with running(make_executor(other_home, packages=store)) as watched:
            await watched.executor.execute(again)
            await watched.phase(again.key, AttemptPhase.COMPLETED)
            empty = order(shell("pwd; ls -A | wc -l"), workload="old")
            await watched.executor.execute(empty)
            await watched.phase(empty.key, AttemptPhase.COMPLETED)
            return logs, await watched.log(again.key), await watched.log(empty.key)

    gang_logs, second, old = asyncio.run(scenario())
    folders = [log.splitlines()[0] for log in gang_logs]
    assert folders[0] == folders[1] != folders[2]
    assert all(Path(folder).is_relative_to(home) for folder in folders)
    for log in (gang_logs[2], second):
        assert log.splitlines()[1:] == ["data.txt", "run.sh", "it runs", "as packed"]
    assert Path(second.splitlines()[0]).is_relative_to(other_home)
    # Who names no package has an empty folder of its own.
    assert old.splitlines()[1] == "0"
    assert Path(old.splitlines()[0]).is_relative_to(other_home)
    assert working_directories(other_home) == []


def test_files_that_cannot_be_fetched_end_the_attempt_as_a_lost_machine_does(home: Path, tmp_path: Path) -> None:
    package, store = packed(tmp_path)
    shutil.move(tmp_path / "store", tmp_path / "away")
    first, second = (naming(order(shell(SHOW), attempt=attempt), package) for attempt in (1, 2))

    async def scenario() -> str:
        async with running(make_executor(home, packages=store)) as watched:
            await watched.executor.execute(first)
            lost = await watched.phase(first.key, AttemptPhase.LOST)
            shutil.move(tmp_path / "away", tmp_path / "store")
            await watched.executor.execute(second)
            await watched.phase(second.key, AttemptPhase.COMPLETED)
            return lost.reason

    reason = asyncio.run(scenario())
    assert reason.startswith(
        "task 0 of job train on machine m0 did not start: the files of its working directory cannot be fetched"
    )
    assert package in reason
    assert store in reason


def test_a_store_that_hangs_keeps_nobody_from_stopping(home: Path, tmp_path: Path) -> None:
    """Whoever opens a pipe that nobody writes to waits for ever."""
    package, store = packed(tmp_path)
    archive = tmp_path / "store" / f"{package}.tar"
    archive.unlink()
    os.mkfifo(archive)
    hanging = naming(order(shell(SHOW)), package)

    async def scenario() -> None:
        async with running(make_executor(home, packages=store)) as watched:
            await watched.executor.execute(hanging)
            await become_true(lambda: any(".unpacking" in name for name in working_directories(home)))
            await watched.executor.stop(hanging.key, 30.0)
            stopped = await watched.phase(hanging.key, AttemptPhase.STOPPED)
            assert stopped.started_s == 0

    asyncio.run(scenario())


@contextmanager
def second_node(address: str) -> Iterator[None]:
    """A second Ray node, which offers the machine FAR, until the end. (What `ray start` does, but for one thing: it writes down, for
    all of this computer, which Ray `ray.init` is to connect to.)"""
    node = Node(
        RayParams(
            gcs_address=address,
            node_ip_address="127.0.0.1",
            num_cpus=1,
            num_gpus=0,
            object_store_memory=80 * 2**20,
            resources={f"machine:{FAR}": TASK_SLOTS},
            node_manager_port=0,
            min_worker_port=0,
            max_worker_port=0,
        ),
        head=False,
        shutdown_at_exit=False,
        spawn_reaper=False,
    )
    try:
        yield
    finally:
        node.kill_all_processes(check_alive=False, allow_graceful=True, wait=True)


def far_is_offered() -> bool:
    nodes = ray.nodes()  # type: ignore[no-untyped-call]  # Ray's own
    return any(node["Alive"] and f"machine:{FAR}" in node["Resources"] for node in nodes)


def test_a_gang_over_two_ray_nodes_has_its_files_on_both(
    home: Path, tmp_path: Path, ray_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, store = packed(tmp_path)
    local = tmp_path / "disk of the second node"
    monkeypatch.setenv(FOLDER_VARIABLE, str(local))
    gang = naming(
        order(shell(SHOW, tasks=2), placements=(placement(task=0), placement(task=1, machine=FAR))),
        package,
    )

    async def scenario() -> list[str]:
        await become_true(far_is_offered)
        async with running(make_executor(home, packages=store)) as watched:
            await watched.executor.execute(gang)
            await watched.phase(key(), AttemptPhase.COMPLETED)
            return [await watched.log(gang.key, task) for task in range(2)]

    with second_node(ray_address):
        near, far = asyncio.run(scenario())
        assert list(local.iterdir()) == []
    assert Path(near.splitlines()[0]).is_relative_to(home)
    assert Path(far.splitlines()[0]).is_relative_to(local)
    assert near.splitlines()[1:] == far.splitlines()[1:] == ["data.txt", "run.sh", "it runs", "as packed"]
