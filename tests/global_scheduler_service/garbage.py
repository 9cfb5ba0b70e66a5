"""Messages that no client would send on purpose: strategies made from the descriptors of the protos.

A message starts from a good one (so that what is behind the first check is reached too), and some of its fields, at
any depth, are replaced: extreme numbers, NaN, NUL characters, unknown enum values, long texts, missing and repeated
parts. In the end it may get an unknown field.
"""

from typing import Any, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from hypothesis import strategies as st

MessageT = TypeVar("MessageT", bound=Message)

_INTEGERS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_ENUM: (-(2**31), 2**31 - 1),
}
_MOST_ELEMENTS = 3
_DEEPEST = 5
_UNKNOWN_FIELDS = (b"\xba\x3e\x05hello", b"\xb8\x3e\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\xb9\x3e12345678")
"""Field number 999: a text, a number, eight bytes."""

_texts = st.one_of(
    st.sampled_from(
        [
            "",
            "\0",
            "a\0b",
            "ads",
            "vision",
            "A100",
            "any",
            "cpus",
            "clicks",
            "east",
            "x" * 5_000,
            "é" * 300,
            "🦉",
            "'; DROP TABLE workloads; --",
            "%s%(x)s{}",
            "../../etc/passwd",
            "a\nb",
            " padded ",
            "NULL",
            "\u202e\ufeff\uffff",
        ]
    ),
    st.text(max_size=20),
)
_numbers = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, 1e-320, 1e308, -1e308, float("inf"), float("-inf"), float("nan")]),
    st.floats(),
)


def damaged(good: MessageT) -> st.SearchStrategy[MessageT]:
    """The message with up to four places replaced, now and then with an unknown field."""

    @st.composite
    def strategy(draw: st.DrawFn) -> MessageT:
        message = type(good)()
        message.CopyFrom(good)
        for _ in range(draw(st.integers(1, 4))):
            _damage_somewhere(draw, message)
        unknown = draw(st.sampled_from((b"", *_UNKNOWN_FIELDS)))
        message.MergeFromString(unknown)
        return message

    return strategy()


def _damage_somewhere(draw: st.DrawFn, message: Message) -> None:
    """Walks down at random, then replaces one field."""
    while True:
        field = draw(st.sampled_from(_fields(message)))
        inside = _messages_in(message, field)
        if not inside or draw(st.booleans()):
            _replace(draw, message, field)
            return
        message = draw(st.sampled_from(inside))


def _fields(message: Message) -> list[FieldDescriptor]:
    return [field for field in message.DESCRIPTOR.fields if isinstance(field, FieldDescriptor)]


def _messages_in(message: Message, field: FieldDescriptor) -> list[Message]:
    if field.cpp_type != FieldDescriptor.CPPTYPE_MESSAGE or _is_map(field):
        return []
    value = getattr(message, field.name)
    if field.is_repeated:
        return list(value)
    return [value] if message.HasField(field.name) else []


def _replace(draw: st.DrawFn, message: Message, field: FieldDescriptor, depth: int = 0) -> None:
    """Gives the field another value, or none."""
    how = draw(st.integers(0, 4))
    if how == 0:
        message.ClearField(field.name)
    elif _is_map(field):
        _fill_map(draw, getattr(message, field.name), field, depth)
    elif field.is_repeated:
        if how == 1:
            message.ClearField(field.name)
        _extend(draw, getattr(message, field.name), field, depth)
    elif field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        inner = getattr(message, field.name)
        inner.SetInParent()
        _fill(draw, inner, depth + 1)
    else:
        setattr(message, field.name, draw(_scalar(field)))


def _fill(draw: st.DrawFn, message: Message, depth: int) -> None:
    if depth < _DEEPEST:
        for field in _fields(message):
            if draw(st.booleans()):
                _replace(draw, message, field, depth)


def _extend(draw: st.DrawFn, container: Any, field: FieldDescriptor, depth: int) -> None:
    for _ in range(draw(st.integers(0, _MOST_ELEMENTS))):
        if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
            if container and draw(st.booleans()):
                container.add().CopyFrom(container[0])  # the same again
            else:
                _fill(draw, container.add(), depth + 1)
        else:
            container.append(draw(_scalar(field)))


def _fill_map(draw: st.DrawFn, container: Any, field: FieldDescriptor, depth: int) -> None:
    assert field.message_type is not None
    keys, values = (field.message_type.fields_by_name[name] for name in ("key", "value"))
    for _ in range(draw(st.integers(0, _MOST_ELEMENTS))):
        key = draw(_scalar(keys))
        if values.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
            _fill(draw, container[key], depth + 1)
        else:
            container[key] = draw(_scalar(values))


def _scalar(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    if field.cpp_type in _INTEGERS:
        least, greatest = _INTEGERS[field.cpp_type]
        interesting = [least, greatest, -1, 0, 1, 2, 7, 62, 63, 100_000, 2**31 - 1]
        return st.one_of(st.sampled_from(interesting), st.integers(least, greatest))
    by_type: dict[int, st.SearchStrategy[Any]] = {
        FieldDescriptor.CPPTYPE_DOUBLE: _numbers,
        FieldDescriptor.CPPTYPE_BOOL: st.booleans(),
        FieldDescriptor.CPPTYPE_STRING: _texts,
    }
    return by_type[field.cpp_type]


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry
