"""The shape of an ordering policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from global_scheduler.scan_view import PendingColumns


@dataclass(frozen=True, slots=True, eq=False)
class OrderingInput:
    """What a policy may look at."""

    pending: PendingColumns
    credit: NDArray[np.float64]
    """By entry: MAST's Expressions 10 and 11."""
    now: float


class OrderingPolicy(Protocol):
    """Sorts the workloads of one (priority, level)."""

    @property
    def name(self) -> str:
        """What the settings call it."""
        ...

    def ordering_credit(self, queue: OrderingInput) -> NDArray[np.float64]:
        """One finite number per entry; the greatest goes first.

        An entry's number may depend on that entry and on `now` alone, not on where it stands among the others.
        """
        ...
