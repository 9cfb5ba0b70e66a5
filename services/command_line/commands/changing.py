"""topmast change: what workloads ask for, while they wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from services.command_line.asked_by import asked_by
from services.command_line.completion import complete_workload
from services.command_line.connection import CHANGING_ATTEMPTS, connect
from services.command_line.durations import duration_option
from services.command_line.options import AddressOption, JsonOption
from services.command_line.output import show_json, show_line

if TYPE_CHECKING:
    from topmast.user_requests import WorkloadChange

_NO_LIMIT = "none"
_OWN_PRIORITY = "tenant"

WorkloadArguments = Annotated[
    list[str], typer.Argument(metavar="WORKLOAD...", autocompletion=complete_workload, show_default=False)
]
PriorityOption = Annotated[
    str,
    typer.Option(
        "--priority",
        metavar="0-6|tenant",
        help="One at which the tenant has a quota; 'tenant': the tenant's own.",
        show_default=False,
    ),
]
ClassOption = Annotated[
    str,
    typer.Option(
        "--priority-class",
        metavar="low|normal|high",
        help="Among the tenant's own workloads at the same priority and level.",
        show_default=False,
    ),
]
RegionOption = Annotated[
    list[str] | None,
    typer.Option("--region", help="Only there, instead of where it could run; may be repeated.", show_default=False),
]
AnywhereOption = Annotated[bool, typer.Option("--anywhere", help="In any region.")]
LabelOption = Annotated[
    list[str] | None,
    typer.Option(
        "--label", metavar="NAME=VALUE|NAME-", help="Sets a label, or takes it away (NAME-); may be repeated."
    ),
]
MaxTimeOption = Annotated[
    str,
    typer.Option(
        "--max-time",
        metavar="DURATION|none",
        help="How long each attempt may run, also the one that runs: 2h, 1h30m, 1:30:00; 'none': no limit.",
        show_default=False,
    ),
]


def change(
    workloads: WorkloadArguments,
    priority: PriorityOption = "",
    priority_class: ClassOption = "",
    region: RegionOption = None,
    anywhere: AnywhereOption = False,
    label: LabelOption = None,
    max_time: MaxTimeOption = "",
    address: AddressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change what queued workloads ask for; of what runs only labels and the time limit. All of them, or none."""
    wanted: WorkloadChange = {}
    if priority:
        wanted["priority"] = _priority(priority)
    if priority_class:
        wanted["priority_class"] = priority_class
    if region and anywhere:
        raise typer.BadParameter("give --region or --anywhere, not both")
    if region or anywhere:
        wanted["regions"] = region or ()
    if label:
        wanted["labels"] = _labels(label)
    if max_time:
        wanted["max_time_s"] = None if max_time == _NO_LIMIT else duration_option(max_time, "--max-time")
    if not wanted:
        raise typer.BadParameter(
            "say what is to be different: --priority, --priority-class, --region, --anywhere, --label, --max-time"
        )
    with connect(address, attempts=CHANGING_ATTEMPTS) as client:
        for now in client.change(workloads, asked_by=asked_by(), **wanted):
            if as_json:
                show_json(now)
            else:
                show_line(f"{now.workload} is changed ({now.state})")


def _priority(said: str) -> int | None:
    if said == _OWN_PRIORITY:
        return None
    if not (said.isascii() and said.isdigit() and int(said) <= 6):
        raise typer.BadParameter(
            f"'{said}' is no priority; give 0 (the highest) to 6, or tenant", param_hint="--priority"
        )
    return int(said)


def _labels(said: Sequence[str]) -> dict[str, str | None]:
    labels: dict[str, str | None] = {}
    for text in said:
        key, equals, value = text.partition("=")
        if equals and key:
            labels[key] = value
        elif text.endswith("-") and len(text) > 1:
            labels[text[:-1]] = None
        else:
            raise typer.BadParameter(f"'{text}' reads neither NAME=VALUE nor NAME-", param_hint="--label")
    return labels
