"""The shape of an ordering policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class OrderingInput:
    """What a policy may look at; one element per entry in each array."""

    submitted_s: NDArray[np.float64]
    credit: NDArray[np.float64]
    """MAST's Expressions 10 and 11."""
    now: float
    work: QueuedWork | None = None
    """None where nobody knows it: the live service cannot look into the future."""

    def __len__(self) -> int:
        return len(self.credit)


@dataclass(frozen=True, slots=True, eq=False)
class QueuedWork:
    """How large the entries are, and what they have received; for policies that need it."""

    gpus: NDArray[np.float64]
    """Of all base tasks together; thousandths of a machine's CPUs do not count."""
    remaining_s: NDArray[np.float64]
    """Run time to the end on what was asked for: an oracle's knowledge."""
    attained_gpu_s: NDArray[np.float64]
    """GPU-seconds received in earlier attempts."""
    queued_since_s: NDArray[np.float64]
    """Since when they wait: their submission, or their last eviction."""


class WorkUnknown(Exception):
    """An ordering policy needs to know sizes and run times, and nobody has told them."""

    def __init__(self, policy: str) -> None:
        super().__init__(f"the ordering policy {policy} needs sizes and run times, which only a simulation knows")


class OrderingPolicy(Protocol):
    """Sorts the workloads of one (priority, level)."""

    @property
    def name(self) -> str:
        """What the settings call it."""
        ...

    def ordering_credit(self, queue: OrderingInput) -> NDArray[np.float64]:
        """One finite number per entry; the greatest goes first.

        An entry's number may depend on that entry and on `now` alone, not on where it stands among the others.
        Raises WorkUnknown when it needs what `queue.work` does not tell.
        """
        ...
