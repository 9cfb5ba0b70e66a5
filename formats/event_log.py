"""The event log as a file: JSON lines, one event each, UTF-8; `.gz` by the name.

The same events give the same bytes: keys in the order of docs/events.md, no spaces, no time stamp in the gzip header.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TextIO

from domain.events import Event, EventKind, JsonValue
from domain.identifiers import ClusterId, RegionId, TenantId, WorkloadId
from formats.problems import FieldProblem, FormatError, in_quotes, suggestion
from formats.text_stream import read_lines, write_text_stream

_COMMON_FIELDS = ("t", "event", "workload", "attempt", "tenant", "priority", "level", "region", "cluster")
_GREATEST = 1e300
_KINDS = MappingProxyType({kind.value: kind for kind in EventKind})


class BadRecord(Exception):
    """A line or record that is no event; the message is one sentence without its subject (`has no t; ...`)."""


def _refuse_constant(name: str) -> float:
    raise BadRecord(f"holds {name}, which is not a number in JSON")


_decode = json.JSONDecoder(parse_constant=_refuse_constant).decode


class EventLogWriter:
    """Appends events to a text stream, one line each. Flushing and closing is the stream owner's business."""

    __slots__ = ("_encode", "_stream")

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode

    def write(self, event: Event) -> None:
        """Appends the event; raises ValueError when it holds an infinity or not-a-number."""
        self._stream.write(self._encode(event.as_json()) + "\n")


@contextmanager
def open_event_log(path: Path) -> Iterator[EventLogWriter]:
    """A writer to a new file, which is closed at the end; packed when the name ends in `.gz`."""
    with write_text_stream(path) as stream:
        yield EventLogWriter(stream)


def parse_record(line: str) -> dict[str, JsonValue]:
    """The JSON object on a line; raises BadRecord when it is none."""
    try:
        record = _decode(line)
    except (ValueError, RecursionError) as error:  # ValueError also for a number of more than 4,300 digits
        raise BadRecord(f"is not JSON ({error}): {in_quotes(line.strip())}") from error
    if not isinstance(record, dict):
        raise BadRecord(f"is not a JSON object: {in_quotes(line.strip())}")
    return record


def read_records(path: Path) -> Iterator[dict[str, JsonValue]]:
    """The records of a log as they stand in it, as a stream; raises FormatError at the first bad line."""
    for line_number, line in read_lines(path):
        try:
            yield parse_record(line)
        except BadRecord as error:
            raise FormatError(str(path), [FieldProblem(f"line {line_number}", str(error))]) from error


def event_from_record(record: Mapping[str, JsonValue]) -> Event:
    """The event of a record, the inverse of Event.as_json; raises BadRecord.

    Only the common fields are checked: what a kind's details must be is the validator's knowledge.
    """
    time_s = _number(record, "t")
    if time_s is None:
        raise BadRecord("has no t; every event has its time in seconds")
    kind = record.get("event")
    if not isinstance(kind, str) or kind not in _KINDS:
        hint = suggestion(kind, _KINDS, "kind") if isinstance(kind, str) else "every event names its kind"
        raise BadRecord(f"has event {in_quotes(kind)}, which is no kind of event; {hint}")
    workload, tenant = _text(record, "workload"), _text(record, "tenant")
    region, cluster = _text(record, "region"), _text(record, "cluster")
    return Event(
        t=time_s,
        event=_KINDS[kind],
        workload=WorkloadId(workload) if workload is not None else None,
        attempt=_whole(record, "attempt"),
        tenant=TenantId(tenant) if tenant is not None else None,
        priority=_whole(record, "priority"),
        level=_whole(record, "level"),
        region=RegionId(region) if region is not None else None,
        cluster=ClusterId(cluster) if cluster is not None else None,
        details={field: value for field, value in record.items() if field not in _COMMON_FIELDS},
    )


def _text(record: Mapping[str, JsonValue], field: str) -> str | None:
    value = record.get(field)
    if value is None or isinstance(value, str):
        return value
    raise BadRecord(f"has {field} {in_quotes(value)}, which is not text")


def _number(record: Mapping[str, JsonValue], field: str) -> float | None:
    value = record.get(field)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not -_GREATEST < value < _GREATEST:
        raise BadRecord(f"has {field} {in_quotes(value)}, which is not a finite number")
    return float(value)


def _whole(record: Mapping[str, JsonValue], field: str) -> int | None:
    """JSON has one kind of number, so 3.0 is a whole number too."""
    value = _number(record, field)
    if value is not None and not value.is_integer():
        raise BadRecord(f"has {field} {value}, which is not a whole number")
    return int(value) if value is not None else None
