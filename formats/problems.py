"""What is wrong with an input, one problem at a time: which field, why, and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from dataclasses import dataclass

SHOWN_PROBLEMS = 50
"""A message lists at most this many problems; the error holds all of them."""


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """One problem. `field` is a path such as `jobs[0].resources.gpus`, empty when it is the whole document."""

    field: str
    description: str

    def __str__(self) -> str:
        return f"{self.field}: {self.description}" if self.field else self.description


class FormatError(Exception):
    """An input that cannot be used. `source` is the file's name; there is at least one problem."""

    def __init__(self, source: str, problems: Sequence[FieldProblem]) -> None:
        self.source = source
        self.problems = tuple(problems)
        lines = [f"{source}: {problem}" for problem in self.problems[:SHOWN_PROBLEMS]]
        if len(self.problems) > SHOWN_PROBLEMS:
            lines.append(f"{source}: and {len(self.problems) - SHOWN_PROBLEMS} more problems")
        super().__init__("\n".join(lines))


class UnreadableInput(FormatError):
    """A file or folder that is not there, or cannot be read."""


def in_quotes(value: object, longest: int = 60) -> str:
    """The value as a message shows it: quoted, escaped and cut."""
    if isinstance(value, str) and len(value) > longest:
        return f"{value[:longest]!r}... ({len(value)} characters)"
    shown = repr(value)
    return shown if len(shown) <= longest + 20 else f"{shown[:longest]}..."


def listed(names: Sequence[str], most: int = 5) -> str:
    """The first of the names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def suggestion(name: str, known: Collection[str], what: str) -> str:
    """The half-sentence that helps with an unknown name: what was probably meant, else what there is."""
    close = difflib.get_close_matches(name[:128], sorted(known), n=3, cutoff=0.6)
    if close:
        return f"did you mean {' or '.join(close)}?"
    if not known:
        return f"there is no {what} at all"
    return f"known: {listed(sorted(known), 10)}"
