"""A job with tasks in several clusters: each task knows its rank among all, and where they meet."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from services.execution.executor import AttemptOrder, AttemptPhase
from services.execution.task_environment import Rendezvous, task_environment, task_file
from services.execution.task_paths import TaskPaths
from tests.execution.live import make_executor, running
from tests.execution.orders import key, order, placement, shell

WHO = 'echo "$RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT"'


def part(*tasks: int, workload: str = "w", hold: bool = False) -> AttemptOrder:
    """One cluster's tasks of a job of three."""
    of_three = replace(shell(WHO), tasks=3, across_clusters=True)
    return order(of_three, workload=workload, placements=tuple(placement(task=task) for task in tasks), hold=hold)


@pytest.mark.parametrize(("tasks", "task", "local"), [((0, 1), 1, "1"), ((2,), 2, "0")])
def test_ranks_count_the_tasks_in_all_clusters(tasks: tuple[int, ...], task: int, local: str) -> None:
    here = part(*tasks)
    placed = next(one for one in here.placements if one.task == task)
    environment = task_environment(
        here,
        placed,
        paths=TaskPaths(Path("/home")),
        session_address="there:1",
        rendezvous=Rendezvous("first", 7),
        inherited={},
        program_directory=Path("/bin"),
    )
    assert (environment["RANK"], environment["WORLD_SIZE"]) == (str(task), "3")
    assert (environment["LOCAL_RANK"], environment["LOCAL_WORLD_SIZE"]) == (local, str(len(tasks)))
    said = task_file(here, placed, "there:1")
    assert (said["rank"], said["world_size"]) == (task, 3)


@pytest.mark.live
@pytest.mark.usefixtures("ray_address")
def test_the_cluster_of_the_first_task_says_where_they_meet_and_the_others_are_told(home: Path) -> None:
    """Two parts of a job, which one cluster manager runs here under two names."""

    async def scenario() -> None:
        async with running(make_executor(home)) as watched:
            first, other = part(0, 1, hold=True), part(2, workload="v", hold=True)
            await watched.executor.execute(first)
            await watched.executor.execute(other)
            (meeting,) = (await watched.phase(key(), AttemptPhase.HELD)).rendezvous
            assert (await watched.phase(key("v"), AttemptPhase.HELD)).rendezvous == ()
            assert (meeting.job, meeting.port > 0) == ("train", True)
            await watched.executor.execute(replace(first, hold=False))
            await watched.executor.execute(replace(other, hold=False, rendezvous=(meeting,)))
            for name in ("w", "v"):
                await watched.phase(key(name), AttemptPhase.COMPLETED)
            at = f"at {meeting.address}:{meeting.port}"
            assert sorted((await watched.log(key())).splitlines()) == [f"0 of 3, 0 of 2 {at}", f"1 of 3, 1 of 2 {at}"]
            assert await watched.log(key("v")) == f"2 of 3, 0 of 1 {at}\n"
            untold = part(2, workload="u", hold=True)
            await watched.executor.execute(untold)
            await watched.phase(key("u"), AttemptPhase.HELD)
            await watched.executor.execute(replace(untold, hold=False, rendezvous=()))
            await watched.phase(key("u"), AttemptPhase.STOPPED)

    asyncio.run(scenario())
