"""topmast resize, retune and migrate: other sizes, amounts and places for workloads that run."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from services.command_line.completion import complete_workload
from services.command_line.connection import CHANGING_ATTEMPTS, connect
from services.command_line.options import AddressOption, JsonOption
from services.command_line.output import show_json, show_line
from services.command_line.wording import counted

if TYPE_CHECKING:
    from topmast import Change

WorkloadArgument = Annotated[
    str, typer.Argument(metavar="WORKLOAD", autocompletion=complete_workload, show_default=False)
]
SizeArgument = Annotated[str, typer.Argument(metavar="JOB=TASKS", help="The job, and how many tasks it is to have.")]
JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="The job whose tasks are to have other amounts.")]
CpusOption = Annotated[
    float | None, typer.Option("--cpus", min=0.001, help="CPUs for each task.", show_default="as it has now")
]
MemoryOption = Annotated[
    float | None,
    typer.Option("--memory-gib", min=0.001, help="Memory for each task, in GiB.", show_default="as it has now"),
]
ToOption = Annotated[
    str, typer.Option("--to", metavar="CLUSTER|REGION", help="A cluster or a region.", show_default="anywhere else")
]

_MOST_DIGITS = 9
"""A number of tasks that is longer does not go through the API; jobs have 100,000 at most."""


def resize(
    workload: WorkloadArgument, size: SizeArgument, address: AddressOption = None, as_json: JsonOption = False
) -> None:
    """Give a job of a running workload more or fewer tasks, within the bounds of an elastic job."""
    job, equals, tasks = size.rpartition("=")
    if not (equals and job and tasks.isascii() and tasks.isdigit()):
        raise typer.BadParameter(f"'{size}' does not read JOB=TASKS, such as trainer=4", param_hint="JOB=TASKS")
    if len(tasks) > _MOST_DIGITS:
        raise typer.BadParameter(f"'{size}' asks for more tasks than a job can have", param_hint="JOB=TASKS")
    with connect(address, attempts=CHANGING_ATTEMPTS) as client:
        change = client.resize(workload, job, int(tasks))
    tasks_named = counted(int(tasks), "task")
    _show(change, f"{workload}: {job} is being resized to {tasks_named}", f"{job} has {tasks_named} already", as_json)


def retune(
    workload: WorkloadArgument,
    job: JobArgument,
    cpus: CpusOption = None,
    memory_gib: MemoryOption = None,
    address: AddressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give each task of a job of a running workload other amounts of CPU and memory."""
    if cpus is None and memory_gib is None:
        raise typer.BadParameter("say what the tasks are to have: --cpus, --memory-gib, or both")
    with connect(address, attempts=CHANGING_ATTEMPTS) as client:
        change = client.retune(workload, job, cpus=cpus, memory_gib=memory_gib)
    _show(change, f"{workload}: {job} is being retuned", f"{job} has that already", as_json)


def migrate(
    workload: WorkloadArgument, to: ToOption = "", address: AddressOption = None, as_json: JsonOption = False
) -> None:
    """Let a running workload go on elsewhere: it saves its work and stops, and goes on in a place kept for it."""
    with connect(address, attempts=CHANGING_ATTEMPTS) as client:
        change = client.migrate(workload, to)
    clusters = ", ".join(dict.fromkeys(placement.cluster for placement in change.placements))
    _show(change, f"{workload} is migrating to {clusters}", "it is there already", as_json)


def _show(change: Change, begun: str, nothing: str, as_json: bool) -> None:
    if as_json:
        show_json(asdict(change))
    else:
        show_line(begun if change.changes else f"nothing to do: {nothing}")
