"""Attempts as real processes on a local Ray with emulated machines."""

import asyncio
import math
import os
import signal
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from domain.identifiers import AttemptNumber, JobName, WorkloadId
from domain.placement import AttemptKey
from domain.plan import TaskName
from domain.workload import Command, Emulated, PythonCallable
from services.execution.executor import (
    AttemptPhase,
    ImpossibleOrder,
    LogRequest,
    MachineStatus,
    StaleOrder,
    TaskReference,
    TaskReport,
    UnknownAttempt,
)
from services.security.secret_sessions import SessionTokens
from tests.execution.conftest import MACHINES
from tests.execution.live import (
    Watched,
    make_executor,
    processes_with,
    running,
    until_processes,
    until_text,
    wait_until_gone,
    watchers_of,
)
from tests.execution.orders import job, key, order, placement, shell

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("ray_address")]

SLEEP = "exec sleep 86400.{mark}"
"""A process that is found again by the mark in its command line."""


def variables(log: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in log.splitlines() if "=" in line)


def test_every_task_gets_its_own_environment(home: Path) -> None:
    """Two tasks on m0 and one on m1, with the GPUs and CPUs of the plan; the job's own variables on top."""
    script = job(Command(("env",)), tasks=3, environment=(("LEARNING_RATE", "0.1"), ("OMP_NUM_THREADS", "7")))
    placements = (
        placement(task=0, gpus=(2, 3), cpus=4.0),
        placement(task=1, gpus=(0,), cpus=2.5),
        placement(task=2, machine="m1", cpus=0.5),
    )
    plain = replace(script, environment=())

    async def scenario() -> list[dict[str, str]]:
        async with running(make_executor(home), "127.0.0.1:4711") as watched:
            await watched.executor.execute(order(plain, placements=placements))
            await watched.executor.execute(order(script, workload="own", placements=placements[:1]))
            await watched.phase(key(), AttemptPhase.COMPLETED)
            await watched.phase(key("own"), AttemptPhase.COMPLETED)
            logs = [await watched.log(key(), task) for task in range(3)]
            return [variables(log) for log in [*logs, await watched.log(key("own"))]]

    zero, one, two, own = asyncio.run(scenario())
    ranks = [(task["RANK"], task["LOCAL_RANK"], task["WORLD_SIZE"], task["TOPMAST_TASK"]) for task in (zero, one, two)]
    assert ranks == [("0", "0", "3", "0"), ("1", "1", "3", "1"), ("2", "0", "3", "2")]
    assert [task["CUDA_VISIBLE_DEVICES"] for task in (zero, one, two)] == ["2,3", "0", ""]
    assert [task["OMP_NUM_THREADS"] for task in (zero, one, two, own)] == ["4", "2", "1", "7"]
    assert own["LEARNING_RATE"] == "0.1"
    assert len({(task["MASTER_ADDR"], task["MASTER_PORT"]) for task in (zero, one, two)}) == 1
    assert (zero["TOPMAST_WORKLOAD"], zero["TOPMAST_ATTEMPT"], zero["TOPMAST_JOB"]) == ("w", "1", "train")
    assert zero["TOPMAST_SESSION_ADDRESS"] == "127.0.0.1:4711"
    assert zero["TOPMAST_CHECKPOINT_DIRECTORY"] == str(home / "checkpoints" / "w")
    assert not [name for name in zero if name.startswith("RAY_")]


def test_when_one_task_fails_the_others_are_stopped(home: Path) -> None:
    async def scenario() -> str:
        async with running(make_executor(home)) as watched:
            jobs = (shell("sleep 0.2; echo out of memory; exit 3"), shell(SLEEP.format(mark="1111"), "other", tasks=2))
            await watched.executor.execute(order(*jobs))
            await watched.phase(key(), AttemptPhase.RUNNING)
            failed = await watched.phase(key(), AttemptPhase.FAILED)
            assert not processes_with("86400.1111")
            return failed.reason

    assert asyncio.run(scenario()) == "task 0 of job train on machine m0: exit code 3: out of memory"


@pytest.mark.parametrize(
    ("entry_point", "reason"),
    [
        (Command(("no-such-program",)), "could not start: .* No such file or directory: 'no-such-program'"),
        (PythonCallable("no_such_module:train"), "exit code 2: topmast: there is no module 'no_such_module' here.*"),
    ],
    ids=["command", "callable"],
)
def test_what_cannot_be_started_fails(home: Path, entry_point: Command | PythonCallable, reason: str) -> None:
    async def scenario() -> str:
        async with running(make_executor(home)) as watched:
            await watched.executor.execute(order(job(entry_point)))
            return (await watched.phase(key(), AttemptPhase.FAILED)).reason

    published = asyncio.run(scenario())
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(published)


def test_a_task_that_ignores_the_stop_is_killed_with_all_its_descendants(home: Path) -> None:
    stubborn = f"trap '' TERM; (setsid sleep 86400.2222 &) ; sleep 86400.2222 & {SLEEP.format(mark='2222')}"

    async def scenario() -> None:
        async with running(make_executor(home)) as watched:
            await watched.executor.execute(order(shell(stubborn)))
            await watched.phase(key(), AttemptPhase.RUNNING)
            await until_processes("86400.2222", 3)
            await watched.executor.stop(key(), 86_400.0)
            await watched.phase(key(), AttemptPhase.STOPPING)
            await watched.executor.stop(key(), 0.3)
            stopped = await watched.phase(key(), AttemptPhase.STOPPED)
            assert stopped.reason.endswith("killed by signal 9 (SIGKILL)")
            assert not processes_with("86400.2222")

    asyncio.run(scenario())


def test_a_runner_that_is_killed_takes_its_process_along_and_the_attempt_is_lost(home: Path) -> None:
    async def scenario() -> str:
        async with running(make_executor(home)) as watched:
            jobs = (shell(SLEEP.format(mark="3333")), shell(SLEEP.format(mark="3334"), "other"))
            await watched.executor.execute(order(*jobs))
            await watched.phase(key(), AttemptPhase.RUNNING)
            await until_processes("86400.3333", 1)
            *_, runner = watchers_of(processes_with("86400.3333")[0])
            os.kill(runner.pid, signal.SIGKILL)
            lost = await watched.phase(key(), AttemptPhase.LOST)
            await asyncio.to_thread(wait_until_gone, "86400.333")
            return lost.reason

    assert asyncio.run(scenario()).startswith("task 0 of job train on machine m0 was lost")


def test_a_task_that_is_not_allowed_to_run_on_stops_itself_and_the_attempt_is_lost(home: Path) -> None:
    held_until_s = math.inf

    async def scenario() -> str:
        nonlocal held_until_s
        loop = asyncio.get_running_loop()
        async with running(make_executor(home, allowed_s=lambda: min(8.0, held_until_s - loop.time()))) as watched:
            await watched.executor.execute(order(shell(SLEEP.format(mark="5555"), tasks=2)))
            await watched.phase(key(), AttemptPhase.RUNNING)
            held_until_s = loop.time()
            lost = await watched.phase(key(), AttemptPhase.LOST)
            await asyncio.to_thread(wait_until_gone, "86400.5555")
            return lost.reason

    assert asyncio.run(scenario()).endswith("stopped itself: no lease of its cluster allowed it to run on")


def test_a_reaper_that_is_killed_takes_its_process_along(home: Path) -> None:
    async def scenario() -> str:
        async with running(make_executor(home)) as watched:
            await watched.executor.execute(order(shell(SLEEP.format(mark="4444"))))
            await watched.phase(key(), AttemptPhase.RUNNING)
            await until_processes("86400.4444", 1)
            reaper, *_ = watchers_of(processes_with("86400.4444")[0])
            os.kill(reaper.pid, signal.SIGKILL)
            failed = await watched.phase(key(), AttemptPhase.FAILED)
            await asyncio.to_thread(wait_until_gone, "86400.4444")
            return failed.reason

    assert "the process that watched over it was killed" in asyncio.run(scenario())


def test_what_is_held_starts_when_the_hold_is_over(home: Path) -> None:
    async def scenario() -> None:
        async with running(make_executor(home)) as watched:
            made = order(shell("echo started"), hold=True)
            await watched.executor.execute(made)
            held = await watched.phase(key(), AttemptPhase.HELD)
            assert held.started_s == 0
            await watched.executor.execute(made)
            await watched.executor.execute(replace(made, hold=False))
            completed = await watched.phase(key(), AttemptPhase.COMPLETED)
            assert completed.started_s > 0
            assert await watched.log(key()) == "started\n"
            never = order(shell("echo never"), workload="v", hold=True)
            await watched.executor.execute(never)
            await watched.phase(key("v"), AttemptPhase.HELD)
            await watched.executor.stop(key("v"), 30.0)
            await watched.phase(key("v"), AttemptPhase.STOPPED)

    asyncio.run(scenario())


def test_a_newer_attempt_runs_only_when_the_older_one_is_gone(home: Path) -> None:
    """Each attempt would notice the other: a directory can be made only once."""
    alone = f"mkdir {home}/alone || exit 9; trap 'rmdir {home}/alone; exit 0' TERM; sleep 86400.5555 & wait"

    home.mkdir()

    async def scenario() -> None:
        async with running(make_executor(home)) as watched:
            await watched.executor.execute(order(shell(f"rmdir {home}/alone; {alone}")))
            await watched.phase(key(), AttemptPhase.RUNNING)
            await until_processes("sleep 86400.5555", 2)
            await watched.executor.execute(order(shell("echo second"), attempt=2))
            await watched.phase(key(attempt=2), AttemptPhase.COMPLETED)
            assert [status.phase for status in watched.published if status.key.attempt == 1][-1] is AttemptPhase.STOPPED
            first_end = next(
                place for place, status in enumerate(watched.published) if status.key == key() and status.ended
            )
            second_start = next(place for place, status in enumerate(watched.published) if status.key.attempt == 2)
            assert first_end < second_start
            assert not processes_with("86400.5555")
            with pytest.raises(StaleOrder):
                await watched.executor.execute(order(shell("echo first")))

    asyncio.run(scenario())


def test_places_that_do_not_exist_are_not_waited_for_forever(home: Path) -> None:
    async def scenario() -> None:
        async with running(make_executor(home, reservation_timeout_s=1.0)) as watched:
            nowhere = order(shell("true"), placements=(placement(machine="nowhere"),))
            await watched.executor.execute(nowhere)
            lost = await watched.phase(key(), AttemptPhase.LOST)
            assert lost.reason == "no place on nowhere within 1 s"
            await watched.executor.execute(replace(nowhere, key=key("v")))
            await watched.executor.stop(key("v"), 0.0)
            await watched.phase(key("v"), AttemptPhase.STOPPED)

    asyncio.run(scenario())


def test_an_elastic_job_grows_and_shrinks(home: Path) -> None:
    waiting = shell("trap 'echo released; exit 0' TERM; while :; do sleep 0.05; done", max_tasks=3)

    async def scenario() -> None:
        async with running(make_executor(home)) as watched:
            await watched.executor.execute(order(waiting))
            await watched.phase(key(), AttemptPhase.RUNNING)
            await watched.executor.resize(key(), tuple(placement(task=task) for task in range(3)), 1)
            await until_text(home / "tasks/w/1/train-0/task.json", '"world_size": 3')
            await watched.executor.resize(key(), (placement(cpus=3.0), placement(task=2)), 2)
            await until_text(home / "logs/w/1/train-1.log", "released")
            await until_text(home / "tasks/w/1/train-0/task.json", '"cpus": 3.0')
            await watched.until(lambda status: status.revision == 2)
            with pytest.raises(ImpossibleOrder, match="task 0 of job train is a base task"):
                await watched.executor.resize(key(), (placement(task=2),), 3)
            with pytest.raises(ImpossibleOrder, match="it cannot move"):
                await watched.executor.resize(key(), (placement(machine="m1"),), 3)
            assert [status.phase for status in watched.executor.statuses()] == [AttemptPhase.RUNNING]
            await watched.executor.stop(key(), 30.0)
            await watched.phase(key(), AttemptPhase.STOPPED)
            assert (await watched.log(key(), task=2)).endswith("released\n")

    asyncio.run(scenario())


async def grown_to_three(watched: Watched, mark: str) -> None:
    """The attempt runs with one base task and two flexible ones."""
    await watched.executor.execute(order(shell(SLEEP.format(mark=mark), max_tasks=3)))
    await watched.phase(key(), AttemptPhase.RUNNING)
    await watched.executor.resize(key(), tuple(placement(task=task) for task in range(3)), 1)
    await watched.until(lambda status: status.revision == 1)
    await until_processes(f"86400.{mark}", 3)


def process_of(mark: str, task: int) -> psutil.Process:
    (found,) = [
        process for process in processes_with(f"86400.{mark}") if process.environ().get("TOPMAST_TASK") == str(task)
    ]
    return found


def test_an_attempt_goes_on_without_a_flexible_task_that_is_killed(home: Path) -> None:
    """Also when the cluster manager restarts before the attempt is resized."""

    async def lose() -> None:
        watched = Watched(make_executor(home))
        await watched.executor.start("127.0.0.1:9")
        await grown_to_three(watched, "4441")
        process_of("4441", 1).kill()
        lost = await watched.until(lambda status: bool(status.lost_tasks))
        assert (lost.phase, lost.lost_tasks) == (AttemptPhase.RUNNING, (TaskName(JobName("train"), 1),))
        await watched.executor.close()

    async def scenario() -> None:
        await lose()
        async with running(make_executor(home)) as watched:
            found = await watched.until(lambda status: bool(status.lost_tasks))
            assert (found.phase, found.lost_tasks) == (AttemptPhase.RUNNING, (TaskName(JobName("train"), 1),))
            await watched.executor.resize(key(), (placement(), placement(task=2)), 2)
            changed = await watched.until(lambda status: status.revision == 2)
            assert (changed.phase, changed.lost_tasks) == (AttemptPhase.RUNNING, ())
            await until_text(home / "tasks/w/1/train-0/task.json", '"world_size": 2')
            await watched.executor.resize(key(), tuple(placement(task=task) for task in range(3)), 3)
            await watched.until(lambda status: status.revision == 3)
            await until_processes("86400.4441", 3)
            process_of("4441", 0).kill()
            ended = await watched.phase(key(), AttemptPhase.FAILED)
            assert ended.reason.startswith("task 0 of job train on machine m0: killed by signal 9")
            await asyncio.to_thread(wait_until_gone, "86400.4441")

    asyncio.run(scenario())


def test_a_part_of_flexible_tasks_only_is_complete_when_they_are_released(home: Path) -> None:
    async def scenario() -> None:
        async with running(make_executor(home)) as watched:
            here = order(shell(SLEEP.format(mark="4444"), max_tasks=3), placements=(placement(task=2),))
            await watched.executor.execute(here)
            await watched.phase(key(), AttemptPhase.RUNNING)
            await watched.executor.resize(key(), (), 1)
            left = await watched.phase(key(), AttemptPhase.COMPLETED)
            assert left.revision == 1
            await asyncio.to_thread(wait_until_gone, "86400.4444")

    asyncio.run(scenario())


def test_a_flexible_task_that_fails_by_itself_fails_the_attempt(home: Path) -> None:
    fails = 'if [ "$TOPMAST_TASK" = 2 ]; then exit 3; fi; sleep 86400.4442'

    async def scenario() -> None:
        async with running(make_executor(home)) as watched:
            await watched.executor.execute(order(shell(fails, max_tasks=3)))
            await watched.phase(key(), AttemptPhase.RUNNING)
            await watched.executor.resize(key(), (placement(), placement(task=2)), 1)
            failed = await watched.phase(key(), AttemptPhase.FAILED)
            assert failed.reason.startswith("task 2 of job train on machine m0: exit code 3")

    asyncio.run(scenario())


def test_what_the_others_do_when_one_was_killed_is_the_end_of_the_attempt(home: Path) -> None:
    """They may have all done without it, or one may break for it: then the killed one is to blame."""
    done = home / "done"
    waits = f'while [ ! -e {done} ]; do sleep 0.05; done; exit "$(cat {done})" #86400.4443'

    async def scenario(code: int, phase: AttemptPhase) -> str:
        done.unlink(missing_ok=True)
        async with running(make_executor(home)) as watched:
            await watched.executor.execute(order(shell(waits, max_tasks=2), attempt=1 + code))
            await watched.phase(key(attempt=1 + code), AttemptPhase.RUNNING)
            await watched.executor.resize(key(attempt=1 + code), (placement(), placement(task=1)), 1)
            await watched.until(lambda status: status.revision == 1)
            await until_processes("86400.4443", 2)
            process_of("4443", 1).kill()
            await watched.until(lambda status: bool(status.lost_tasks))
            # With its content from the beginning: whoever finds it reads it.
            (home / "written").write_text(str(code), encoding="utf-8")
            (home / "written").rename(done)
            return (await watched.phase(key(attempt=1 + code), phase)).reason

    assert asyncio.run(scenario(0, AttemptPhase.COMPLETED)) == ""
    reason = asyncio.run(scenario(1, AttemptPhase.FAILED))
    assert reason.startswith("task 1 of job train on machine m0: killed by signal 9")


def test_a_mixed_workload_is_complete_when_its_emulated_jobs_are_too(home: Path) -> None:
    async def scenario() -> None:
        async with running(make_executor(home)) as watched:
            await watched.executor.execute(order(shell("true"), job(Emulated(1.5), "read")))
            completed = await watched.phase(key(), AttemptPhase.COMPLETED)
            assert completed.since_s - completed.started_s >= 1.5
            await watched.executor.execute(order(shell("true"), job(Emulated(1e6), "read"), workload="v"))
            await watched.phase(key("v"), AttemptPhase.RUNNING)
            await watched.executor.stop(key("v"), 30.0)
            await watched.phase(key("v"), AttemptPhase.STOPPED)

    asyncio.run(scenario())


def test_what_was_running_and_is_not_found_is_lost(home: Path) -> None:
    async def scenario() -> None:
        async with running(make_executor(home)) as watched:
            await watched.executor.execute(order(shell("true"), progress=7.0, started_s=1000.0))
            lost = await watched.phase(key(), AttemptPhase.LOST)
            assert (lost.progress, lost.checkpoint_progress) == (7.0, 7.0)
            await watched.executor.stop(key("never-heard-of"), 30.0)
            await watched.phase(key("never-heard-of"), AttemptPhase.STOPPED)
            await watched.executor.execute(order(shell("true"), workload="never-heard-of"))
            assert len(watched.executor.statuses()) == 2

    asyncio.run(scenario())


def test_logs_are_read_in_part_and_followed_to_the_end(home: Path) -> None:
    script = f"for line in 1 2 3; do echo $line; done; while [ ! -e {home}/go ]; do sleep 0.05; done; echo last"

    async def scenario() -> None:
        async with running(make_executor(home)) as watched:
            await watched.executor.execute(order(shell(script, tasks=2)))
            await watched.phase(key(), AttemptPhase.RUNNING)
            await until_text(home / "logs/w/1/train-0.log", "3\n")
            followed = bytearray()
            request = LogRequest(WorkloadId("w"), job=JobName("train"), task=0, follow=True, tail_lines=2)
            async for chunk in watched.executor.read_logs(request):
                assert (chunk.attempt, chunk.job, chunk.task) == (1, "train", 0)
                followed += chunk.chunk
                (home / "go").touch()
            assert followed == b"2\n3\nlast\n"
            await watched.phase(key(), AttemptPhase.COMPLETED)
            both = [chunk.task async for chunk in watched.executor.read_logs(LogRequest(WorkloadId("w")))]
            assert both == [0, 1]
            with pytest.raises(UnknownAttempt):
                await watched.log(key(attempt=2))

    asyncio.run(scenario())


def test_machines_are_up_when_ray_offers_them(home: Path) -> None:
    async def scenario() -> None:
        async with running(make_executor(home)) as watched:
            assert watched.executor.machines() == tuple(MachineStatus(machine, True) for machine in MACHINES)

    asyncio.run(scenario())


def test_tasks_of_no_or_an_old_attempt_are_turned_away(home: Path) -> None:
    async def scenario() -> None:
        async with running(make_executor(home)) as watched:
            await watched.executor.execute(order(shell("true"), attempt=2))
            await watched.phase(key(attempt=2), AttemptPhase.COMPLETED)
            for number in (1, 2):
                with pytest.raises(StaleOrder):
                    await watched.executor.heartbeat(reference(home, number), TaskReport(1.0, 1.0))
            with pytest.raises(UnknownAttempt):
                await watched.executor.heartbeat(reference(home, 3), TaskReport(1.0, 1.0))

    asyncio.run(scenario())


def reference(home: Path, number: int) -> TaskReference:
    key = AttemptKey(WorkloadId("w"), AttemptNumber(number))
    return TaskReference(key, JobName("train"), 0, SessionTokens(str(home)).token_of(key))
