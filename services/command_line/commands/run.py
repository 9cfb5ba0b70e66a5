"""topmast run: a workload with one job, from the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from services.command_line.after_option import AfterOption
from services.command_line.array_options import ArrayOption
from services.command_line.commands.submit import print_submission
from services.command_line.connection import CHANGING_ATTEMPTS, connect
from services.command_line.dry_run_view import print_checked
from services.command_line.environment_options import (
    CondaOption,
    EnvironmentFileOption,
    ImageOption,
    PythonOption,
    RequirementsOption,
    runtime_of_options,
)
from services.command_line.exit_code import ExitCode
from services.command_line.interactive_run import InteractiveOption, holder, run_shell, shell_asked_for
from services.command_line.log_printer import LogPrinter
from services.command_line.notification_options import NotifyOnOption, NotifyOption
from services.command_line.options import AddressOption, DryRunOption, IdempotencyKeyOption, JsonOption
from services.command_line.output import note, show_json
from services.command_line.remote_command import require_terminal
from services.command_line.run_specification import (
    amounts,
    called,
    environment,
    in_cells,
    pairs,
    specified,
    what_runs,
    when,
    where,
)
from services.command_line.working_directory_options import HERE, NoWorkdirOption, WorkdirOption, said_workdir
from services.command_line.workload_view import change_line, is_emulated

if TYPE_CHECKING:
    from topmast import (
        Client,
        WorkloadSpecification,
    )

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
RetryOnOption = Annotated[
    list[int] | None,
    typer.Option(
        "--retry-on",
        metavar="EXIT-CODE",
        min=1,
        max=255,
        help="Only after this exit code (137: killed); may be repeated. One retry, unless --max-retries says more.",
        show_default=False,
    ),
]
NoRetryOnOption = Annotated[
    list[int] | None,
    typer.Option(
        "--no-retry-on",
        metavar="EXIT-CODE",
        min=1,
        max=255,
        help="Never after this exit code; may be repeated.",
        show_default=False,
    ),
]
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
ClassOption = Annotated[
    str,
    typer.Option(
        "--priority-class",
        metavar="low|normal|high",
        help="Among the tenant's own workloads at the same priority and level; nobody else's are affected.",
        show_default=False,
    ),
]
MaxTimeOption = Annotated[
    str,
    typer.Option(
        "--max-time",
        metavar="DURATION",
        help="Each attempt may run for so long (2h, 1h30m, 1:30:00); then it is stopped, and the workload fails.",
        show_default=False,
    ),
]
HoldOption = Annotated[
    bool, typer.Option("--hold", help="It waits, and is not ranked, until 'topmast release' releases it.")
]
FunctionOption = Annotated[
    str, typer.Option("--function", metavar="MODULE:FUNCTION", help="A Python function instead of a program.")
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
    env_file: EnvironmentFileOption = None,
    python: PythonOption = "",
    requirements: RequirementsOption = None,
    conda: CondaOption = "",
    image: ImageOption = "",
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
    retry_on: RetryOnOption = None,
    no_retry_on: NoRetryOnOption = None,
    stop_grace_s: GraceOption = None,
    priority: PriorityOption = None,
    priority_class: ClassOption = "",
    max_time: MaxTimeOption = "",
    hold: HoldOption = False,
    after: AfterOption = None,
    array: ArrayOption = "",
    notify: NotifyOption = "",
    notify_on: NotifyOnOption = "",
    function: FunctionOption = "",
    emulate_s: EmulateOption = None,
    workdir: WorkdirOption = None,
    no_workdir: NoWorkdirOption = False,
    follow: FollowOption = False,
    interactive: InteractiveOption = False,
    idempotency_key: IdempotencyKeyOption = None,
    dry_run: DryRunOption = False,
    address: AddressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Submit a workload with one job: topmast run --tenant vision --gpus 8 -- python train.py --epochs 3."""
    shell = (
        shell_asked_for(command, follow, as_json, max_retries or retry_on, idempotency_key, array)
        if interactive
        else None
    )
    wanted = specified(
        **called(tenant, name or ("shell" if shell else ""), pairs(label or (), "--label"), array, (notify, notify_on)),
        **what_runs(holder() if shell else command or (), function, emulate_s),
        **amounts(tasks, max_tasks, gpus, gpu_model, cpus, memory_gib),
        **environment(env_file or (), env or (), runtime_of_options(python, requirements, conda, image)),
        **where(consolidate, across_clusters, skew, region or (), table or (), fresh_table or ()),
        **in_cells(within, prefer_within, pinned_cell, yields_to_downgrade=yields_to_downgrade),
        **when((priority, priority_class), stop_grace_s, max_time, (max_retries, retry_on, no_retry_on), hold, after),
    )
    _submit(address, wanted, _folder(workdir, no_workdir, emulate_s), idempotency_key, as_json, dry_run, follow, shell)


def _folder(workdir: Path | None, no_workdir: bool, emulate_s: float | None) -> Path | None:
    """The folder to be packed; None: the tasks start in an empty one, or there are no processes."""
    said = said_workdir(workdir, no_workdir=no_workdir)
    if said is not None and emulate_s is not None:
        raise typer.BadParameter("what is emulated has no use for files", param_hint="--workdir")
    return None if no_workdir or emulate_s is not None else said or HERE


def _submit(
    address: str | None,
    specification: WorkloadSpecification,
    folder: Path | None,
    idempotency_key: str | None,
    as_json: bool,
    dry_run: bool,
    follow: bool,
    shell: Sequence[str] | None,
) -> None:
    """`shell`: what is run in the first task, in the terminal here."""
    if shell is not None and not dry_run:
        require_terminal("--interactive")
    with connect(address, attempts=CHANGING_ATTEMPTS) as client:
        if dry_run:
            print_checked(client.check(specification, idempotency_key=idempotency_key), specification.name, as_json)
            return
        submission = client.submit(specification, idempotency_key=idempotency_key, working_directory=folder)
        if shell is not None:
            note(f"{submission.workload} is submitted")
            raise typer.Exit(run_shell(client, submission.workload, shell))
        print_submission(submission, as_json)
        if follow:
            _follow(client, submission.workload, as_json)


def _follow(client: Client, workload: str, as_json: bool) -> None:
    from topmast import NotFoundError

    submitted = client.get(workload)
    try:
        if not is_emulated(submitted) and submitted.elements is None:
            with LogPrinter.for_workload(submitted, "", None, as_json) as printer:
                for chunk in client.logs(workload, follow=True, told=printer.remark):
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
