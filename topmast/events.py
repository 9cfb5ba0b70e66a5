"""The event log as the client reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from google.protobuf import struct_pb2

from topmast.v1 import event_pb2

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened. `sequence` is its place in the log; `t` is seconds since the epoch, service's clock.

    `event` is its kind, `details` what only some kinds have; docs/events.md describes all of them.
    """

    sequence: int
    t: float
    event: str
    workload: str | None = None
    attempt: int | None = None
    tenant: str | None = None
    priority: int | None = None
    level: int | None = None
    region: str | None = None
    cluster: str | None = None
    details: Mapping[str, JsonValue] = field(default_factory=dict)

    def as_json(self) -> dict[str, JsonValue]:
        """The line of the event log: fields that do not apply are left out, and so is the place in the log."""
        record: dict[str, JsonValue] = {"t": self.t, "event": self.event}
        for name in ("workload", "attempt", "tenant", "priority", "level", "region", "cluster"):
            value = getattr(self, name)
            if value is not None:
                record[name] = value
        record.update(self.details)
        return record


def event_from_proto(message: event_pb2.Event) -> Event:
    return Event(
        message.sequence,
        message.t,
        message.event,
        message.workload or None,
        message.attempt if message.HasField("attempt") else None,
        message.tenant or None,
        message.priority if message.HasField("priority") else None,
        message.level if message.HasField("level") else None,
        message.region or None,
        message.cluster or None,
        {name: _json_value(value) for name, value in sorted(message.details.fields.items())},
    )


def _json_value(value: struct_pb2.Value) -> JsonValue:
    match value.WhichOneof("kind"):
        case "number_value":
            # A Struct has no integers; in the log there are (GPU indices, attempt numbers).
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
