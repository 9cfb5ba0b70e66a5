"""topmast exec: a command beside a running task."""

from __future__ import annotations

from typing import Annotated

import typer

from services.command_line.connection import connect
from services.command_line.local_terminal import is_terminal_input
from services.command_line.options import AddressOption, JobOfTaskOption, TaskNumberOption, WorkloadArgument
from services.command_line.remote_command import SHELL, require_terminal, run_remotely

CommandArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="-- COMMAND...", help="What to run there; a shell with -t.", show_default=False),
]
InputOption = Annotated[
    bool, typer.Option("--interactive", "-i", help="Pass on what is typed; a pipe or a file is passed on anyway.")
]
TerminalOption = Annotated[bool, typer.Option("--tty", "-t", help="Give it a terminal, as programs want that draw.")]


def execute(
    workload: WorkloadArgument,
    command: CommandArgument = None,
    job: JobOfTaskOption = "",
    task: TaskNumberOption = 0,
    interactive: InputOption = False,
    terminal: TerminalOption = False,
    address: AddressOption = None,
) -> None:
    """Run a command beside a running task: topmast exec WORKLOAD -- nvidia-smi. The exit code is the command's."""
    from topmast.sessions import session_place

    if terminal:
        require_terminal("--tty")
    if not command and not terminal:
        raise typer.BadParameter("say what to run: -- COMMAND..., or -it for a shell")
    with connect(address) as client:
        place = session_place(client.get(workload), job, task)
        reads = interactive or not (terminal or is_terminal_input())
        code = run_remotely(client, place, command or SHELL, reads=reads, terminal=terminal)
    raise typer.Exit(code)
