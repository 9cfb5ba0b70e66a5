"""Passwords in texts for people: hidden in whatever a log, a record or an answer says of an URL."""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from typing import Any, Final

_HIDDEN: Final = "***"
# No two places of a text are looked at from the same beginning: users may have long texts logged.
_IN_URL = re.compile(r"(?P<before>://[^\s:/@?#'\"]*+):(?P<password>[^\s/]+)@")
_IN_PARAMETERS = re.compile(
    r"(?P<before>password\s*+=\s*+)('(?:[^'\\]|\\.)*+'|\"(?:[^\"\\]|\\.)*+\"|[^\s&'\"]++)", re.IGNORECASE
)


def without_passwords(text: str) -> str:
    """The text with every password of an URL or of libpq's parameters hidden."""
    hidden = _IN_URL.sub(rf"\g<before>:{_HIDDEN}@", text)
    return _IN_PARAMETERS.sub(rf"\g<before>{_HIDDEN}", hidden)


def hide_passwords(_logger: object, _method: str, event: MutableMapping[str, Any]) -> dict[str, Any]:
    """For structlog: the same in every value of a line, before it is written."""
    return {name: _hidden(value) for name, value in event.items()}


def _hidden(value: Any) -> Any:
    match value:
        case str():
            return without_passwords(value)
        case dict():
            return {name: _hidden(one) for name, one in value.items()}
        case list() | tuple():
            return [_hidden(one) for one in value]
        case _:
            return value
