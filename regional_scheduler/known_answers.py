"""What mechanisms have answered, as long as nothing has changed."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

ANSWERS_REMEMBERED = 1_024
"""Of one cluster, or of several together, in one state; when there are more, all are forgotten."""

Answer = TypeVar("Answer")


@dataclass(slots=True)
class Answers(Generic[Answer]):
    """What one cluster, or several, have answered since they changed."""

    revision: int = 0
    known: dict[Hashable, Answer] = field(default_factory=dict)

    def known_at(self, revision: int) -> dict[Hashable, Answer]:
        """The answers in this state, with space for one more."""
        if self.revision != revision or len(self.known) >= ANSWERS_REMEMBERED:
            self.revision = revision
            self.known.clear()
        return self.known
