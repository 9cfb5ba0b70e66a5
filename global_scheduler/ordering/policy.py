"""The shape of an ordering policy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, Protocol

from global_scheduler.arithmetic import Floats, Numbers
from global_scheduler.knowledge import Knowledge, PolicyInput, PolicyView


class OrderingInput(PolicyInput[Numbers], Protocol, Generic[Numbers]):
    """What an ordering policy looks at: one workload that waits, or all that do."""

    @property
    def credit(self) -> Numbers:
        """MAST's Expressions 10 and 11; zero in simulations without scan passes."""
        ...


@dataclass(slots=True, eq=False)
class QueueView(PolicyView):
    """The workloads that wait; one element per workload in each array."""

    credit: Floats = field(kw_only=True)


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

    def ordering_credit(self, queue: OrderingInput[Numbers]) -> Numbers:
        """One finite number per workload; the greatest goes first.

        A workload's number may depend on that workload and on `now` alone, not on where it stands among the others.
        To be written for columns and for one workload at once: with operators and `queue.arithmetic`.
        """
        ...
