"""topmast drain and undrain: machines, racks, clusters and regions out of use, and back."""

from __future__ import annotations

import time
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from services.command_line.connection import CHANGING_ATTEMPTS, connect
from services.command_line.durations import parse_duration
from services.command_line.options import AddressOption, JsonOption
from services.command_line.output import note, show_json, show_line
from services.command_line.wording import counted, moment, parse_moment

if TYPE_CHECKING:
    from topmast import Client, MachineScope


class Kind(StrEnum):
    """What a name is."""

    MACHINE = "machine"
    RACK = "rack"
    CLUSTER = "cluster"
    REGION = "region"


NamesArgument = Annotated[
    list[str],
    typer.Argument(metavar="MACHINE|RACK|CLUSTER|REGION...", help="NAME, or REGION/NAME.", show_default=False),
]
KindOption = Annotated[
    Kind | None,
    typer.Option("--kind", help="What the names are, where they could be several things.", show_default=False),
]
ReasonOption = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Shown beside the machines.")]
DeadlineOption = Annotated[
    str,
    typer.Option(
        "--deadline",
        metavar="DURATION|TIME",
        help="What runs there may stay so long (90s, 30m, 2h, 1d), or until then. Otherwise it leaves at once.",
        show_default=False,
    ),
]
WaitOption = Annotated[bool, typer.Option("--wait", help="Return when nothing is on them any more.")]

_LOOK_EVERY_S = 1.0
_SHOWN_EVICTIONS = 10


def drain(
    names: NamesArgument,
    kind: KindOption = None,
    reason: ReasonOption = "",
    deadline: DeadlineOption = "",
    wait: WaitOption = False,
    address: AddressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take machines out of use: nothing new comes, and what is there is evicted with a checkpoint, at once or at a deadline.

    It lasts, also over restarts, until topmast undrain. Asked again it changes reason and deadline. Times are of the service's
    clock.
    """
    within_s, deadline_s = _parse_deadline(deadline)
    with connect(address, attempts=CHANGING_ATTEMPTS) as client:
        drained = client.drain(
            names, kind=kind.value if kind else "", reason=reason, within_s=within_s, deadline_s=deadline_s
        )
        if as_json and not wait:
            show_json(drained)
        elif not as_json:
            show_line(f"{_named(drained.scopes)}: {_are(drained.machines)} drained{_when(drained.deadline_s)}")
            if drained.inference_machines:
                note(f"{counted(drained.inference_machines, 'machine')} of inference passed over: see topmast loans")
            if drained.evicting:
                more = drained.evicting_count - _SHOWN_EVICTIONS
                rest = f" and {more:,} more" if more > 0 else ""
                note(f"asked to leave: {', '.join(drained.evicting[:_SHOWN_EVICTIONS])}{rest}")
        if wait:
            _until_empty(client, drained.scopes)
            if as_json:
                show_json(drained)
            else:
                show_line("nothing is on them any more")


def undrain(
    names: NamesArgument, kind: KindOption = None, address: AddressOption = None, as_json: JsonOption = False
) -> None:
    """Put machines back into use; what is not drained stays as it is."""
    with connect(address, attempts=CHANGING_ATTEMPTS) as client:
        undrained = client.undrain(names, kind=kind.value if kind else "")
    if as_json:
        show_json(undrained)
    else:
        show_line(f"{_named(undrained.scopes)}: {_are(undrained.machines)} drained no more")


def _parse_deadline(said: str) -> tuple[float | None, float | None]:
    """Seconds from now, or a time."""
    if not said:
        return None, None
    try:
        return parse_duration(said), None
    except ValueError:
        pass
    try:
        float(said)
    except ValueError:
        pass
    else:
        raise typer.BadParameter(f"'{said}' has no unit; write {said}s, {said}m or {said}h.", param_hint="--deadline")
    try:
        return None, parse_moment(said)
    except ValueError:
        raise typer.BadParameter(
            f"'{said}' is no duration (90s, 30m, 2h, 1d) and no time (2026-01-31T12:00:00).", param_hint="--deadline"
        ) from None


def _until_empty(client: Client, scopes: Sequence[MachineScope]) -> None:
    """Of each scope the drained machines alone count: others may have come to it."""
    for scope in scopes:
        told = ""
        while found := _occupied(client, scope):
            if found != told:
                note(f"still on {found}")
                told = found
            time.sleep(_LOOK_EVERY_S)


def _occupied(client: Client, scope: MachineScope) -> str:
    """A machine of the scope with something on it, and what; "": there is none."""
    from topmast.machines import MachineFilter

    wanted = MachineFilter(region=scope.region, states=["draining", "draining_down"], occupied=True)
    if scope.kind == Kind.MACHINE:
        wanted["machine"] = scope.name
    elif scope.kind == Kind.RACK:
        wanted["rack"] = scope.name
    elif scope.kind == Kind.CLUSTER:
        wanted["cluster"] = scope.name
    for machine in client.machines_page(page_size=1, **wanted).machines:
        return f"{machine.machine}: {', '.join(f'{one.workload}#{one.attempt}' for one in machine.holders)}"
    return ""


def _named(scopes: Sequence[MachineScope]) -> str:
    return ", ".join(f"{scope.kind} {scope.name}" for scope in scopes)


def _are(machines: int) -> str:
    return f"{counted(machines, 'machine')} {'is' if machines == 1 else 'are'}"


def _when(deadline_s: float | None) -> str:
    return "" if deadline_s is None else f"; what runs there leaves at {moment(deadline_s)}"
