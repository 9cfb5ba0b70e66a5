"""Events of the log: domain value, message, database row.

A message carries `details` as a Struct, whose only numbers are doubles: whole numbers come back as int, so that
`"gpus": [0, 1]` stays what it was (exact up to 2**53).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from google.protobuf import struct_pb2

from domain.events import Event, EventKind, JsonValue
from domain.identifiers import ClusterId, RegionId, TenantId, WorkloadId
from services.wire.malformed_message import MalformedMessage
from topmast.v1 import event_pb2


def event_to_proto(event: Event, sequence: int) -> event_pb2.Event:
    """The message of an event that stands at `sequence` in the log."""
    return _message(
        sequence,
        event.t,
        event.event.value,
        event.workload,
        event.attempt,
        event.tenant,
        event.priority,
        event.level,
        event.region,
        event.cluster,
        event.details,
    )


def event_from_proto(message: event_pb2.Event) -> Event:
    """The event without its place in the log; raises MalformedMessage for a kind that this version does not know."""
    return Event(
        message.t,
        _kind(message.event),
        WorkloadId(message.workload) if message.workload else None,
        message.attempt if message.HasField("attempt") else None,
        TenantId(message.tenant) if message.tenant else None,
        message.priority if message.HasField("priority") else None,
        message.level if message.HasField("level") else None,
        RegionId(message.region) if message.region else None,
        ClusterId(message.cluster) if message.cluster else None,
        {name: _json_value(value) for name, value in sorted(message.details.fields.items())},
    )


def event_row_to_proto(row: Mapping[str, object]) -> event_pb2.Event:
    """The message of a row of table `events`: its columns by name, `details` as decoded JSON."""
    return _message(
        cast("int", row["sequence"]),
        cast("float", row["t"]),
        cast("str", row["event"]),
        cast("str | None", row["workload"]),
        cast("int | None", row["attempt"]),
        cast("str | None", row["tenant"]),
        cast("int | None", row["priority"]),
        cast("int | None", row["level"]),
        cast("str | None", row["region"]),
        cast("str | None", row["cluster"]),
        cast("Mapping[str, JsonValue]", row["details"]),
    )


def event_from_row(row: Mapping[str, object]) -> Event:
    """The event of a row of table `events`; raises MalformedMessage for a kind that this version does not know."""
    return Event(
        cast("float", row["t"]),
        _kind(cast("str", row["event"])),
        cast("WorkloadId | None", row["workload"]),
        cast("int | None", row["attempt"]),
        cast("TenantId | None", row["tenant"]),
        cast("int | None", row["priority"]),
        cast("int | None", row["level"]),
        cast("RegionId | None", row["region"]),
        cast("ClusterId | None", row["cluster"]),
        cast("Mapping[str, JsonValue]", row["details"]),
    )


def event_to_row(event: Event, sequence: int) -> dict[str, object]:
    """The row of table `events` that `event_from_row` turns into the same event again."""
    return {
        "sequence": sequence,
        "t": event.t,
        "event": event.event.value,
        "workload": event.workload,
        "attempt": event.attempt,
        "tenant": event.tenant,
        "priority": event.priority,
        "level": event.level,
        "region": event.region,
        "cluster": event.cluster,
        "details": dict(event.details),
    }


def _kind(name: str) -> EventKind:
    try:
        return EventKind(name)
    except ValueError:
        raise MalformedMessage.of("event", f"'{name}' is no kind of event that this version knows") from None


def _message(
    sequence: int,
    t: float,
    event: str,
    workload: str | None,
    attempt: int | None,
    tenant: str | None,
    priority: int | None,
    level: int | None,
    region: str | None,
    cluster: str | None,
    details: Mapping[str, JsonValue],
) -> event_pb2.Event:
    message = event_pb2.Event(
        sequence=sequence,
        t=t,
        event=event,
        workload=workload or "",
        attempt=attempt,
        tenant=tenant or "",
        priority=priority,
        level=level,
        region=region or "",
        cluster=cluster or "",
    )
    if details:
        message.details.update(details)
    return message


def _json_value(value: struct_pb2.Value) -> JsonValue:
    match value.WhichOneof("kind"):
        case "number_value":
            number = value.number_value
            return int(number) if number.is_integer() else number
        case "string_value":
            return value.string_value
        case "bool_value":
            return value.bool_value
        case "list_value":
            return [_json_value(element) for element in value.list_value.values]
        case "struct_value":
            return {name: _json_value(element) for name, element in sorted(value.struct_value.fields.items())}
        case _:
            return None
