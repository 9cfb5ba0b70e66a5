"""What attempts came to by the level at which they were dispatched (Tiresias §3.2.3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from domain.events import JsonValue
from simulator.results.run_record import AttemptEnd, AttemptTable, Reals

MOST_LEVELS = 100
"""Where there are more, levels are times or buckets of sizes, and tell nobody anything."""


@dataclass(frozen=True, slots=True)
class LevelFigures:
    """Of the attempts that were dispatched at one level, of all priorities."""

    attempts: int
    preemptions: int
    gpu_s: float
    """GPU-seconds that they held, at this level and at those that they came to."""

    def as_json(self) -> dict[str, JsonValue]:
        """The object of docs/results-format.md."""
        return {"attempts": self.attempts, "preemptions": self.preemptions, "gpu_s": self.gpu_s}


def figures_by_level(attempts: AttemptTable, held_gpu_s: Reals) -> dict[str, LevelFigures] | None:
    """By level, the best first; None where there are more than MOST_LEVELS."""
    levels, place = np.unique(attempts.level, return_inverse=True)
    if len(levels) > MOST_LEVELS:
        return None
    number = np.bincount(place, minlength=len(levels))
    preempted = np.bincount(place[attempts.end == AttemptEnd.PREEMPTED], minlength=len(levels))
    gpu_s = np.bincount(place, weights=held_gpu_s, minlength=len(levels))
    return {
        str(int(level)): LevelFigures(int(number[row]), int(preempted[row]), float(gpu_s[row]))
        for row, level in enumerate(levels)
    }
