"""What is known of the model that a job trains: how unequal its tensors are (Tiresias §3.3).

Aggregating one huge tensor suffers from a shared network far more than aggregating many small ones, whatever they come
to together: so the skew says whether a job needs its tasks close together.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """The skew of a model, stated as such or by the two sizes that it is the ratio of; one way only."""

    stated_skew: float | None = None
    largest_tensor_mib: float | None = None
    model_mib: float | None = None

    @property
    def skew(self) -> float:
        """Largest tensor over the whole model, in [0, 1]. Raises ValueError for a profile that says neither."""
        if self.stated_skew is not None:
            return self.stated_skew
        if self.largest_tensor_mib is None or self.model_mib is None:
            raise ValueError("a profile has a skew, or the sizes of the largest tensor and of the model")
        return min(1.0, self.largest_tensor_mib / self.model_mib)


class SkewSource(StrEnum):
    """How the skew of a job came to be known; the first of these that applies."""

    DECLARED = "declared"
    """The workload says it."""
    REPORTED = "reported"
    """One of its own attempts has reported it: that one was the trial."""
    OF_ITS_NAME = "of_its_name"
    """An earlier workload of the same tenant and name has reported it."""


class KnownSkew(NamedTuple):
    """The skew of a job's model, in [0, 1], and how it is known."""

    skew: float
    source: SkewSource
