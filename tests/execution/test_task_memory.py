"""Tasks that take more memory than they have, on real processes. The machine itself never gets short of it: what the kernel says
it has left is read from a file of the test."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from domain.placement import TaskPlacement
from domain.resources import TaskResources
from domain.workload import Command, JobSpecification
from services.execution.control_group import ControlGroup
from services.execution.executor import AttemptPhase, SessionImpossible, SessionTarget
from services.execution.gang_member import Member
from services.execution.memory_watch import MemoryEnd, MemorySettings, MemoryWatch
from services.execution.runner_messages import RunnerReport, RunnerState
from services.execution.session_frames import FrameKind, SessionCommand, number_of
from services.execution.watched_tasks import WatchedTask, WatchedTasks
from services.oom_score import lower_own_score
from tests.execution.live import Watched, make_executor, processes_with, running, until_text, watchers_of
from tests.execution.orders import job, key, order, placement

GREEDY = Path(__file__).with_name("greedy.py")
QUICK = MemorySettings(look_every_s=0.1, reserve_bytes=0)


def holding(how: str, mebibytes: int, asked_mebibytes: int | None, mark: str = "-") -> JobSpecification:
    """A job whose task holds so much and has asked for so much."""
    resources = TaskResources(cpus=1.0, memory_gib=None if asked_mebibytes is None else asked_mebibytes / 1024)
    command = Command((sys.executable, str(GREEDY), how, str(mebibytes), mark))
    return replace(job(command), resources=resources)


def placed(mebibytes: int) -> tuple[TaskPlacement, ...]:
    return (placement()._replace(mebibytes=mebibytes),)


async def start(watched: Watched, workload: str, holds: JobSpecification, mebibytes: int, home: Path) -> None:
    """Returns when it holds its memory."""
    await watched.executor.execute(order(holds, workload=workload, placements=placed(mebibytes)))
    await watched.phase(key(workload), AttemptPhase.RUNNING)
    await until_text(home / f"logs/{workload}/1/train-0.log", "holds")


@pytest.mark.usefixtures("ray_address")
def test_a_task_that_takes_more_than_it_asked_for_ends_with_all_its_processes_and_others_go_on(home: Path) -> None:
    """Beside it go on: one whose forks share what each of them seems to have, one that left its memory open, and one from which
    memory was taken back that it had filled."""
    beside = {
        "shares": holding("forks", 96, 192),
        "open": holding("alone", 96, None),
        "retuned": holding("alone", 192, 64),
    }

    async def scenario() -> None:
        async with running(make_executor(home, memory=QUICK)) as watched:
            for workload, holds in beside.items():
                await start(watched, workload, holds, 256 if workload == "retuned" else 64, home)
            await watched.executor.resize(key("retuned"), placed(64), 1)
            await watched.until(lambda status: status.key == key("retuned") and status.revision == 1)
            # Neither of its two processes alone has as much as it may have.
            greedy = holding("children", 192, 128, "86400.6601")
            await watched.executor.execute(order(greedy, workload="greedy", placements=placed(128)))
            ended = await watched.phase(key("greedy"), AttemptPhase.FAILED)
            start_of_reason, _, end_of_reason = ended.reason.partition(": it used ")
            assert start_of_reason == "task 0 of job train on machine m0: out of memory"
            used, _, rest = end_of_reason.partition(" GiB, ")
            assert 0.125 < float(used) <= 0.25
            assert rest == "its limit is 0.125 GiB (--memory-gib)"
            assert ended.exit_code == 137
            assert (await watched.log(key("greedy"))).endswith(f"topmast: {ended.reason.partition('m0: ')[2]}\n")
            assert not processes_with("86400.6601")
            phases = {status.key.workload: status.phase for status in watched.executor.statuses()}
            assert {phases.pop(workload) for workload in list(phases) if workload in beside} == {AttemptPhase.RUNNING}

    asyncio.run(scenario())
    assert not WatchedTasks(home).folder.exists(), "the last task has removed it"


@pytest.mark.usefixtures("ray_address")
def test_the_kernel_would_end_a_task_and_what_it_starts_before_its_runner_or_a_tier(home: Path) -> None:
    async def scenario() -> None:
        async with running(make_executor(home)) as watched:
            await start(watched, "w", holding("children", 2, 64, "86400.6602"), 64, home)
            assert "score 1000" in await watched.log(key())
            (main,) = processes_with("86400.6602")
            for process in (*watchers_of(main), psutil.Process()):
                assert score_of(process.pid) < score_of(main.pid)

    asyncio.run(scenario())


def score_of(process_id: int) -> int:
    return int(Path(f"/proc/{process_id}/oom_score_adj").read_text())


def has_left(file: Path, mebibytes: int) -> None:
    written = file.with_suffix(".new")
    written.write_text(f"MemTotal: 99999999 kB\nMemAvailable: {mebibytes * 1024} kB\n")
    written.replace(file)


@pytest.mark.usefixtures("ray_address")
def test_a_machine_that_is_short_of_memory_ends_the_task_that_exceeds_most_what_it_was_given(
    home: Path, tmp_path: Path
) -> None:
    """Though another one uses more. Then it has its reserve again, and no other task ends."""
    meminfo = tmp_path / "meminfo"
    has_left(meminfo, 4096)
    settings = MemorySettings(enforced=False, look_every_s=0.1, reserve_bytes=512 * 2**20, machine=meminfo)

    async def scenario() -> None:
        async with running(make_executor(home, memory=settings)) as watched:
            await start(watched, "large", holding("alone", 192, 512), 512, home)
            await start(watched, "greedy", holding("alone", 96, 16), 16, home)
            has_left(meminfo, 448)
            ended = await watched.phase(key("greedy"), AttemptPhase.FAILED)
            has_left(meminfo, 4096)
            assert ended.reason.startswith(
                "task 0 of job train on machine m0: out of memory: the machine had 0.438 GiB left, less than its reserve of"
                " 0.5 GiB; of its tasks this one exceeded most what it was given: it used 0."
            )
            assert ended.reason.endswith(" and has 0.0156 GiB")

    asyncio.run(scenario())


@pytest.mark.usefixtures("ray_address")
def test_a_command_beside_a_task_uses_the_memory_of_the_task(home: Path) -> None:
    """Which is modest itself. Nothing of either is left when both together were above the limit."""
    command = SessionCommand((sys.executable, str(GREEDY), "children", "192", "86400.6603"))
    target = SessionTarget(key().workload, key().attempt, None, 0)

    async def scenario() -> None:
        async with running(make_executor(home, memory=QUICK)) as watched:
            await start(watched, "w", holding("alone", 16, 128, "86400.6604"), 128, home)
            async with watched.executor.session(target, command) as link:
                with suppress(SessionImpossible):
                    # It was killed, or is told that the task has ended: whichever is first.
                    async for frame in link.outputs():
                        assert frame.kind is not FrameKind.EXIT_CODE or number_of(frame) == 137
                ended = await watched.phase(key(), AttemptPhase.FAILED)
            assert ended.reason.startswith("task 0 of job train on machine m0: out of memory: it used ")
            in_commands = (
                " of that in commands that exec or run -it started beside it), its limit is 0.125 GiB (--memory-gib)"
            )
            assert ended.reason.endswith(in_commands), "the task itself is not to blame"
            assert ended.exit_code == 137
            assert not processes_with("86400.6603")
            assert not processes_with("86400.6604")

    asyncio.run(scenario())


def test_a_task_of_which_the_kernel_killed_a_process_at_its_limit_was_out_of_memory(tmp_path: Path) -> None:
    """Not when it came to its end all the same."""
    (tmp_path / "memory.events").write_text("oom 1\noom_kill 1\n")
    group = ControlGroup(tmp_path)
    log = tmp_path / "log"
    log.write_text("step 7\n")

    def ended(exit_code: int, settings: MemorySettings = QUICK, *, beside: int | None = None) -> MemoryEnd:
        asked = TaskResources(cpus=1.0, memory_gib=3.0)
        watch = MemoryWatch(tmp_path, settings, "w/1/train/0", asked, log)
        if beside is not None:
            watch.count_beside(beside)
        watch.limit_bytes(placement())
        return asyncio.run(watch.end(exit_code, group))

    killed = "out of memory: the kernel killed a process of it at its limit of 3 GiB (--memory-gib)"
    assert ended(1) == MemoryEnd(out_of_memory=killed)
    assert log.read_text() == f"step 7\ntopmast: {killed}\n"
    assert ended(0) == MemoryEnd()
    of_somebody = "a process of it, or of a command that exec or run -it started beside it, at its limit"
    assert of_somebody in ended(1, beside=os.getpid()).out_of_memory, "both are in the group"
    assert ended(1, replace(QUICK, enforced=False)) == MemoryEnd(), "it had no limit"


def test_an_attempt_does_not_go_on_without_a_task_that_took_too_much_memory() -> None:
    """It would get the task again, and lose it again."""
    killed = RunnerReport(1, RunnerState.ENDED, exit_code=-9)
    assert Member(placement(), None, killed).was_killed
    assert not Member(placement(), None, replace(killed, out_of_memory="out of memory")).was_killed


def test_one_runner_of_a_machine_watches_until_it_leaves(tmp_path: Path) -> None:
    first, second = WatchedTasks(tmp_path), WatchedTasks(tmp_path)
    entry = WatchedTask("one", 11, 1, 12, 0.0, 5, 5)
    first.enter(entry)
    second.enter(replace(entry, name="two", reaper_id=21))
    assert [task.name for task in second.entries()] == ["one", "two"]
    assert first.lead()
    assert not second.lead()
    first.say_why(21, "because")
    assert first.leave(11) == ""
    assert second.lead()
    assert second.leave(21) == "because"
    assert not second.folder.exists()


def test_a_score_is_lowered_as_far_as_the_kernel_allows_and_never_raised(tmp_path: Path) -> None:
    own = tmp_path / "oom_score_adj"
    assert lower_own_score(-500, own) is None
    own.write_text("1000\n")
    assert lower_own_score(-500, own) == -500
    assert lower_own_score(0, own) == -500
    assert own.read_text() == "-500\n"
    now = score_of(os.getpid())
    assert lower_own_score(1000) == now
