"""Which faults, in which order, how many at a time: all of it drawn from the seed before the run begins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tests.chaos.driver.faults import FaultKind

_SEVERAL_SHARE = 0.7
_LONGEST_STAGGER_S = 3.0


@dataclass(frozen=True, slots=True)
class Planned:
    """One fault of a wave: how long after the wave begins, and with which seed of its own."""

    kind: FaultKind
    after_s: float
    seed: int


def draw(kinds: Sequence[FaultKind], faults: int, rng: np.random.Generator) -> list[list[Planned]]:
    """Waves of one to four faults, so many in all: each kind once if there are enough, the others by weight.

    What has Ray begin anew comes alone or first in its wave, so that the wave is not over before the others find something.
    """
    weights = np.array([kind.weight for kind in kinds])
    more = max(faults - len(kinds), 0)
    chosen = [*kinds, *(kinds[int(i)] for i in rng.choice(len(kinds), size=more, p=weights / weights.sum()))]
    rng.shuffle(chosen)
    return list(_waves(chosen[:faults], rng))


def _waves(kinds: Sequence[FaultKind], rng: np.random.Generator) -> Iterator[list[Planned]]:
    left = list(kinds)
    while left:
        count = 1 if rng.random() > _SEVERAL_SHARE else int(rng.integers(2, 5))
        wave, left = left[:count], left[count:]
        yield [
            Planned(kind, 0.0 if number == 0 else float(rng.uniform(0.0, _LONGEST_STAGGER_S)), int(rng.integers(2**31)))
            for number, kind in enumerate(sorted(wave, key=lambda kind: not kind.is_heavy))
        ]
