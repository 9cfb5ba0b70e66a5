"""topmast events: the event log of the service."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from domain.events import EventKind
from services.command_line.connection import connect
from services.command_line.extras import Extra, require
from services.command_line.options import AddressOption, JsonOption, LabelFilter, TenantFilter
from services.command_line.output import note, show_json, show_line
from services.command_line.wording import counted, moment

if TYPE_CHECKING:
    from topmast import Event
    from topmast.events import JsonValue

FollowOption = Annotated[bool, typer.Option("--follow", "-f", help="Go on when the end of the log is reached.")]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        dir_okay=False,
        help="Write JSON lines to this file; packed if it ends in .gz.",
        show_default=False,
    ),
]
WorkloadOption = Annotated[str, typer.Option("--workload", help="Only of this workload.", show_default=False)]
KindOption = Annotated[
    list[EventKind] | None, typer.Option("--event", help="Only of this kind; may be repeated.", show_default=False)
]
AfterOption = Annotated[
    int, typer.Option("--after", min=0, help="Only after this place in the log.", show_default=False)
]

ArchiveOption = Annotated[
    Path | None,
    typer.Option(
        "--archive",
        file_okay=False,
        help="Also what 'topmast db prune' has put into this folder, in its place in the log.",
        show_default=False,
    ),
]

_MOMENTS = frozenset({"expected_start_s", "expires_s", "since_s"})
"""Details that are times of the clock; all others in seconds say how long something takes."""

_NAMED_FIELDS = ("workload", "attempt", "tenant", "priority", "level", "region", "cluster")


def events(
    follow: FollowOption = False,
    output: OutputOption = None,
    workload: WorkloadOption = "",
    tenant: TenantFilter = "",
    event: KindOption = None,
    label: LabelFilter = None,
    after: AfterOption = 0,
    archive: ArchiveOption = None,
    address: AddressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the event log. As JSON (and in a file) it is what 'topmast validate' reads; see docs/events.md."""
    if archive is not None:
        require(Extra.SERVER)
    if label and archive is not None:
        raise typer.BadParameter("an archive does not know labels; give one of --label and --archive")
    wanted = frozenset(kind.value for kind in event or ())
    with connect(address) as client:
        read: Iterable[Event] = client.events(
            after_sequence=after,
            follow=follow,
            workload=workload,
            tenant=tenant,
            events=sorted(wanted),
            labels=label or (),
        )
        if archive is not None:
            read = _merged(_archived(archive, after, workload, tenant, wanted), read)
        if output is not None:
            note(f"{counted(_write(output, read, follow=follow), 'event')} written to {output}")
            return
        shown = False
        for one in read:
            shown = True
            if as_json:
                show_json(one.as_json())
            else:
                show_line(_words(one))
    if not shown:
        note("events: none")


def _archived(archive: Path, after: int, workload: str, tenant: str, kinds: frozenset[str]) -> Iterator[Event]:
    """What `db prune` has taken out, as the client would have read it."""
    from services.retention.archive import archived_events
    from topmast import Event

    for sequence, line in archived_events(archive):
        known = {name: line.pop(name, None) for name in _NAMED_FIELDS}
        one = Event(sequence, line.pop("t"), line.pop("event"), **known, details=line)
        if (
            sequence > after
            and one.workload == (workload or one.workload)
            and one.tenant == (tenant or one.tenant)
            and (not kinds or one.event in kinds)
        ):
            yield one


def _merged(archived: Iterable[Event], stored: Iterable[Event]) -> Iterator[Event]:
    """Both in the order of the log, each event once."""
    last = -1
    for one in heapq.merge(archived, stored, key=lambda one: one.sequence):
        if one.sequence > last:
            last = one.sequence
            yield one


def _write(output: Path, read: Iterable[Event], *, follow: bool) -> int:
    """How many; the file is there whole or not at all, unless it grows as the log does."""
    from formats.atomic_file import atomic_file
    from formats.text_stream import write_text_stream
    from services.command_line.output import encode_json

    count = 0
    with nullcontext(output) if follow else atomic_file(output) as place, write_text_stream(place) as stream:
        for one in read:
            stream.write(encode_json(one.as_json()) + "\n")
            count += 1
    return count


def _words(one: Event) -> str:
    """Time, kind, workload and where; then what only this kind has."""
    subject = one.workload or ""
    if subject and one.attempt is not None:
        subject += f"#{one.attempt}"
    place = "/".join(name for name in (one.region, one.cluster) if name)
    standing = f"priority {one.priority}" if one.priority is not None else ""
    known = [moment(one.t), f"{one.event:<15}", subject, one.tenant or "", place, standing]
    # The reason says the same as the diagnosis, which is for programs.
    told = {name: value for name, value in one.details.items() if name != "diagnosis" or "reason" not in one.details}
    details = " ".join(f"{name}={_value_words(name, value)}" for name, value in told.items())
    return "  ".join(part for part in (*known, details) if part)


def _value_words(name: str, value: JsonValue) -> str:
    if name in _MOMENTS and isinstance(value, (int, float)):
        return moment(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
