"""How many elements the repeated fields of a request may have, checked before anything is made of them.

An empty element is two bytes on the wire, a hundred in memory, and many microseconds of work: so large requests are counted
while they are bytes (`count_in_bytes`), and all of them before they are turned into values (`count_in_message`). The
checks behind the door, which know what a field is for, are stricter and say more; these keep them from being overrun.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from formats.problems import FieldProblem
from services.wire.malformed_message import MalformedMessage

USUAL_COUNT = 4_096
"""Of the elements of a repeated field that is not named here."""

GREATEST_PLANS = 1_000
GREATEST_REFERENCES = 10_000
GREATEST_ELEMENTS = 500_000
"""In a request altogether."""

_TASKS = 100_000
_NAMED_FLEETS = 100_000

GREATEST_COUNTS: Mapping[str, int] = {
    "topmast.v1.ExecutePlanRequest.plans": GREATEST_PLANS,
    "topmast.v1.AttemptPlan.placements": _TASKS,
    "topmast.v1.ResizeAttemptRequest.placements": _TASKS,
    "topmast.v1.StopAttemptRequest.attempts": GREATEST_REFERENCES,
    "topmast.v1.ForgetAttemptsRequest.attempts": GREATEST_REFERENCES,
    "topmast.v1.CancelWorkloadsRequest.workloads": _TASKS,
    "topmast.v1.HoldWorkloadsRequest.workloads": _TASKS,
    "topmast.v1.ReleaseWorkloadsRequest.workloads": _TASKS,
    "topmast.v1.RequeueWorkloadsRequest.workloads": _TASKS,
    "topmast.v1.ChangeWorkloadsRequest.workloads": _TASKS,
    "topmast.v1.Cluster.racks": _NAMED_FLEETS,
    "topmast.v1.Rack.machines": _NAMED_FLEETS,
    "topmast.v1.CellHierarchy.machines": _NAMED_FLEETS,
    "topmast.v1.Fleet.tables": GREATEST_ELEMENTS,
    "topmast.v1.TenantList.tenants": _NAMED_FLEETS,
    "topmast.v1.ApplyTenantsRequest.tenants": _NAMED_FLEETS,
    "topmast.v1.VirtualCluster.cells": _NAMED_FLEETS,
    "topmast.v1.VirtualCluster.pinned": _NAMED_FLEETS,
    "topmast.v1.DrainMachinesRequest.machines": _NAMED_FLEETS,
    "topmast.v1.UndrainMachinesRequest.machines": _NAMED_FLEETS,
    "topmast.v1.ReclaimMachinesRequest.machines": _NAMED_FLEETS,
}
"""By the full name of the field."""

COUNTED_IN_BYTES = 16 * 1024
"""Shorter requests have too few elements for it to matter how many they are while they are bytes."""

_DESCENDED_BYTES = 4 * 1024
"""The same of parts of a request."""

_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True, slots=True)
class _Counted:
    """A field that is repeated, or in which something is."""

    name: str
    repeated: bool
    greatest: int
    within: CountedFields | None
    """Of its messages; None where nothing in them is repeated."""


@dataclass(slots=True)
class CountedFields:
    """The fields of a message that are counted, by their number."""

    fields: dict[int, _Counted]


def counted_fields(descriptor: Descriptor) -> CountedFields:
    """What is to be counted in requests of this type; empty where nothing is repeated in them."""
    return _counted(descriptor, {})


def _counted(descriptor: Descriptor, known: dict[str, CountedFields]) -> CountedFields:
    found = known.get(descriptor.full_name)
    if found is not None:  # messages may hold messages of their own kind
        return found
    found = known[descriptor.full_name] = CountedFields({})
    for field in descriptor.fields:
        held = _message_of(field)
        within = _counted(held, known) if held is not None else None
        if within is not None and not within.fields and within is not found:
            within = None  # nothing is repeated there
        if field.is_repeated or within is not None:
            greatest = GREATEST_COUNTS.get(field.full_name, USUAL_COUNT)
            found.fields[field.number] = _Counted(field.name, field.is_repeated, greatest, within)
    return found


def _message_of(field: FieldDescriptor) -> Descriptor | None:
    """The type of its messages, if it holds any: the entries of a map are none to those who read it."""
    held = field.message_type
    return None if held is None or held.GetOptions().map_entry else held


def count_in_bytes(data: bytes, counted: CountedFields) -> None:
    """Raises MalformedMessage as soon as a repeated field has too many elements. What is no message is left to the parser."""
    try:
        _count_in_bytes(data, 0, len(data), counted, "")
    except IndexError:
        return  # it breaks off


def _count_in_bytes(data: bytes, position: int, end: int, counted: CountedFields, path: str) -> None:
    fields, seen = counted.fields, dict.fromkeys(counted.fields, 0)
    while position < end:
        tag, position = _varint(data, position)
        number, kind = tag >> 3, tag & 7
        start = position
        if kind == _VARINT:
            _, position = _varint(data, position)
        elif kind == _DELIMITED:
            size, start = _varint(data, position)
            position = start + size
        elif kind in (_FIXED32, _FIXED64):
            position += 4 if kind == _FIXED32 else 8
        else:
            return  # no message
        field = fields.get(number)
        if field is None:
            continue
        if field.repeated:
            seen[number] += 1
            if seen[number] > field.greatest:
                raise _too_many(path + field.name, "more than " + format(field.greatest, ","), field.greatest)
        if field.within is not None and kind == _DELIMITED and position - start > _DESCENDED_BYTES:
            index = f"[{seen[number] - 1}]" if field.repeated else ""
            _count_in_bytes(data, start, min(position, end), field.within, f"{path}{field.name}{index}.")


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """The number there, and where it ends. Raises IndexError where it breaks off."""
    byte = data[position]
    position += 1
    if byte < 128:
        return byte, position
    number, shift = byte & 127, 7
    while True:
        byte = data[position]
        position += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, position
        shift += 7
        if shift > 63:
            raise IndexError


def count_in_message(message: Message, counted: CountedFields) -> None:
    """Raises MalformedMessage when a repeated field has too many elements, or all of them together."""
    if counted.fields:
        _count_in_message(message, counted, "", 0)


def _count_in_message(message: Any, counted: CountedFields, path: str, before: int) -> int:
    """How many elements there are with those before."""
    for field in counted.fields.values():
        if not field.repeated:
            if field.within is not None and message.HasField(field.name):
                before = _count_in_message(getattr(message, field.name), field.within, f"{path}{field.name}.", before)
            continue
        elements = getattr(message, field.name)
        count = len(elements)
        if not count:
            continue
        if count > field.greatest:
            raise _too_many(path + field.name, f"{count:,}", field.greatest)
        before += count
        if before > GREATEST_ELEMENTS:
            raise MalformedMessage.of(
                path + field.name,
                f"bring the request to {before:,} elements; at most {GREATEST_ELEMENTS:,} are possible: send it in parts",
            )
        if field.within is not None:
            for index, element in enumerate(elements):
                before = _count_in_message(element, field.within, f"{path}{field.name}[{index}].", before)
    return before


def _too_many(path: str, count: str, greatest: int) -> MalformedMessage:
    return MalformedMessage((FieldProblem(path, f"are {count}; at most {greatest:,} are possible at a time"),))
