"""Gets a task's runtime environment ready before the task starts, and keeps it while the task runs."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
from asyncio.subprocess import Process
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pydantic import TypeAdapter

from domain.placement import TaskPlacement
from domain.runtime_environment import RuntimeEnvironment
from domain.workload import JobSpecification
from services.execution import task_reaper
from services.execution.entry_points import arguments_of
from services.execution.environment_builder import EnvironmentTask
from services.execution.environment_cache import place_of
from services.execution.prepared_environment import (
    ContainerPlace,
    PreparedEnvironment,
    TaskProgram,
    contained,
    entered,
)
from services.execution.reaper_process import start_reaper
from services.execution.task_environment import is_inherited
from services.execution.task_paths import last_lines
from services.execution.task_user import TaskUser
from services.security.secret_files import umask_of_tasks
from topmast_server.processes import module_command

BUILD_TIMEOUT_S = 1_800.0
"""In real seconds: a build that waits for an answer for ever would keep its machines for as long."""

_SHOWN_LINES = 2
_OF_INSTALLERS = ("CONDA_", "DOCKER_", "MAMBA_", "PIP_", "UV_", "XDG_")
_GPU_DEVICE = Path("/dev/nvidiactl")


class EnvironmentNotBuilt(Exception):
    """Why a task cannot be started; the whole story is in its log."""


class EnvironmentPreparation:
    """The environment of one task. Closed, it may be removed from the machine."""

    def __init__(self, runtime: RuntimeEnvironment, attempt: str) -> None:
        """`attempt`: those of one attempt find the same on a machine."""
        self._runtime = runtime
        self._attempt = attempt
        self._getting: asyncio.Task[PreparedEnvironment] | None = None
        self._builder: Process | None = None
        self._in_use: int | None = None
        self.folder: Path | None = None
        """What it is in, once it is ready."""

    async def ready(self, home: Path, log: Path, within_s: float) -> PreparedEnvironment:
        """What is ready now. May be asked again: the first one's time counts. Raises EnvironmentNotBuilt, also when that is over, and when
        it is closed meanwhile."""
        if self._getting is None:
            self._getting = asyncio.create_task(self._get(home, log, within_s))
        return await self._prepared()

    async def _prepared(self) -> PreparedEnvironment:
        if self._getting is None:
            raise EnvironmentNotBuilt("it was never made ready")
        await asyncio.wait({self._getting})
        if self._getting.cancelled():
            raise EnvironmentNotBuilt("it was asked to stop")
        return self._getting.result()

    async def program(
        self,
        job: JobSpecification,
        placement: TaskPlacement,
        environment: dict[str, str],
        directory: Path,
        shared: Sequence[Path],
        *,
        container: str,
        user: TaskUser | None,
    ) -> TaskProgram:
        """How the task is started in what is ready. Containers see the `shared` folders, are called after `container`, and run as the user."""
        prepared = await self._prepared()
        if not prepared.image:
            program = TaskProgram(arguments_of(job.entry_point, prepared.python), environment)
            return entered(prepared, program, dict(job.environment))
        program = TaskProgram(arguments_of(job.entry_point, "python"), environment)
        name = f"topmast-{hashlib.sha256(container.encode()).hexdigest()[:24]}"
        place = ContainerPlace(
            name,
            directory,
            shared,
            user=f"{os.getuid()}:{os.getgid()}" if user is None else f"{user.user_id}:{user.group_id}",
            with_gpus=await asyncio.to_thread(_GPU_DEVICE.exists),
            most_cpus=os.cpu_count() or 1,
        )
        return contained(prepared, program, place, placement, os.environ)

    async def close(self) -> None:
        """Ends what is being built, with all that was started for it, and gives the environment back."""
        if self._getting is not None:
            self._getting.cancel()
            await asyncio.wait({self._getting})
        if self._in_use is not None:
            os.close(self._in_use)
            self._in_use = None

    async def _get(self, home: Path, log: Path, within_s: float) -> PreparedEnvironment:
        place = place_of(home, self._runtime, self._attempt)
        while True:
            if not place.is_ready():
                await self._build_within(within_s, EnvironmentTask(self._runtime, place.folder), log)
            self._in_use = await asyncio.to_thread(place.use)
            prepared = place.prepared()
            if self._in_use is not None and prepared is not None:
                self.folder = place.folder
                return prepared

    async def _build_within(self, within_s: float, task: EnvironmentTask, log: Path) -> None:
        """The time for which another task's build of the same environment is waited for counts, too."""
        try:
            async with asyncio.timeout(within_s):
                await self._build(task, log)
        except TimeoutError:
            last = "; ".join(await asyncio.to_thread(last_lines, log, _SHOWN_LINES))
            sentence = f"it was not ready within {within_s:g} s (environments.build_timeout_real_s in scheduler.yaml)"
            told = f"{sentence}: {last}" if last else sentence
            raise EnvironmentNotBuilt(f"environment could not be built: {told}") from None

    async def _build(self, task: EnvironmentTask, log: Path) -> None:
        """In a process of its own, with whose end everything ends that it has started."""
        log.parent.mkdir(parents=True, exist_ok=True)
        said = TypeAdapter(EnvironmentTask).dump_json(task).decode()
        launch: task_reaper.Launch = {
            "arguments": module_command("services.execution.environment_builder", said),
            "environment": _environment_of_builder(),
            "directory": "/",
            "log": str(log),
        }
        mask = umask_of_tasks(os.environ)
        if mask is not None:
            # Tasks of another user run what is built; the folder that it is in is closed to all but them.
            launch["umask"] = mask
        self._builder = await start_reaper()
        try:
            answer = await _ask(self._builder, launch)
        finally:
            if self._builder.stdin is not None:
                # Its reaper ends all of it.
                self._builder.stdin.close()
            await self._builder.wait()
        if answer.get("exit_code") != 0:
            told = answer.get("failure") or "; ".join(await asyncio.to_thread(last_lines, log, _SHOWN_LINES))
            raise EnvironmentNotBuilt(f"environment could not be built: {told or 'what built it was killed'}")


async def _ask(reaper: Process, launch: task_reaper.Launch) -> dict[str, str | int]:
    """The reaper's last line."""
    answer: dict[str, str | int] = {}
    if reaper.stdin is not None and reaper.stdout is not None:
        with suppress(BrokenPipeError, ConnectionResetError):
            reaper.stdin.write(json.dumps(launch).encode() + b"\n")
            await reaper.stdin.drain()
        while line := await reaper.stdout.readline():
            answer = json.loads(line)
    await reaper.wait()
    return answer


def _environment_of_builder() -> dict[str, str]:
    """What tasks get of this process, and how installers are set up; not that of the job, for what it makes is used by others too."""
    own = {name: text for name, text in os.environ.items() if is_inherited(name) or name.startswith(_OF_INSTALLERS)}
    return own | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONUNBUFFERED": "1"}
