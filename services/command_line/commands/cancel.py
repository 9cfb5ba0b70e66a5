"""topmast cancel: workloads that are no longer wanted, by name or by their labels."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from services.command_line.completion import complete_workload
from services.command_line.connection import CHANGING_ATTEMPTS, connect
from services.command_line.exit_code import ExitCode
from services.command_line.failures import explain
from services.command_line.options import AddressOption, JsonOption, LabelFilter, TenantFilter
from services.command_line.output import note, show_json, show_line
from services.command_line.wording import counted

if TYPE_CHECKING:
    from topmast import Client, WorkloadState

WorkloadArguments = Annotated[
    list[str] | None, typer.Argument(metavar="[WORKLOAD...]", autocompletion=complete_workload, show_default=False)
]
ReasonOption = Annotated[str, typer.Option("--reason", help="Why; shown with the workload.", show_default=False)]
YesOption = Annotated[bool, typer.Option("--yes", help="With --label or --tenant: do not ask how many it may be.")]

_MOST_AT_ONCE = 1_000
_SHOWN = 5


def cancel(
    workloads: WorkloadArguments = None,
    reason: ReasonOption = "",
    label: LabelFilter = None,
    tenant: TenantFilter = "",
    yes: YesOption = False,
    address: AddressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Cancel workloads: queued ones at once, others are stopped (with time for a checkpoint).

    By name, and where one of several is not there, none is cancelled; what became of each is said, also when one could not be
    cancelled. Or all of a tenant, or with a label, that have not ended, together: then it is asked first whether it may be so many.
    """
    named = list(dict.fromkeys(workloads or ()))
    chosen = bool(label or tenant)
    if chosen == bool(named):
        raise typer.BadParameter("name workloads, or choose them with --label and --tenant; one of the two")
    with connect(address, attempts=CHANGING_ATTEMPTS) as client:
        if chosen:
            names = _choose(client, label or [], tenant, yes=yes)
            for now in client.cancel_many(names, reason, passes_over_ended=True):
                _show(now.workload, now.state, as_json)
            return
        if len(named) > 1:
            _require_all(client, named)
        _cancel_each(client, named, reason, as_json)


def _choose(client: Client, labels: list[str], tenant: str, *, yes: bool) -> list[str]:
    """Those that have not ended, once their number is confirmed; none, where it is not."""
    from topmast import WorkloadState

    states = [state for state in WorkloadState if not state.ended and state is not WorkloadState.UNSPECIFIED]
    listed = client.list(limit=_MOST_AT_ONCE + 1, states=states, tenant=tenant, labels=labels)
    names = [workload.workload for workload in listed]
    if not names:
        note("no workload that has not ended is like that; nothing is cancelled")
        raise typer.Exit(ExitCode.NOT_FOUND)
    if len(names) > _MOST_AT_ONCE:
        raise typer.BadParameter(f"more than {_MOST_AT_ONCE:,} workloads are like that; choose fewer at a time")
    some = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    question = f"cancel {counted(len(names), 'workload')} ({some})?"
    if yes or (sys.stdin.isatty() and typer.confirm(question, err=True)):
        return names
    note(f"{question} Nothing is cancelled; repeat it with --yes")
    raise typer.Exit(ExitCode.NOT_WELL)


def _show(workload: str, state: WorkloadState, as_json: bool) -> None:
    if as_json:
        show_json({"workload": workload, "state": state})
    elif state == "CANCELLED":
        show_line(f"{workload} is cancelled")
    elif state.ended:
        show_line(f"{workload} had ended ({state})")
    else:
        show_line(f"{workload} is being stopped ({state})")


def _require_all(client: Client, workloads: Sequence[str]) -> None:
    """Raises NotFoundError that names those that are not there."""
    from topmast import NotFoundError

    missing = []
    for workload in workloads:
        try:
            client.get(workload)
        except NotFoundError:
            missing.append(workload)
    if missing:
        raise NotFoundError(f"there is no workload {', '.join(missing)}; none of the {len(workloads)} was cancelled")


def _cancel_each(client: Client, workloads: Sequence[str], reason: str, as_json: bool) -> None:
    """One that cannot be cancelled keeps none of the others from it; the command ends with its exit code then."""
    from topmast import TopmastError, UnavailableError

    code = None
    for place, workload in enumerate(workloads):
        try:
            state = client.cancel(workload, reason)
        except TopmastError as error:
            rest = workloads[place + 1 :]
            if len(workloads) == 1:
                raise
            if isinstance(error, UnavailableError):
                note(f"topmast: not asked for, because Topmast went away: {', '.join((workload, *rest))}")
                raise
            explained = explain(error)
            if explained is None:
                raise
            code = code or explained[0]
            note(f"topmast: {workload} was not cancelled: {explained[1]}")
            continue
        _show(workload, state, as_json)
    if code is not None:
        raise typer.Exit(code)
