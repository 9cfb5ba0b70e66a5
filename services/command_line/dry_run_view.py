"""What a dry run found, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.command_line.output import note, show_json, show_line
from services.command_line.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from topmast import CheckedWorkload, DryRunChanges, HostingRegion, KindChanges

_SHOWN_NAMES = 20


def print_checked(checked: CheckedWorkload, name: str, as_json: bool) -> None:
    """That the workload would be accepted, and where it could run."""
    if as_json:
        show_json(checked)
        return
    if checked.workload:
        show_line(
            f"{name} was submitted before with this idempotency key, as {checked.workload}; nothing would be stored"
        )
    else:
        show_line(f"{name} would be accepted")
    for host in checked.hosts:
        show_line(f"  {_host(host)}")
    note("dry run: nothing was stored; whether there is room now, and where its tables are, was not looked at")


def _host(host: HostingRegion) -> str:
    if not host.clusters:
        return f"could run in region {host.region}, in several clusters together"
    return f"could run in region {host.region}, in {' or '.join(host.clusters)}"


def print_changes(changes: DryRunChanges) -> None:
    """What would be added, removed and changed, and what has to be drained before."""
    lines = [line for kind in changes.kinds for line in _lines(kind)]
    for line in lines or ["nothing would change"]:
        show_line(line)
    for machine, attempt in changes.drain_first:
        show_line(f"to be drained first: machine {machine}, where {attempt} is running")
    note("dry run: nothing was applied")


def _lines(kind: KindChanges) -> Iterator[str]:
    for done, names, count in (
        ("added", kind.added, kind.added_count),
        ("removed", kind.removed, kind.removed_count),
        ("changed", kind.changed, kind.changed_count),
    ):
        if count:
            yield f"{counted(count, kind.kind)} would be {done}: {_names(names, count)}"


def _names(names: Sequence[str], count: int) -> str:
    more = f" and {count - _SHOWN_NAMES:,} more" if count > _SHOWN_NAMES else ""
    return ", ".join(names[:_SHOWN_NAMES]) + more
