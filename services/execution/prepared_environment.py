"""What a task is started with once its runtime environment is ready on its machine. Pure.

What is ready is said by a small JSON file, which is written last: without it nothing is ready.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from domain.placement import TaskPlacement


@dataclass(frozen=True, slots=True)
class PreparedEnvironment:
    """How programs find what is in it."""

    python: str = ""
    """The interpreter; empty: that of the container image."""
    path: tuple[str, ...] = ()
    """Comes first in PATH."""
    variables: Mapping[str, str] = field(default_factory=dict)
    engine: str = ""
    """The program that runs containers; with it there is an image."""
    image: str = ""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> PreparedEnvironment:
        said = json.loads(text)
        return PreparedEnvironment(**(said | {"path": tuple(said["path"])}))


@dataclass(frozen=True, slots=True)
class TaskProgram:
    """What is started, with which variables, and what is done when it has ended.

    `beside`, with a command behind it, runs that in the same container; empty where there is none.
    """

    arguments: list[str]
    environment: dict[str, str]
    afterwards: list[str] = field(default_factory=list)
    beside: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ContainerPlace:
    """What a container shares with its machine."""

    name: str
    directory: Path
    """Where the program starts."""
    shared: Sequence[Path]
    """Seen inside under the same names."""
    user: str
    """As whom it runs: `user:group`, in numbers."""
    with_gpus: bool
    """The machine has GPUs that containers can be given."""
    most_cpus: float
    """More than the machine has cannot be asked for."""


def entered(prepared: PreparedEnvironment, program: TaskProgram, asked: Mapping[str, str]) -> TaskProgram:
    """The program inside a virtual or conda environment; the variables that its job asks for win."""
    environment = program.environment | {name: text for name, text in prepared.variables.items() if name not in asked}
    environment["PATH"] = ":".join([*prepared.path, program.environment["PATH"]])
    return TaskProgram(program.arguments, environment)


def contained(
    prepared: PreparedEnvironment,
    program: TaskProgram,
    place: ContainerPlace,
    placement: TaskPlacement,
    inherited: Mapping[str, str],
) -> TaskProgram:
    """The program in a container. It gets the variables that are its own, and not those that the service has inherited."""
    engine = prepared.engine
    own = sorted(name for name, text in program.environment.items() if name != "PATH" and inherited.get(name) != text)
    arguments = [engine, "run", "--rm", "--name", place.name, "--network", "host", "--user", place.user]
    if Path(engine).name == "docker":
        # The first process of a container ignores SIGTERM unless it handles it; this one hands it on.
        arguments.append("--init")
    arguments += ["--cpus", f"{max(0.01, min(placement.cpus, place.most_cpus)):g}"]
    arguments += ["--memory", f"{max(8, placement.mebibytes)}m"]
    # It is no descendant of the task's reaper, which sees to that for other tasks.
    arguments += ["--oom-score-adj", "1000"]
    for shared in dict.fromkeys([*place.shared, place.directory]):
        arguments += ["--volume", f"{shared}:{shared}"]
    if place.with_gpus and placement.gpu_indices:
        # CUDA_VISIBLE_DEVICES says which.
        arguments += ["--gpus", "all"] if Path(engine).name == "docker" else ["--device", "nvidia.com/gpu=all"]
    for name in own:
        arguments += ["--env", name]
    arguments += ["--workdir", str(place.directory), prepared.image, *program.arguments]
    beside = [engine, "exec", "--interactive", "--workdir", str(place.directory), place.name]
    return TaskProgram(arguments, program.environment, [engine, "rm", "--force", place.name], beside)
