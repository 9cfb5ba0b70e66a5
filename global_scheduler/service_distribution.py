"""How much service completed workloads received, and what that says of one that has received some already: the
Gittins index (Tiresias §3.2.2, Pseudocode 1).

Rule: the index of a workload that has attained a GPU-seconds is P(S - a <= D | S > a) / E[min(S - a, D) | S > a], S being
the service of a completed workload as the samples have it, and D the quantum of service; `best_index` is its supremum
over all quanta. Exact: sums over the sorted samples, no histogram and no rounding of probabilities.
Invariant: an index is at least 0, and 0 exactly when no completed workload received more within the quantum.
Ignores: that the distribution may differ between workloads; the caller chooses whose samples they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from global_scheduler.arithmetic import Floats

_CELLS_AT_ONCE = 4_000_000
"""Of the table of quanta that `best_index` looks at, to bound its memory."""


class ServiceDistribution:
    """The empirical distribution of service in GPU-seconds. It never changes: `with_samples` makes another one."""

    __slots__ = ("_sums", "samples_gpu_s")

    def __init__(self, samples_gpu_s: Sequence[float] | Floats) -> None:
        """Raises ValueError without samples, and for one that is not a number greater than 0."""
        samples = np.sort(np.asarray(samples_gpu_s, np.float64).ravel())
        if not len(samples):
            raise ValueError(
                "a distribution of service needs at least one sample: the GPU-seconds of a completed workload"
            )
        if not (np.isfinite(samples).all() and samples[0] > 0):
            worst = samples[0] if not samples[0] > 0 else samples[-1]
            raise ValueError(
                f"a sample of service must be a finite number of GPU-seconds greater than 0, not {worst:g}"
            )
        self._keep(samples)

    def _keep(self, ascending: Floats) -> None:
        self.samples_gpu_s = ascending
        self._sums = np.concatenate(([0.0], np.cumsum(ascending)))

    def __len__(self) -> int:
        return len(self.samples_gpu_s)

    def with_samples(self, more_gpu_s: Sequence[float] | Floats) -> ServiceDistribution:
        """With these as well, in time linear in all samples. Raises ValueError as the constructor does."""
        if not len(more_gpu_s):
            return self
        more = ServiceDistribution(more_gpu_s).samples_gpu_s
        merged = object.__new__(ServiceDistribution)
        merged._keep(np.insert(self.samples_gpu_s, np.searchsorted(self.samples_gpu_s, more), more))
        return merged

    def index(self, attained_gpu_s: Floats, quantum_gpu_s: Floats) -> Floats:
        """The Gittins index of each workload, given what it has attained, at the quantum of its own; infinity is one.

        A workload that has attained more than any completed one has index 0: nothing says that it will end.
        """
        samples, sums = self.samples_gpu_s, self._sums
        attained = np.asarray(attained_gpu_s, np.float64)
        first = np.searchsorted(samples, attained, "right")
        end = np.searchsorted(samples, attained + quantum_gpu_s, "right")
        within = end - first
        beyond = len(samples) - end
        # An infinite quantum leaves none beyond it, and infinity times none is no number.
        cut_gpu_s = np.where(beyond > 0, quantum_gpu_s, 0.0) * beyond
        service_gpu_s = (sums[end] - sums[first]) - attained * within + cut_gpu_s
        index: Floats = np.divide(within, service_gpu_s, out=np.zeros_like(service_gpu_s), where=within > 0)
        return index

    def index_of(self, attained_gpu_s: float, quantum_gpu_s: float) -> float:
        """The index of one workload, to the bit as `index` has it."""
        return float(self.index(np.array([attained_gpu_s]), np.array([quantum_gpu_s]))[0])

    def best_index(self, attained_gpu_s: Floats) -> Floats:
        """The supremum of the index over all quanta: it is reached where the quantum ends at a sample, for in between the
        probability stays and the expected service grows."""
        attained = np.asarray(attained_gpu_s, np.float64)
        ends = np.unique(self.samples_gpu_s)
        best = np.zeros(len(attained))
        step = max(_CELLS_AT_ONCE // len(ends), 1)
        for begin in range(0, len(attained), step):
            some = attained[begin : begin + step, None]
            quanta = np.maximum(ends[None, :] - some, 0.0)
            best[begin : begin + step] = self.index(np.broadcast_to(some, quanta.shape), quanta).max(axis=1)
        return best


@dataclass(frozen=True, slots=True, eq=False)
class ServiceInForce:
    """Which distribution counts for which workload; the workloads are rows."""

    distributions: tuple[ServiceDistribution, ...]
    """At least one."""
    of_row: NDArray[np.int64] | None = None
    """Position in `distributions`, by row. None: the first one counts for all."""

    def rows(self, chosen: NDArray[np.bool_]) -> ServiceInForce:
        """Of these workloads only."""
        return self if self.of_row is None else ServiceInForce(self.distributions, self.of_row[chosen])

    def index(self, attained_gpu_s: Floats, quantum_gpu_s: Floats) -> Floats:
        """The Gittins index of each row by its own distribution."""
        if self.of_row is None:
            return self.distributions[0].index(attained_gpu_s, quantum_gpu_s)
        index = np.empty(len(self.of_row))
        for position, distribution in enumerate(self.distributions):
            rows = self.of_row == position
            index[rows] = distribution.index(attained_gpu_s[rows], quantum_gpu_s[rows])
        return index
