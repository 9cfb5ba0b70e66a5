"""Tasks in environments of their own: built before they start, once on a machine, and told of when that fails."""

import asyncio
import os
import venv
from dataclasses import replace
from pathlib import Path

import pytest

from domain.runtime_environment import RuntimeEnvironment
from domain.workload import Command, JobSpecification, PythonCallable
from services.execution.environment_cache import place_of
from services.execution.executor import AttemptPhase
from services.execution.prepared_environment import PreparedEnvironment
from tests.execution.live import (
    become_true,
    make_executor,
    processes_with,
    running,
    until_processes,
    wait_until_gone,
    watchers_of,
)
from tests.execution.orders import job, key, order, shell
from tests.execution.small_wheel import write_wheel

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("ray_address")]

DOCKER = """#!/bin/bash
if [ "$1" = rm ]; then kill -9 $(cat {folder}/container); exit; fi
echo "$*" > {folder}/ran
setsid -f bash -c 'echo $$ > {folder}/container; exec "$@"' -- "${{@: -2}}"
while :; do read -t 60 -r _ <> <(:); done
"""
SHOW = "import sys; print('runs in', sys.prefix, sys.executable)"


def within(job: JobSpecification, **runtime: str) -> JobSpecification:
    return replace(job, runtime=RuntimeEnvironment(**runtime))


def test_requirements_are_installed_once_before_the_tasks_start(home: Path, tmp_path: Path) -> None:
    """On top of what tasks see otherwise; the next attempt finds them there."""
    requirements = write_wheel(tmp_path / "wheels", "kumquat", "def peel(): return 'peeled'")
    program = "import kumquat, numpy, topmast.training, sys; print(kumquat.peel(), sys.prefix)"
    two = within(job(Command(("python", "-c", program)), tasks=2), requirements=requirements)
    function = within(job(PythonCallable("kumquat:peel")), requirements=requirements)

    async def scenario() -> list[str]:
        async with running(make_executor(home)) as watched:
            await watched.executor.execute(order(two))
            await watched.end(key())
            for attempt, again in ((2, two), (3, function)):
                await watched.executor.execute(order(again, attempt=attempt))
                await watched.end(key(attempt=attempt))
            ends = [status.phase for status in watched.published if status.ended]
            assert ends == [AttemptPhase.COMPLETED] * 3
            return [await watched.log(key(attempt=attempt)) for attempt in (1, 2, 3)]

    first, second, third = asyncio.run(scenario())
    (built,) = [entry for entry in (home / "environments").iterdir() if entry.is_dir()]
    assert first.count(f"peeled {built / 'venv'}") == 2
    assert first.count("Successfully installed kumquat-1.0") == 1
    assert second == f"peeled {built / 'venv'}\n" * 2
    assert third == ""


def test_an_environment_that_cannot_be_built_fails_the_attempt(home: Path, tmp_path: Path) -> None:
    """None of the gang starts; the reason is short, and the log has all."""
    requirements = f"kumquat @ {(tmp_path / 'kumquat-1.0-py3-none-any.whl').as_uri()}\n"
    gang = [within(shell("echo started", "needs"), requirements=requirements), shell("echo started", "plain")]

    async def scenario() -> tuple[str, str]:
        async with running(make_executor(home)) as watched:
            await watched.executor.execute(order(*gang))
            ended = await watched.end(key())
            assert ended.phase is AttemptPhase.FAILED
            assert ended.started_s == 0.0
            return ended.reason, await watched.log(key())

    reason, log = asyncio.run(scenario())
    begin = "task 0 of job needs on machine m0: environment could not be built: "
    assert reason.startswith(begin)
    assert reason.endswith(f"No such file or directory: '{tmp_path / 'kumquat-1.0-py3-none-any.whl'}'")
    assert "Could not install packages" in reason
    assert reason.removeprefix(begin).split("; ")[-1] == log.strip().splitlines()[-1]
    assert log.count(" -m pip ") == 1
    assert "started" not in log


def test_tasks_run_with_the_interpreter_that_is_asked_for(home: Path, tmp_path: Path) -> None:
    """Also where it is not called `python`."""
    venv.create(tmp_path / "own", symlinks=True)
    interpreter = tmp_path / "own" / "bin" / "interpreter"
    (tmp_path / "own" / "bin" / "python").rename(interpreter)
    (tmp_path / "own" / "bin" / "python3").unlink()
    jobs = [
        within(job(Command(("python", "-c", SHOW)), "a"), python=str(interpreter)),
        within(job(PythonCallable("this:s.isidentifier"), "b"), python=str(interpreter)),
    ]

    async def scenario() -> str:
        async with running(make_executor(home)) as watched:
            await watched.executor.execute(order(*jobs))
            await watched.phase(key(), AttemptPhase.COMPLETED)
            missing = within(job(Command(("python", "-c", SHOW))), python=str(tmp_path / "nowhere"))
            await watched.executor.execute(order(missing, attempt=2))
            ended = await watched.end(key(attempt=2))
            assert f"could not be built: there is no interpreter {tmp_path}/nowhere on this machine" in ended.reason
            return await watched.log(key())

    assert f"runs in {tmp_path / 'own'} {interpreter}\n" in asyncio.run(scenario())


def test_a_stop_ends_what_is_being_built(home: Path, tmp_path: Path) -> None:
    mark = f"environment.{tmp_path.name}"
    slow = tmp_path / "slow"
    slow.write_text(f"#!/bin/bash\nexec -a sleep-{mark} sleep 86400\n")
    slow.chmod(0o755)

    async def scenario() -> None:
        async with running(make_executor(home)) as watched:
            await watched.executor.execute(order(within(shell("echo started"), python=str(slow))))
            await until_processes(f"sleep-{mark}", 1)
            await watched.executor.stop(key(), 30.0)
            ended = await watched.end(key())
            assert (ended.phase, ended.reason) == (AttemptPhase.STOPPED, "it was asked to stop")
            assert ended.started_s == 0.0

    asyncio.run(scenario())
    wait_until_gone(f"sleep-{mark}")


def test_an_environment_that_is_never_ready_fails_the_attempt_in_time(home: Path, tmp_path: Path) -> None:
    """Nothing of what builds it is left, and what it said last is told."""
    mark = f"environment.{tmp_path.name}"
    hangs = tmp_path / "hangs"
    hangs.write_text(f"#!/bin/bash\necho asking the index >&2\nexec -a sleep-{mark} sleep 86400\n")
    hangs.chmod(0o755)

    async def scenario() -> None:
        async with running(make_executor(home, build_timeout_s=3.0)) as watched:
            await watched.executor.execute(order(within(shell("echo started"), python=str(hangs))))
            ended = await watched.phase(key(), AttemptPhase.FAILED)
            assert ended.reason == (
                "task 0 of job train on machine m0: environment could not be built: it was not ready within 3 s"
                " (environments.build_timeout_real_s in scheduler.yaml): asking the index"
            )

    asyncio.run(scenario())
    wait_until_gone(f"sleep-{mark}")


def test_a_container_ends_with_its_task_whatever_is_killed(home: Path, tmp_path: Path) -> None:
    """With a stand-in for Docker: its containers, too, are no descendants of the program that starts them."""
    engine = tmp_path / "docker"
    engine.write_text(DOCKER.format(folder=tmp_path))
    engine.chmod(0o755)
    place = place_of(home, RuntimeEnvironment(image="here:1"), "w/1")
    with place.making():
        place.folder.mkdir(parents=True)
        place.finish(PreparedEnvironment(engine=str(engine), image="here:1"))
    mark = f"86400.{os.getpid()}"

    async def scenario() -> None:
        async with running(make_executor(home)) as watched:
            await watched.executor.execute(order(within(job(Command(("sleep", mark))), image="here:1")))
            await watched.phase(key(), AttemptPhase.RUNNING)
            await become_true(lambda: any(one.name() == "sleep" for one in processes_with(mark)))
            (client,) = [one for one in processes_with(str(engine)) if one.cmdline()[0].endswith("bash")]
            reaper, _guard, runner = watchers_of(client)
            runner.suspend()
            reaper.kill()
            runner.kill()
            assert (await watched.end(key())).phase is AttemptPhase.LOST

    asyncio.run(scenario())
    wait_until_gone(f"sleep {mark}")
    ran = (tmp_path / "ran").read_text().split()
    assert ran[:3] == ["run", "--rm", "--name"]
    assert {"--init", "TOPMAST_WORKLOAD", "RANK", f"{home}/checkpoints/w:{home}/checkpoints/w"} <= set(ran)
    assert ran[-3:] == ["here:1", "sleep", mark]
