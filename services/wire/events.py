"""Events of the log, both ways.

A message carries `details` as a Struct, whose only numbers are doubles: whole numbers come back as int, so that
`"gpus": [0, 1]` stays what it was (exact up to 2**53).
"""

from __future__ import annotations

from google.protobuf import struct_pb2

from domain.events import Event, EventKind, JsonValue
from domain.identifiers import ClusterId, RegionId, TenantId, WorkloadId
from services.wire.malformed_message import MalformedMessage
from topmast.v1 import event_pb2


def event_to_proto(event: Event, sequence: int) -> event_pb2.Event:
    """The message of an event that stands at `sequence` in the log."""
    message = event_pb2.Event(
        sequence=sequence,
        t=event.t,
        event=event.event.value,
        workload=event.workload or "",
        attempt=event.attempt,
        tenant=event.tenant or "",
        priority=event.priority,
        level=event.level,
        region=event.region or "",
        cluster=event.cluster or "",
    )
    if event.details:
        message.details.update(event.details)
    return message


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


def _kind(name: str) -> EventKind:
    try:
        return EventKind(name)
    except ValueError:
        raise MalformedMessage.of("event", f"'{name}' is no kind of event that this version knows") from None


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
