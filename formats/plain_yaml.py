"""YAML that holds no surprises, read without a tree of its nodes: a list of a million machines is as large as its values.

A document of mappings, lists and scalars is put together from the parser's events. What is not as plain as that (anchors, tags,
keys that are not text or are there twice, deep nesting, mistakes) is left to the reader that can say what is wrong, and where.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import yaml

if TYPE_CHECKING:
    Loader: TypeAlias = yaml.SafeLoader | yaml.CSafeLoader

_TEXT = "tag:yaml.org,2002:str"
_MOST_REMEMBERED = 10_000


class _NotPlain(Exception):
    """The other reader must look at it."""


def plain_documents(text: str, load: Callable[[str], Loader], deepest: int) -> list[object] | None:
    """All documents of the text, as the loader constructs them; None where they are not plain."""
    try:
        loader = load(text)
        try:
            return _Reader(loader, deepest).documents()
        finally:
            loader.dispose()
    except (_NotPlain, yaml.YAMLError, ValueError, OverflowError):
        return None


class _Reader:
    def __init__(self, loader: Loader, deepest: int) -> None:
        self._loader = loader
        self._deepest = deepest
        self._values: dict[str, object] = {}
        """What plain scalars that are no text mean: they come again and again."""
        self._keys: dict[str, str] = {}
        """Keys come again and again too: each is kept once."""

    def documents(self) -> list[object]:
        found: list[object] = []
        self._next()  # the beginning of the stream
        while isinstance(self._next(), yaml.DocumentStartEvent):
            found.append(self._value(self._next(), 1))
            self._next()  # the end of the document
        return found

    def _next(self) -> yaml.Event:
        event = self._loader.get_event()
        if event is None:
            raise _NotPlain
        return event

    def _value(self, event: yaml.Event, depth: int) -> object:
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event)
        if not isinstance(event, yaml.CollectionStartEvent):
            raise _NotPlain  # an alias
        if event.anchor is not None or event.tag is not None or depth > self._deepest:
            raise _NotPlain
        return self._mapping(depth) if isinstance(event, yaml.MappingStartEvent) else self._list(depth)

    def _list(self, depth: int) -> list[object]:
        items: list[object] = []
        while not isinstance(event := self._next(), yaml.SequenceEndEvent):
            items.append(self._value(event, depth + 1))
        return items

    def _mapping(self, depth: int) -> dict[str, object]:
        entries: dict[str, object] = {}
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            key = self._scalar(event) if isinstance(event, yaml.ScalarEvent) else None
            if not isinstance(key, str) or key in entries:
                raise _NotPlain
            entries[self._keys.setdefault(key, key)] = self._value(self._next(), depth + 1)
        return entries

    def _scalar(self, event: yaml.ScalarEvent) -> object:
        if event.anchor is not None or event.tag is not None:
            raise _NotPlain
        text: str = event.value
        if not event.implicit[0]:
            return text  # in quotes
        if text in self._values:
            return self._values[text]
        tag = self._loader.resolve(yaml.ScalarNode, text, event.implicit)  # type: ignore[no-untyped-call]  # PyYAML gives it no types
        if tag == _TEXT:
            return text
        value: object = self._loader.construct_document(yaml.ScalarNode(tag, text))
        if len(self._values) < _MOST_REMEMBERED:
            self._values[text] = value
        return value
