"""PACKLIMIT: above which skew a job is consolidated (Tiresias §3.3.2).

"We use a simple linear classifier to periodically determine the PACKLIMIT value using a job's placement and corresponding
performance as features." Here, exactly: every job that has run both consolidated and spread is a sample. Consolidation pays
for it if it was slower spread by more than WORTHWHILE_SLOWDOWN. The limit is the one that puts the fewest samples on the
wrong side; of those in the widest gap between two skews the middle of it, and of equals the lowest. The models of the
paper are samples as well, so that little history moves the limit little and without any it is the paper's.

Invariant: as many samples as possible are on the right side: no other limit misplaces fewer.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]

WORTHWHILE_SLOWDOWN = 1.05
"""A job that takes so much longer for an iteration when it is spread is worth consolidating."""

SKEWS_OF_MODELS = MappingProxyType(
    {
        "vgg19": 0.7152,
        "vgg16": 0.7427,
        "vgg11": 0.7735,
        "alexnet": 0.6104,
        "resnet152": 0.0391,
        "resnet101": 0.0528,
        "resnet50": 0.0921,
        "inception4": 0.0362,
        "inception3": 0.0857,
        "googlenet": 0.1461,
    }
)
"""Largest tensor over the whole model, for the ten models of Tiresias, Table 6."""

SENSITIVE_MODELS = frozenset({"vgg19", "vgg16", "vgg11", "alexnet"})
"""Those of them that "the locality of workers mainly impacts" (Tiresias §2.2, Figure 3)."""


@dataclass(frozen=True, slots=True)
class PackLimit:
    """A limit, and what it rests on. Jobs with a skew above it are consolidated."""

    limit: float
    learnt_from: int = 0
    """Jobs whose own history it was learnt from, beside the models of the paper."""
    misplaced: int = 0
    """Samples, the paper's included, that are on the wrong side of it."""


def fit_packlimit(skews: Numbers, slowdowns: Numbers) -> PackLimit:
    """The limit for jobs of these skews, in [0, 1], whose iterations took `slowdowns` times as long spread as consolidated.

    Raises ValueError where the two differ in length, or where a skew is out of [0, 1] or a slowdown is not positive.
    """
    if len(skews) != len(slowdowns):
        raise ValueError(f"there are {len(skews)} skews, but {len(slowdowns)} slowdowns")
    if not (np.all((skews >= 0) & (skews <= 1)) and np.all(slowdowns > 0) and np.all(np.isfinite(slowdowns))):
        raise ValueError("skews are from 0 to 1, and slowdowns are positive")
    models = sorted(SKEWS_OF_MODELS)
    x = np.concatenate([np.array([SKEWS_OF_MODELS[model] for model in models]), skews])
    pays = np.concatenate([np.array([model in SENSITIVE_MODELS for model in models]), slowdowns > WORTHWHILE_SLOWDOWN])
    order = np.argsort(x, kind="stable")
    x, pays = x[order], pays[order]
    # A limit between position i - 1 and i misplaces those below it that pay, and those from i on that do not.
    misplaced = np.concatenate([[0], np.cumsum(pays)]) + np.concatenate([np.cumsum(~pays[::-1])[::-1], [0]])
    lower, upper = np.concatenate([[0.0], x]), np.concatenate([x, [1.0]])
    possible = lower < upper
    # Of equals the widest gap; of equally wide ones the first.
    best = np.lexsort((np.arange(len(lower)), lower - upper, misplaced, ~possible))[0]
    limit = float((lower[best] + upper[best]) / 2)
    return PackLimit(limit, learnt_from=len(skews), misplaced=int(misplaced[best]))


DEFAULT_PACKLIMIT = fit_packlimit(np.empty(0), np.empty(0)).limit
"""The middle between GoogleNet (0.146) and AlexNet (0.610): 0.378 separates the models of the paper."""
