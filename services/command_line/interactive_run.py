"""topmast run -it: a workload that is there for a shell in its first task, and no longer than that.

Its tasks hold their places. The first one looks, once a second, whether a command is typed beside it, and gives up when there
was none for HOLD_S: so a closed laptop holds no GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from services.command_line.exit_code import ExitCode
from services.command_line.local_terminal import left_by_signals
from services.command_line.output import note
from services.command_line.remote_command import SHELL, run_remotely
from services.command_line.workload_view import change_line

if TYPE_CHECKING:
    from topmast import Client, Workload

InteractiveOption = Annotated[
    bool,
    typer.Option(
        "--interactive",
        "-i",
        "-t",
        help="As -it: the command, or a shell, in the terminal here; the workload ends with it.",
    ),
]

HOLD_S = 60
"""So long an interactive workload lives without its shell."""

_HOLDER = """left=$1
while [ "$RANK" != 0 ] || [ "$left" -gt 0 ]; do
  sleep 1
  { read -r running < "${TOPMAST_TASK_FILE%/*}/commands"; } 2>/dev/null || running=0
  if [ "$running" -gt 0 ]; then left=$1; else left=$((left - 1)); fi
done
echo "nobody was at its shell for $1 s"
exit 1
"""


def holder(hold_s: int | None = None) -> tuple[str, ...]:
    """What the tasks run. The first one gives up after so long (HOLD_S) without a command beside it."""
    return ("sh", "-c", _HOLDER, "holder", str(HOLD_S if hold_s is None else hold_s))


def shell_asked_for(
    command: Sequence[str] | None, follow: bool, as_json: bool, retried: object, idempotency_key: str | None, array: str
) -> Sequence[str]:
    """What is run in the terminal here; refuses what makes no sense where somebody sits at it."""
    for option, said in (
        ("--follow", follow),
        ("--json", as_json),
        ("--max-retries", retried),
        ("--idempotency-key", idempotency_key),
        ("--array", array),
    ):
        if said:
            raise typer.BadParameter("does not go with a shell (-it)", param_hint=option)
    return command or SHELL


def run_shell(client: Client, workload: str, arguments: Sequence[str]) -> int:
    """The exit code of what was run in the first task. The workload is cancelled when this is left, however it is."""
    from topmast import TopmastError
    from topmast.sessions import session_place

    reason = "its terminal was closed"
    with left_by_signals():
        try:
            now = _until_it_runs(client, workload)
            place = session_place(now, "", 0)
            code = run_remotely(client, place, arguments, reads=True, terminal=True)
            reason = f"its shell has ended with exit code {code}"
        except TopmastError as error:
            reason = f"its shell was lost: {error.sentence}"
            raise
        finally:
            _cancel(client, workload, reason)
    return code


def _until_it_runs(client: Client, workload: str) -> Workload:
    """Says why it has to wait. Ends the command where it ends before."""
    from topmast.logs import state_words

    said = ""
    with closing(client.watch(workload)) as changes:
        for now in changes:
            if now.state.ended:
                note(change_line(now))
                raise typer.Exit(ExitCode.NOT_WELL)
            if now.state == "RUNNING":
                return now
            sentence = f"{workload} is {state_words(now)}"
            if sentence != said:
                said = sentence
                note(sentence)
    raise typer.Exit(ExitCode.NOT_WELL)


def _cancel(client: Client, workload: str, reason: str) -> None:
    from topmast import PreconditionError, TopmastError

    try:
        client.cancel(workload, reason=reason)
    except PreconditionError:
        # It has ended already.
        return
    except TopmastError as error:
        note(f"topmast: {workload} cannot be cancelled now ({error}); it ends by itself within {HOLD_S} s of running")
