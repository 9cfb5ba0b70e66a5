"""Messages out of what callers say: whatever does not fit is refused by the name of its field, before anything is sent."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, SupportsIndex, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from topmast.errors import InvalidArgumentError

if TYPE_CHECKING:
    from google._upb._message import FieldDescriptor as FastFieldDescriptor

    AnyField = FieldDescriptor | FastFieldDescriptor

Fields = ParamSpec("Fields")
Built = TypeVar("Built", bound=Message)
Element = TypeVar("Element")
Kind = TypeVar("Kind")

_DOES_NOT_FIT = (TypeError, ValueError, OverflowError)
"""What protobuf raises for a value that a field cannot hold, without saying which field that is."""

_MOST_SHOWN_CHARACTERS = 60

_WHOLE_NUMBERS = {
    FieldDescriptor.TYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.TYPE_UINT64: (0, 2**64 - 1),
}


def message_of(kind: Callable[Fields, Built], /, *none: Fields.args, **fields: Fields.kwargs) -> Built:
    """The message with these fields; raises InvalidArgumentError that names every field whose value does not fit."""
    try:
        return kind(*none, **fields)
    except _DOES_NOT_FIT:
        raise _refusal(kind, fields) from None


def message_list(
    field: str, kind: type[Kind] | tuple[type[Kind], ...], values: Iterable[Kind], to_proto: Callable[[Kind], Built]
) -> list[Built]:
    """A message for each value; what is wrong with one is told as of `field[index]`. Raises InvalidArgumentError."""
    messages = []
    for index, value in enumerate(elements(field, values)):
        if not isinstance(value, kind):
            named = kind[0].__name__ if isinstance(kind, tuple) else kind.__name__
            raise refused(f"{field}[{index}]", f"must be a {named}, not {shown(value)}")
        try:
            messages.append(to_proto(value))
        except InvalidArgumentError as error:
            raise error.under(f"{field}[{index}].") from None
    return messages


def part(field: str, kind: type[Kind], value: Kind | None, to_proto: Callable[[Kind], Built]) -> Built | None:
    """The message for a value that may be left out; what is wrong with it is told as of `field`."""
    if value is None:
        return None
    if not isinstance(value, kind):
        raise refused(field, f"must be a {kind.__name__}, not {shown(value)}")
    try:
        return to_proto(value)
    except InvalidArgumentError as error:
        raise error.under(f"{field}.") from None


def elements(field: str, values: Iterable[Element]) -> Iterable[Element]:
    """The same values; raises InvalidArgumentError where one text, a mapping, or no collection at all was given."""
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise refused(field, f"must be a list, not {shown(values)}")
    return values


def strings(field: str, values: Sequence[str]) -> tuple[str, ...]:
    """The texts of a list; raises InvalidArgumentError for one text in its place, and for elements that are none."""
    if isinstance(values, str):
        raise refused(field, f"must be a list of strings, not the one string {shown(values)}")
    texts = tuple(elements(field, values))
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise refused(f"{field}[{index}]", f"must be text, not {shown(text)}")
    return texts


def mapping(field: str, values: Mapping[Element, Kind]) -> Mapping[Element, Kind]:
    """The same mapping; raises InvalidArgumentError for anything else."""
    if not isinstance(values, Mapping):
        raise refused(field, f"must be a mapping, not {shown(values)}")
    return values


def whole_number(field: str, value: object, *, least: int) -> int | None:
    """The same number, or None for none; raises InvalidArgumentError for anything else, and for less."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= least):
        return value
    raise refused(field, f"must be a whole number from {least}, or None, not {shown(value)}")


def existing_folder(field: str, folder: str | os.PathLike[str]) -> Path:
    """The folder; raises InvalidArgumentError where none is."""
    path = local_path(field, folder)
    try:
        there = path.is_dir()
    except OSError as error:
        raise refused(field, f"{shown(str(path))} cannot be looked at: {error.strerror}") from error
    if not there:
        raise refused(field, f"there is no folder {shown(str(path))}")
    return path


def local_path(field: str, path: str | os.PathLike[str]) -> Path:
    """The path; raises InvalidArgumentError for what is none."""
    if not isinstance(path, (str, os.PathLike)):
        raise refused(field, f"must be a path, not {shown(path)}")
    if not os.fspath(path) or "\0" in str(path):
        raise refused(field, f"must be a path, not {shown(str(path))}")
    return Path(path)


def refused(field: str, description: str) -> InvalidArgumentError:
    """The error that says what is wrong with one field."""
    return InvalidArgumentError.of([(field, description)])


def shown(value: object) -> str:
    """The value as a message shows it: quoted, escaped and cut."""
    try:
        text = ascii(value)
    except Exception:  # noqa: BLE001 - a foreign object whose repr fails, or a number with too many digits
        text = f"a {type(value).__name__}"
    return text if len(text) <= _MOST_SHOWN_CHARACTERS else f"{text[:_MOST_SHOWN_CHARACTERS]}..."


def _refusal(kind: Callable[..., Built], fields: Mapping[str, object]) -> InvalidArgumentError:
    problems = []
    for name, value in fields.items():
        try:
            kind(**{name: value})
        except _DOES_NOT_FIT:
            problems.append(_problem(kind().DESCRIPTOR.fields_by_name[name], name, value))
    return InvalidArgumentError.of(problems)


def _problem(field: AnyField, path: str, value: object) -> tuple[str, str]:
    """The path of what does not fit, as near as possible, and what it should be."""
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        if not isinstance(value, Mapping):
            return path, f"must be a mapping, not {shown(value)}"
        parts = field.message_type.fields_by_name
        for key, element in value.items():
            for half, found in (("key", key), ("value", element)):
                if not _fits(parts[half], found):
                    return f"{path}[{shown(key)}]", f"its {half} {_expected(parts[half], found)}"
        return path, f"does not fit: {shown(value)}"
    if field.is_repeated:
        if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
            return path, f"must be a list, not {shown(value)}"
        for index, element in enumerate(value):
            if not _fits(field, element):
                return f"{path}[{index}]", _expected(field, element)
        return path, f"does not fit: {shown(value)}"
    return path, _expected(field, value)


def _fits(field: AnyField, value: object) -> bool:
    """Whether a single value fits into a field, by what its kind of field takes."""
    if value is None:
        return False
    if field.type in _WHOLE_NUMBERS:
        least, greatest = _WHOLE_NUMBERS[field.type]
        return isinstance(value, SupportsIndex) and not isinstance(value, bool) and least <= int(value) <= greatest
    if field.type in (FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FLOAT):
        return isinstance(value, (int, float)) and (isinstance(value, float) or abs(value) < 2**1023)
    if field.type == FieldDescriptor.TYPE_STRING:
        return isinstance(value, str) and not _has_surrogate(value)
    return not isinstance(value, (str, float))


def _expected(field: AnyField, value: object) -> str:
    if field.type in _WHOLE_NUMBERS:
        least, greatest = _WHOLE_NUMBERS[field.type]
        if isinstance(value, int) and not isinstance(value, bool):
            return f"is {shown(value)}; " + (
                f"at most {greatest} goes" if value > greatest else f"at least {least} goes"
            )
        return f"must be a whole number, not {shown(value)}"
    if field.type in (FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FLOAT):
        return f"must be a number, not {shown(value)}"
    if field.type == FieldDescriptor.TYPE_STRING:
        if isinstance(value, str) and _has_surrogate(value):
            return "has half of a surrogate pair, which is not a character; remove it"
        return f"must be text, not {shown(value)}"
    if field.type == FieldDescriptor.TYPE_BOOL:
        return f"must be True or False, not {shown(value)}"
    if field.type == FieldDescriptor.TYPE_BYTES:
        return f"must be bytes, not {shown(value)}"
    return f"cannot be {shown(value)}"


def _has_surrogate(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)
