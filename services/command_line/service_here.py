"""The processes of the service of this home, as far as they are on this machine: what `topmast status` says of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from services.command_line.output import TextTable
from services.command_line.wording import moment

if TYPE_CHECKING:
    from services.runtime.home_state import HomeState


@dataclass(frozen=True, slots=True)
class ProcessHere:
    """One part of the service."""

    name: str
    state: str
    since_s: float
    """0: not known."""
    process_id: int
    """0: none, or several."""
    losses: int
    """How often it died and was started again."""
    why: str
    """Why it is down, or was the last time."""


@dataclass(frozen=True, slots=True)
class ServiceHere:
    """What is known of it without asking it."""

    tables: tuple[TextTable, ...]
    processes: list[ProcessHere]
    remarks: tuple[str, ...]
    """What is down, and what else people should know."""


def service_of_this_machine(address: str | None) -> ServiceHere | None:
    """The one of TOPMAST_HOME; None where another one was named, or nothing was ever brought up, or that cannot be known."""
    from topmast.address import is_said, topmast_home

    if is_said(address) or not (topmast_home() / "host.lock").exists():
        return None
    try:
        from services.runtime.home import HomeLayout
        from services.runtime.home_state import look_at
    except ModuleNotFoundError:
        # Only the client is installed here.
        return None
    state = look_at(HomeLayout(topmast_home().resolve()))
    rows = _processes(state)
    if not rows:
        return None
    shown = [
        (
            row.name,
            row.state,
            moment(row.since_s) if row.since_s else "",
            str(row.process_id or ""),
            str(row.losses),
            row.why,
        )
        for row in rows
    ]
    head = ("part", "state", "since", "process", "losses", "last lost because")
    table = TextTable("Processes", head, shown, right=frozenset({3, 4}))
    return ServiceHere((table,), rows, (*state.down, *state.remarks))


def _processes(state: HomeState) -> list[ProcessHere]:
    if state.host is None and not state.down:
        return []
    record, watcher = state.record, state.watcher
    losses = watcher.losses if watcher is not None else 0
    if state.host is None or record is None:
        since_s = watcher.host_ended_s if watcher is not None and watcher.host_ended_s is not None else 0.0
        process_id = state.host.pid if state.host is not None else 0
        return [ProcessHere("host", "up" if process_id else "down", since_s, process_id, losses, "")]
    return [
        ProcessHere("host", "up" if record.is_ready else str(record.state), record.since_s, state.host.pid, losses, ""),
        *(
            ProcessHere(part.name, "up" if part.up else "down", part.since_s, part.process_id, part.losses, part.why)
            for part in record.parts
        ),
    ]
