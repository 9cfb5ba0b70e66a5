"""topmast run: a workload with one job, from the command line."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer

from services.command_line.commands.submit import print_submission
from services.command_line.connection import CHANGING_ATTEMPTS, connect
from services.command_line.exit_code import ExitCode
from services.command_line.log_printer import LogPrinter
from services.command_line.options import AddressOption, IdempotencyKeyOption, JsonOption
from services.command_line.output import note, show_json
from services.command_line.workload_view import change_line, is_emulated

if TYPE_CHECKING:
    from topmast import Affinity, Client, Emulated, WorkloadSpecification

# Everything after the first word that is no option belongs to the program.
CONTEXT_SETTINGS = {"allow_interspersed_args": False}

CommandArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="-- COMMAND...", help="The program of each task, with its arguments.", show_default=False),
]
TenantOption = Annotated[str, typer.Option("--tenant", help="Who pays for it.", show_default=False)]
NameOption = Annotated[
    str, typer.Option("--name", help="Otherwise it is called after the program.", show_default=False)
]
GpusOption = Annotated[int, typer.Option("--gpus", min=0, max=62, help="GPUs of each task.")]
GpuModelOption = Annotated[str, typer.Option("--gpu-model", help="Which GPUs; any when left out.", show_default=False)]
TasksOption = Annotated[int, typer.Option("--tasks", min=1, help="Tasks, which start together or not at all.")]
MaxTasksOption = Annotated[
    int, typer.Option("--max-tasks", min=0, help="More than --tasks: the job may grow so far.", show_default=False)
]
CpusOption = Annotated[
    float | None,
    typer.Option(
        "--cpus", min=0, help="CPUs of each task; its GPUs' share of the machine when left out.", show_default=False
    ),
]
MemoryOption = Annotated[
    float | None,
    typer.Option("--memory-gib", min=0, help="Memory of each task; its GPUs' share when left out.", show_default=False),
]
EnvironmentOption = Annotated[
    list[str] | None,
    typer.Option(
        "--env", metavar="NAME[=VALUE]", help="A variable for the tasks; without value, as it is here. May be repeated."
    ),
]
RegionOption = Annotated[
    list[str] | None, typer.Option("--region", help="Only there; may be repeated.", show_default=False)
]
TableOption = Annotated[
    list[str] | None, typer.Option("--table", help="A table that it reads; may be repeated.", show_default=False)
]
FreshTableOption = Annotated[
    list[str] | None,
    typer.Option("--fresh-table", help="As --table, but only the table's home region will do.", show_default=False),
]
LabelOption = Annotated[
    list[str] | None, typer.Option("--label", metavar="NAME=VALUE", help="May be repeated.", show_default=False)
]
ConsolidateOption = Annotated[
    bool, typer.Option("--consolidate", help="Fewest racks and machines before least fragmentation.")
]
AcrossClustersOption = Annotated[
    bool,
    typer.Option("--across-clusters", help="Its tasks may be in several clusters where no single one has room."),
]
SkewOption = Annotated[
    float | None,
    typer.Option(
        "--skew",
        min=0,
        max=1,
        help="Largest tensor of the model over the whole model; above PACKLIMIT the job is consolidated.",
        show_default=False,
    ),
]
WithinOption = Annotated[
    str,
    typer.Option(
        "--within",
        metavar="LEVEL",
        help="All tasks within one cell of this level: machine, rack, ...",
        show_default=False,
    ),
]
PreferWithinOption = Annotated[
    str,
    typer.Option("--prefer-within", metavar="LEVEL", help="The same if possible, else anywhere.", show_default=False),
]
PinnedCellOption = Annotated[
    str, typer.Option("--pinned-cell", help="Only in this cell of the tenant's virtual cluster.", show_default=False)
]
YieldsOption = Annotated[
    bool,
    typer.Option(
        "--yields-to-downgrade", help="It may lose its cells and go on opportunistically instead of being evicted."
    ),
]
RetriesOption = Annotated[int, typer.Option("--max-retries", min=0, help="How often a failed attempt is tried again.")]
GraceOption = Annotated[
    float | None,
    typer.Option("--stop-grace-s", min=0, help="Time to save a checkpoint when stopped; 30 when left out."),
]
PriorityOption = Annotated[
    int | None,
    typer.Option(
        "--priority",
        min=0,
        max=6,
        help="One at which the tenant has a quota; the tenant's when left out.",
        show_default=False,
    ),
]
PythonOption = Annotated[
    str, typer.Option("--python", metavar="MODULE:FUNCTION", help="A Python function instead of a program.")
]
EmulateOption = Annotated[
    float | None,
    typer.Option("--emulate-s", min=0, help="No process: work of so many seconds, on the clock.", show_default=False),
]
FollowOption = Annotated[
    bool, typer.Option("--follow", "-f", help="Print its logs until it has ended; 1 unless it completed.")
]


def run(
    tenant: TenantOption,
    command: CommandArgument = None,
    gpus: GpusOption = 0,
    tasks: TasksOption = 1,
    gpu_model: GpuModelOption = "",
    cpus: CpusOption = None,
    memory_gib: MemoryOption = None,
    max_tasks: MaxTasksOption = 0,
    name: NameOption = "",
    env: EnvironmentOption = None,
    region: RegionOption = None,
    table: TableOption = None,
    fresh_table: FreshTableOption = None,
    label: LabelOption = None,
    consolidate: ConsolidateOption = False,
    across_clusters: AcrossClustersOption = False,
    skew: SkewOption = None,
    within: WithinOption = "",
    prefer_within: PreferWithinOption = "",
    pinned_cell: PinnedCellOption = "",
    yields_to_downgrade: YieldsOption = False,
    max_retries: RetriesOption = 0,
    stop_grace_s: GraceOption = None,
    priority: PriorityOption = None,
    python: PythonOption = "",
    emulate_s: EmulateOption = None,
    follow: FollowOption = False,
    idempotency_key: IdempotencyKeyOption = None,
    address: AddressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Submit a workload with one job: topmast run --tenant vision --gpus 8 -- python train.py --epochs 3."""
    from topmast import ModelProfile, RetryPolicy, TableInput, single_job

    specification = single_job(
        tenant=tenant,
        name=name,
        command=command or (),
        python=python,
        emulated=_emulated(command, python, emulate_s),
        tasks=tasks,
        max_tasks=max_tasks,
        gpus=gpus,
        gpu_model=gpu_model,
        cpus=cpus,
        memory_gib=memory_gib,
        environment=_pairs(env or (), "--env", from_environment=True),
        consolidate=consolidate,
        across_clusters=across_clusters,
        profile=None if skew is None else ModelProfile(skew=skew),
        **_in_cells(within, prefer_within, pinned_cell, yields_to_downgrade=yields_to_downgrade),
        tables=[*(table or ()), *(TableInput(fresh, fresh=True) for fresh in fresh_table or ())],
        regions=region or (),
        labels=_pairs(label or (), "--label"),
        retry=RetryPolicy(max_retries=max_retries) if max_retries else None,
        stop_grace_s=stop_grace_s,
        priority=priority,
    )
    _submit(address, specification, idempotency_key, follow, as_json)


def _emulated(command: Sequence[str] | None, python: str, emulate_s: float | None) -> Emulated | None:
    """What is emulated, if anything; refuses nothing to run, and more than one thing."""
    from topmast import Emulated

    if emulate_s == 0:
        raise typer.BadParameter("is 0; work takes more than 0 seconds", param_hint="--emulate-s")
    if sum(bool(what) for what in (command, python, emulate_s)) != 1:
        raise typer.BadParameter("say what to run: -- COMMAND..., or --python, or --emulate-s; and only one of them")
    return Emulated(duration_s=emulate_s) if emulate_s else None


class _InCells(TypedDict):
    """How close together the tasks are to be, and in which cells."""

    affinity: Affinity | None
    pinned_cell: str
    yields_to_downgrade: bool


def _in_cells(within: str, prefer_within: str, pinned_cell: str, *, yields_to_downgrade: bool) -> _InCells:
    from topmast import Affinity

    if within and prefer_within:
        raise typer.BadParameter("give --within or --prefer-within, not both")
    level = within or prefer_within
    affinity = Affinity(within=level, hard=bool(within)) if level else None
    return {"affinity": affinity, "pinned_cell": pinned_cell, "yields_to_downgrade": yields_to_downgrade}


def _submit(
    address: str | None, specification: WorkloadSpecification, idempotency_key: str | None, follow: bool, as_json: bool
) -> None:
    with connect(address, attempts=CHANGING_ATTEMPTS) as client:
        submission = client.submit(specification, idempotency_key=idempotency_key)
        print_submission(submission, as_json)
        if follow:
            _follow(client, submission.workload, as_json)


def _pairs(said: Sequence[str], option: str, *, from_environment: bool = False) -> dict[str, str]:
    """NAME=VALUE, or NAME alone where that may mean the variable of this process."""
    pairs: dict[str, str] = {}
    for text in said:
        name, separator, value = text.partition("=")
        if not separator and from_environment and name in os.environ:
            value = os.environ[name]
        elif not (separator and name):
            hint = "; it is not set here" if from_environment and name else ""
            raise typer.BadParameter(f"'{text}' does not read NAME=VALUE{hint}", param_hint=option)
        pairs[name] = value
    return pairs


def _follow(client: Client, workload: str, as_json: bool) -> None:
    from topmast import NotFoundError

    submitted = client.get(workload)
    try:
        if not is_emulated(submitted):
            with LogPrinter.for_workload(submitted, "", None, as_json) as printer:
                for chunk in client.logs(workload, follow=True):
                    printer.print(chunk)
        ended = client.wait(workload)
    except NotFoundError:
        # It ended before it was placed anywhere: there is nothing to read.
        ended = client.wait(workload)
    except KeyboardInterrupt:
        note(f"{workload} goes on; 'topmast logs --follow {workload}' shows more, 'topmast cancel {workload}' ends it")
        raise
    if as_json:
        show_json(ended)
    else:
        note(change_line(ended))
    if ended.state != "COMPLETED":
        raise typer.Exit(ExitCode.NOT_WELL)
