"""The fields of a record of the log, each read with its type: what docs/events.md promises is not taken on trust."""

from __future__ import annotations

from collections.abc import Mapping

from domain.events import JsonValue

Record = Mapping[str, JsonValue]

GREATEST_WHOLE = 2**53
GREATEST_NUMBER = 1e18
"""Far beyond all that can be meant, and small enough that no sum overflows."""


class BadField(Exception):
    """A field is missing or is not what docs/events.md says; the message is one sentence."""


def text_field(record: Record, field: str) -> str:
    value = record.get(field)
    if isinstance(value, str) and (value.isascii() or _is_unicode(value)):
        return value
    raise _bad(record, field, "text")


def optional_text(record: Record, field: str) -> str | None:
    return None if record.get(field) is None else text_field(record, field)


def flag_field(record: Record, field: str) -> bool:
    value = record.get(field)
    if isinstance(value, bool):
        return value
    raise _bad(record, field, "true or false")


def whole_field(record: Record, field: str, least: int = 0) -> int:
    value = record.get(field)
    if type(value) is int and least <= value <= GREATEST_WHOLE:
        return value
    # JSON has one kind of number: 3.0 is a whole number too.
    if isinstance(value, float) and value.is_integer() and least <= value <= GREATEST_WHOLE:
        return int(value)
    raise _bad(record, field, f"a whole number of at least {least}")


def number_field(record: Record, field: str) -> float:
    """A finite number of at least 0: all amounts and times of the log are."""
    value = record.get(field)
    if (type(value) is float or type(value) is int) and 0 <= value <= GREATEST_NUMBER:
        return value
    raise _bad(record, field, "a finite number of at least 0")


def optional_number(record: Record, field: str) -> float | None:
    return None if record.get(field) is None else number_field(record, field)


def records_field(record: Record, field: str) -> list[Record]:
    """A list of objects."""
    value = record.get(field)
    if isinstance(value, list):
        found: list[Record] = [item for item in value if isinstance(item, dict)]
        if len(found) == len(value):
            return found
    raise _bad(record, field, "a list of objects")


def texts_field(record: Record, field: str) -> list[str]:
    """A list of texts."""
    value = record.get(field)
    if isinstance(value, list):
        found = [item for item in value if isinstance(item, str) and _is_unicode(item)]
        if len(found) == len(value):
            return found
    raise _bad(record, field, "a list of texts")


def wholes_field(record: Record, field: str) -> list[int]:
    """A list of whole numbers of at least 0."""
    value = record.get(field)
    if isinstance(value, list):
        found: list[int] = []
        for item in value:
            if type(item) is int and 0 <= item <= GREATEST_WHOLE:
                found.append(item)
            elif isinstance(item, float) and item.is_integer() and 0 <= item <= GREATEST_WHOLE:
                found.append(int(item))
        if len(found) == len(value):
            return found
    raise _bad(record, field, "a list of whole numbers of at least 0")


def _is_unicode(value: str) -> bool:
    """False for half of a surrogate pair, which JSON can spell but that cannot be printed."""
    return not any("\ud800" <= character <= "\udfff" for character in value)


def _bad(record: Record, field: str, expected: str) -> BadField:
    if field not in record:
        return BadField(f"has no {field}, which must be {expected}")
    shown = repr(record[field])
    return BadField(f"has {field} {shown if len(shown) <= 80 else shown[:80] + '...'}, which must be {expected}")
