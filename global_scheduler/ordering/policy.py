"""The shape of an ordering policy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from global_scheduler.knowledge import Floats, Knowledge, PolicyView


@dataclass(frozen=True, slots=True, eq=False)
class OrderingInput(PolicyView):
    """What an ordering policy looks at: the workloads that wait."""

    credit: Floats = field(kw_only=True)
    """MAST's Expressions 10 and 11; zeros in simulations without scan passes."""


class OrderingPolicy(Protocol):
    """Sorts the workloads of one (priority, level)."""

    @property
    def name(self) -> str:
        """What the settings call it."""
        ...

    @property
    def needs(self) -> Knowledge:
        """What it must know."""
        ...

    def ordering_credit(self, queue: OrderingInput) -> Floats:
        """One finite number per entry; the greatest goes first.

        An entry's number may depend on that entry and on `now` alone, not on where it stands among the others.
        """
        ...
