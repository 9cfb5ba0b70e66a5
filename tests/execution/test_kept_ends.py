"""What a task did while nobody could record it is known afterwards, and is not done again."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from domain.workload import Command, Emulated
from services.execution.control_group import Holding, how_held
from services.execution.executor import AttemptOrder, AttemptPhase, AttemptStatus
from services.execution.gang_outcome import GangOutcome
from services.execution.runner_messages import RunnerReport, RunnerState, StopCause
from services.execution.settling import past_outcome
from services.execution.task_journal import JournaledTask, TaskJournal
from services.execution.task_paths import TaskPaths
from tests.execution.conftest import clear_away, cluster_of
from tests.execution.live import (
    Watched,
    become_true,
    make_executor,
    processes_with,
    running,
    until_processes,
    wait_until_gone,
    watchers_of,
)
from tests.execution.orders import job, key, order, placement, shell
from tests.execution.test_containment import DETACHED

BEGUN = '{"started_s": 5.0, "afterwards": ["docker", "rm"]}\n'
BY_ITSELF = '{"exit_code": 0, "ended_real_s": 9.0}\n'


def has_ended(home: Path, of: AttemptOrder) -> bool:
    """Whether the runner of its first task has kept the end of that."""
    journaled = TaskJournal.of(TaskPaths(home), of, of.placements[0]).read()
    return journaled is not None and journaled.report is not None


@pytest.mark.live
@pytest.mark.usefixtures("ray_address")
def test_ends_that_nobody_recorded_are_found_when_all_that_knew_them_is_gone(home: Path) -> None:
    """Two tasks that succeed, one that fails, and one of two that has not ended; then a service that finds nothing but its disk."""
    counting = f"echo ran >> {home.parent}/ran"
    done = order(shell(counting, tasks=2), workload="done")
    failing = order(shell("echo no luck; exit 3"), workload="failing")
    half = order(shell("exit 0", "first"), shell("exec sleep 86400.8801", "second"), workload="half")

    async def before() -> None:
        executor = make_executor(home)
        watched = Watched(executor)
        await executor.start("127.0.0.1:9")
        for one in (done, failing, half):
            await executor.execute(one)
        await watched.end(done.key)
        await watched.end(failing.key)
        await until_processes("86400.8801", 1)
        await become_true(lambda: has_ended(home, half))
        await executor.close()
        # All of Ray that belongs to it: nobody is left who could say how they ended.
        await asyncio.to_thread(clear_away, cluster_of(home))
        await asyncio.to_thread(wait_until_gone, "86400.8801")

    async def afterwards() -> list[AttemptStatus]:
        async with running(make_executor(home)) as watched:
            for one in (replace(done, started_s=1000.0), failing, replace(half, started_s=1000.0)):
                await watched.executor.execute(one)
            return [await watched.end(one.key) for one in (done, failing, half)]

    asyncio.run(before())
    completed, failed, lost = asyncio.run(afterwards())
    assert (home.parent / "ran").read_text() == "ran\nran\n"
    assert (completed.phase, completed.reason, completed.exit_code) == (AttemptPhase.COMPLETED, "", None)
    assert completed.started_s > 1000.0, "when it did start"
    assert (failed.phase, failed.exit_code) == (AttemptPhase.FAILED, 3)
    assert failed.reason == "task 0 of job train on machine m0: exit code 3: no luck"
    assert (lost.phase, lost.reason) == (AttemptPhase.LOST, "it was running before, and nothing of it was found")
    assert not list(home.glob("tasks/*/*")), "they go with the attempt"


@pytest.mark.live
@pytest.mark.usefixtures("ray_address")
def test_no_attempt_meets_what_an_older_one_left_whatever_was_killed_and_a_new_manager_ends_it(home: Path) -> None:
    """Of each of two attempts the runner, the guard and the reaper are killed in one moment. One process of each has detached itself from all
    that; where there are control groups, from its environment, too."""
    how = "cleared" if how_held() is not Holding.NOTHING else "kept"
    detaching = [job(Command((sys.executable, str(DETACHED), how, f"86400.880{one}", "600"))) for one in (2, 3)]
    # The next attempt says what it meets.
    placements = (placement()._replace(cluster=cluster_of(home)),)
    looking = shell("pgrep -f 86400.880[2] > /dev/null && exit 9; exit 0")

    async def killed(watched: Watched, of: AttemptOrder, mark: str) -> None:
        await watched.executor.execute(of)
        await until_processes(f"time.sleep(600) {mark}", 1)
        # The oldest: what detaches itself is the same program for a moment.
        family = [one for one in processes_with(mark) if str(DETACHED) in one.cmdline()]
        main = min(family, key=lambda one: (one.create_time(), one.pid))
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for process in watchers_of(main):
                os.kill(process.pid, number)

    async def scenario() -> None:
        first = make_executor(home)
        watched = Watched(first)
        await first.start("127.0.0.1:9")
        await killed(watched, order(detaching[0], placements=placements), "86400.8802")
        lost = await watched.phase(key(), AttemptPhase.LOST)
        assert lost.reason.startswith("task 0 of job train on machine m0 was lost")
        assert not processes_with("time.sleep(600) 86400.8802"), "it is over when it is said to be"
        await first.execute(order(looking, attempt=2, placements=placements))
        await watched.phase(key("w", 2), AttemptPhase.COMPLETED)
        # What nobody is there to see.
        await killed(watched, order(detaching[1], workload="v", placements=placements), "86400.8803")
        await first.close()
        async with running(make_executor(home)) as second:
            assert not processes_with("86400.8803")
            assert [status.key for status in second.executor.statuses()] == [key("w", 2)]

    try:
        asyncio.run(scenario())
    finally:
        for process in [one for mark in ("86400.8802", "86400.8803") for one in processes_with(mark)]:
            with suppress(psutil.NoSuchProcess):
                process.kill()


@pytest.mark.parametrize(
    ("written", "all_here", "known"),
    [
        ("", True, None),
        (BEGUN, True, None),
        (BEGUN + BY_ITSELF, True, 0),
        (BEGUN + BY_ITSELF, False, None),
        (BEGUN + BY_ITSELF.replace("0,", "-9,"), True, None),
        (BEGUN + BY_ITSELF[:20], True, None),
        (BEGUN + "[1]\n\x00\n" + BY_ITSELF, True, 0),
        (BY_ITSELF, True, None),
    ],
    ids=["nothing", "begun", "by-itself", "not-stored", "killed", "half-a-line", "rubbish", "never-begun"],
)
def test_an_end_is_known_only_where_nothing_of_it_is_missing(
    tmp_path: Path, written: str, all_here: bool, known: int | None
) -> None:
    journal = TaskJournal(tmp_path / "journal")
    journal.file.write_text(written)
    journaled = journal.read()
    end = journaled.end(all_here=all_here) if journaled is not None else None
    assert (end.exit_code if end is not None else None) == known
    assert end is None or (end.state, end.started_s, end.ended_real_s) == (RunnerState.ENDED, 5.0, 9.0)


def test_what_the_runner_says_of_an_end_counts_until_the_task_is_begun_again(tmp_path: Path) -> None:
    journal = TaskJournal(tmp_path / "ends" / "train-0.jsonl")
    assert journal.read() is None
    journal.begin(5.0, ["docker", "rm"])
    report = RunnerReport(7, RunnerState.ENDED, 5.0, -15, "told", StopCause.ASKED, True, 9.5, "", 3.25)
    journal.file.write_text(journal.file.read_text() + BY_ITSELF)
    journal.end(report)
    journaled = journal.read()
    assert journaled == JournaledTask(5.0, ("docker", "rm"), report, 0, 9.0)
    assert journaled.end(all_here=False) == report
    journal.begin(11.0, [])
    assert journal.read() == JournaledTask(11.0)


def test_an_attempt_of_which_only_journals_are_left_ended_as_they_say_if_all_of_them_do() -> None:
    made = order(shell("true", tasks=2), job(Emulated(60.0), "emulated"))
    placements = list(made.placements[:2])
    train = placements[0].job
    good = JournaledTask(100.0, (), RunnerReport(1, RunnerState.ENDED, 100.0, 0, ended_real_s=1.0))
    bad = JournaledTask(100.0, (), RunnerReport(1, RunnerState.ENDED, 100.0, 3, ended_real_s=1.0))

    def outcome(*tasks: JournaledTask, now_s: float = 1000.0) -> GangOutcome | None:
        journaled = {(train, number): task for number, task in enumerate(tasks)}
        return past_outcome(made, placements, journaled, now_s, all_here=True)

    assert outcome(good, good) == GangOutcome(AttemptPhase.COMPLETED)
    assert outcome(good) is None
    assert outcome(good, good, now_s=159.0) is None, "nobody looked after its emulated job"
    stopped = RunnerReport(1, RunnerState.ENDED, 100.0, 0, stop_cause=StopCause.ASKED, stopped_early=True)
    assert outcome(good, JournaledTask(100.0, (), stopped)) is None, "it goes on in another attempt"
    failed = outcome(good, bad)
    assert failed is not None
    assert (failed.phase, failed.exit_code, failed.culprit) == (AttemptPhase.FAILED, 3, placements[1])
