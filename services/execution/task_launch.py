"""What the reaper of a task is told to start: the program, as whom, where, and with which environment. Gets ready what that needs."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from domain.placement import TaskPlacement
from domain.workload import JobSpecification
from services.execution.entry_points import arguments_of
from services.execution.environment_preparation import EnvironmentPreparation
from services.execution.executor import AttemptOrder
from services.execution.prepared_environment import TaskProgram
from services.execution.runner_messages import TaskStart
from services.execution.task_environment import task_environment
from services.execution.task_journal import TaskJournal
from services.execution.task_paths import TaskPaths
from services.execution.task_reaper import Launch
from services.execution.task_user import TaskUser, task_user
from services.security.secret_files import umask_of_tasks

_OF_ENGINES = (
    "CONTAINER_HOST",
    "DBUS_SESSION_BUS_ADDRESS",
    "DOCKER_CERT_PATH",
    "DOCKER_CONFIG",
    "DOCKER_CONTEXT",
    "DOCKER_HOST",
    "DOCKER_TLS_VERIFY",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
)
"""For the program that runs containers: what is the service's own does not go into them."""


@dataclass(frozen=True, slots=True)
class TaskLaunch:
    """`program` is the same with what is run beside it and afterwards; `user` None: as the service runs."""

    launch: Launch
    program: TaskProgram
    user: TaskUser | None


@dataclass(frozen=True, slots=True)
class TaskPlace:
    """Where a task is on its machine."""

    order: AttemptOrder
    job: JobSpecification
    placement: TaskPlacement
    name: str
    directory: Path
    log: Path

    async def launch(self, start: TaskStart, preparation: EnvironmentPreparation | None) -> TaskLaunch:
        """Its folders are there, and its user's. Raises UserImpossible and OSError."""
        paths = TaskPaths(start.home)
        key = self.order.key
        user = task_user(start.tasks)
        checkpoints = paths.checkpoint_directory(key.workload)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        checkpoints.mkdir(parents=True, exist_ok=True)
        environment = task_environment(
            self.order,
            self.placement,
            paths=paths,
            session_address=start.session_address,
            session_token=start.session_token,
            session_authority=start.session_authority,
            rendezvous=start.rendezvous,
            inherited=os.environ,
            program_directory=Path(sys.executable).parent,
            variables=(*start.tasks.variables, *(_OF_ENGINES if preparation is not None else ())),
            own=user.variables() if user is not None else {},
        )
        program = TaskProgram(arguments_of(self.job.entry_point), environment)
        if preparation is not None:
            shared = (checkpoints, paths.attempt_directory(key))
            program = await preparation.program(
                self.job, self.placement, environment, self.directory, shared, container=self.name, user=user
            )
        task_directory = paths.task_directory(key, self.placement.job, self.placement.task)
        if user is not None:
            self.log.touch()
            own = [checkpoints, task_directory, self.log]
            user.give(start.home, own if self.directory == start.home else [*own, self.directory])
            if preparation is not None and preparation.folder is not None:
                user.reach(start.home, preparation.folder)
        launch: Launch = {
            "arguments": program.arguments,
            "environment": program.environment,
            "directory": str(self.directory),
            "log": str(self.log),
            "afterwards": program.afterwards,
            "journal": str(TaskJournal.of(paths, self.order, self.placement).file),
        }
        mask = umask_of_tasks(os.environ)
        if mask is not None:
            launch["umask"] = mask
        if user is not None and not program.afterwards:
            # The program that runs containers is the service's; inside, the container has the user.
            launch["user"] = user.launched()
        return TaskLaunch(launch, program, user)
