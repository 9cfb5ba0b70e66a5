"""topmast logs: what the tasks of a workload printed."""

from __future__ import annotations

from typing import Annotated

import typer

from services.command_line.connection import connect
from services.command_line.log_printer import LogPrinter
from services.command_line.options import AddressOption, JsonOption, WorkloadArgument

AttemptOption = Annotated[
    int | None, typer.Option("--attempt", min=1, help="Of this run; otherwise the newest.", show_default=False)
]
JobOption = Annotated[str, typer.Option("--job", help="Only of this job.", show_default=False)]
TaskOption = Annotated[int | None, typer.Option("--task", min=0, help="Only of this task.", show_default=False)]
FollowOption = Annotated[
    bool, typer.Option("--follow", "-f", help="Go on until the workload has ended, also on other clusters.")
]
TailOption = Annotated[
    int, typer.Option("--tail", min=0, metavar="LINES", help="Only the last lines of each task.", show_default=False)
]

_PATIENCE_S = 5.0


def logs(
    workload: WorkloadArgument,
    attempt: AttemptOption = None,
    job: JobOption = "",
    task: TaskOption = None,
    follow: FollowOption = False,
    tail: TailOption = 0,
    address: AddressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print what the tasks of a workload printed; each line with its job and task when there are several."""
    from topmast import NotPlacedYetError

    with connect(address, patience_s=60.0 if follow else _PATIENCE_S) as client:
        found = client.get(workload)
        with LogPrinter.for_workload(found, job, task, as_json) as printer:
            chunks = client.logs(
                workload, attempt=attempt, job=job, task=task, follow=follow, tail_lines=tail, told=printer.remark
            )
            try:
                for chunk in chunks:
                    printer.print(chunk)
            except NotPlacedYetError as nothing_yet:
                # It is well: there is nothing to read yet, and --follow waits for it.
                printer.remark(f"nothing is printed yet: {nothing_yet.sentence}; --follow waits for the first line")
