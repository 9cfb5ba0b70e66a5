"""What is raised when a message has no value of the domain at all."""

from __future__ import annotations

from collections.abc import Sequence

from formats.problems import FieldProblem


class MalformedMessage(ValueError):
    """A message that cannot be turned into a value of the domain; bad *values* are left to the checks.

    Paths of fields start at the message that was converted; `under` puts them below a field of an outer one.
    """

    def __init__(self, problems: Sequence[FieldProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(str(problem) for problem in self.problems))

    @staticmethod
    def of(field: str, description: str) -> MalformedMessage:
        return MalformedMessage((FieldProblem(field, description),))

    def under(self, parent: str) -> MalformedMessage:
        """The same, seen from the message that holds this one in its field `parent`."""
        return MalformedMessage(
            tuple(FieldProblem(f"{parent}.{problem.field}", problem.description) for problem in self.problems)
        )
