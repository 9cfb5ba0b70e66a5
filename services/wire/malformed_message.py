"""What is raised when a message has no value of the domain at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class FieldViolation(NamedTuple):
    """One bad field: its path in the message (`jobs[0].entry_point`) and what is wrong with it."""

    field: str
    description: str


class MalformedMessage(ValueError):
    """A message that cannot be turned into a value of the domain; bad *values* are left to the checks.

    Paths of fields start at the message that was converted; `under` puts them below a field of an outer one.
    """

    def __init__(self, violations: Sequence[FieldViolation]) -> None:
        self.violations = tuple(violations)
        super().__init__("; ".join(f"{violation.field}: {violation.description}" for violation in self.violations))

    @staticmethod
    def of(field: str, description: str) -> MalformedMessage:
        return MalformedMessage((FieldViolation(field, description),))

    def under(self, parent: str) -> MalformedMessage:
        """The same, told from the message that holds this one in its field `parent`."""
        return MalformedMessage(
            tuple(FieldViolation(f"{parent}.{violation.field}", violation.description) for violation in self.violations)
        )
