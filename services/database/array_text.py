"""Arrays as PostgreSQL writes them, for statements that take very many values: the driver adapts them one by one, twenty
times as slowly where they are JSON.
"""

from __future__ import annotations

from collections.abc import Iterable


def text_array(values: Iterable[str | None]) -> str:
    """These texts as a parameter for `%s::text[]`, or for an array of a type that is read from text, as `jsonb[]`."""
    return "{" + ",".join([_quoted(value) for value in values]) + "}"


def number_array(values: Iterable[float | None]) -> str:
    """These numbers, or truth values, as a parameter for `%s::float8[]` and the like; exact to the last bit."""
    return "{" + ",".join(["NULL" if value is None else str(value) for value in values]) + "}"


def _quoted(value: str | None) -> str:
    if value is None:
        return "NULL"
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
