"""topmast cancel: workloads that are no longer wanted."""

from __future__ import annotations

from typing import Annotated

import typer

from services.command_line.completion import complete_workload
from services.command_line.connection import CHANGING_ATTEMPTS, connect
from services.command_line.options import AddressOption, JsonOption
from services.command_line.output import show_json, show_line

WorkloadArguments = Annotated[
    list[str], typer.Argument(metavar="WORKLOAD...", autocompletion=complete_workload, show_default=False)
]
ReasonOption = Annotated[str, typer.Option("--reason", help="Why; shown with the workload.", show_default=False)]


def cancel(
    workloads: WorkloadArguments, reason: ReasonOption = "", address: AddressOption = None, as_json: JsonOption = False
) -> None:
    """Cancel workloads: queued ones at once, others are stopped (with time for a checkpoint)."""
    with connect(address, attempts=CHANGING_ATTEMPTS) as client:
        for workload in workloads:
            state = client.cancel(workload, reason)
            if as_json:
                show_json({"workload": workload, "state": state})
            else:
                show_line(
                    f"{workload} is cancelled" if state == "CANCELLED" else f"{workload} is being stopped ({state})"
                )
