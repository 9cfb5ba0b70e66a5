"""Passwords and tokens in texts for people: hidden in whatever a log, a record or an answer says."""

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


_TOKEN = re.compile(r"(?P<before>topmast_[0-9a-f]{16}_)[0-9a-f]{64}")
"""A whole bearer token; its id may be read."""


def without_passwords(text: str) -> str:
    """The text with every password of an URL or of libpq's parameters hidden, and what is secret of bearer tokens."""
    hidden = _IN_URL.sub(rf"\g<before>:{_HIDDEN}@", text)
    hidden = _IN_PARAMETERS.sub(rf"\g<before>{_HIDDEN}", hidden)
    return _TOKEN.sub(rf"\g<before>{_HIDDEN}", hidden)


def hide_passwords(_logger: object, _method: str, event: MutableMapping[str, Any]) -> dict[str, Any]:
    """For structlog: the same in every value of a line, before it is written."""
    return {name: without_passwords_within(value) for name, value in event.items()}


def without_passwords_within(value: Any) -> Any:
    """The same in every text of a document."""
    match value:
        case str():
            return without_passwords(value)
        case dict():
            return {name: without_passwords_within(one) for name, one in value.items()}
        case list() | tuple():
            return [without_passwords_within(one) for one in value]
        case _:
            return value
