"""topmast hold, release and requeue: workloads that are to wait, to be ranked again, or to start anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from services.command_line.asked_by import asked_by
from services.command_line.completion import complete_workload
from services.command_line.connection import CHANGING_ATTEMPTS, connect
from services.command_line.options import AddressOption, IdempotencyKeyOption, JsonOption
from services.command_line.output import show_json, show_line
from services.command_line.wording import counted

if TYPE_CHECKING:
    from topmast import Client, WorkloadNow

WorkloadArguments = Annotated[
    list[str], typer.Argument(metavar="WORKLOAD...", autocompletion=complete_workload, show_default=False)
]
ReasonOption = Annotated[str, typer.Option("--reason", help="Why; shown with the workload.", show_default=False)]
RequeueOption = Annotated[
    bool, typer.Option("--requeue", help="Also what runs: it is stopped (with time for a checkpoint), and held then.")
]


def hold(
    workloads: WorkloadArguments,
    reason: ReasonOption = "",
    requeue: RequeueOption = False,
    address: AddressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Hold workloads: they stay pending, and are not ranked, until they are released. All of them, or none."""
    _ask(
        lambda client: client.hold(workloads, reason=reason, requeue=requeue, asked_by=asked_by()),
        _held,
        address,
        as_json,
    )


def release(workloads: WorkloadArguments, address: AddressOption = None, as_json: JsonOption = False) -> None:
    """Release workloads that are held: they are in the queue again. All of them, or none."""
    _ask(
        lambda client: client.release(workloads, asked_by=asked_by()),
        _released,
        address,
        as_json,
    )


def requeue(
    workloads: WorkloadArguments,
    idempotency_key: IdempotencyKeyOption = None,
    address: AddressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send running workloads back to the queue, with a checkpoint; submit anew, under a new name, those that have ended."""
    _ask(
        lambda client: client.requeue(workloads, idempotency_key=idempotency_key, asked_by=asked_by()),
        _requeued,
        address,
        as_json,
    )


def _held(now: WorkloadNow) -> str:
    if now.elements is not None:
        return f"{now.workload}: {counted(now.elements, 'element')} held"
    return f"{now.workload} is held" if now.state == "PENDING" else _stopping(now, "is held then")


def _released(now: WorkloadNow) -> str:
    if now.elements is not None:
        return f"{now.workload}: {counted(now.elements, 'element')} released"
    return f"{now.workload} is released" if now.state == "PENDING" else f"{now.workload} is {now.state}"


def _requeued(now: WorkloadNow) -> str:
    if now.submitted_anew_as:
        return f"{now.workload} has ended ({now.state}); it is submitted anew as {now.submitted_anew_as}"
    if now.state in {"DISPATCHED", "RUNNING", "PREEMPTING"}:
        return _stopping(now, "returns to the queue")
    return f"{now.workload} waits in the queue already"


def _stopping(now: WorkloadNow, then: str) -> str:
    return f"{now.workload} is being stopped ({now.state}), and {then}"


def _ask(
    ask: Callable[[Client], Sequence[WorkloadNow]],
    words: Callable[[WorkloadNow], str],
    address: str | None,
    as_json: bool,
) -> None:
    with connect(address, attempts=CHANGING_ATTEMPTS) as client:
        for now in ask(client):
            if as_json:
                show_json(now)
            else:
                show_line(words(now))
